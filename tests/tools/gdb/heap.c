/* A heap with known contents. Prints what each address is, a line each, and "ready". Then it waits, or crashes if its
 * argument says so. */
#include <hakmem/hakmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY 1000

static char static_room[100];
static void *remote, *worker_live, *worker_cached;
static long worker_tid;
static pthread_barrier_t barrier;

static void *work(void *argument)
{
    worker_tid = syscall(SYS_gettid);
    worker_live = malloc(500);
    remote = malloc(700);
    worker_cached = malloc(900);
    free(worker_cached);
    pthread_barrier_wait(&barrier);
    pause();
    return argument;
}

static void say(const char *what, const void *address, size_t size) { printf("%s %p %zu\n", what, address, size); }

int main(int argc, char **argv)
{
    static char *many[MANY];
    char on_stack[16];
    pthread_t worker;

    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&worker, NULL, work, NULL) != 0)
        return 1;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < MANY; i++)
        many[i] = malloc(200);
    for (int i = 0; i < MANY; i++)
        if (i % 50 != 0)
            free(many[i]);
    free(remote);
    hak_thread_idle(); /* returns what this thread's cache holds */
    for (int i = 0; i < MANY; i += 50)
        say("kept", many[i], 200);
    say("free", many[1], 200);
    say("free", many[777], 200);
    say("remote", remote, 700);
    say("thread", (void *)worker_tid, 0);
    say("main", (void *)(long)getpid(), 0);
    say("worker_live", worker_live, 500);
    say("worker_cached", worker_cached, 900);
    char *live = malloc(100), *cached = malloc(2000), *span = malloc(100000), *huge = malloc(3 << 20),
         *freed_huge = malloc(5 << 20);
    memset(live, 1, 100);
    memset(huge, 1, 3 << 20);
    memset(freed_huge, 1, 5 << 20);
    free(cached);
    free(freed_huge);
    say("live", live, 100);
    say("cached", cached, 2000);
    say("live", span, 100000);
    say("huge", huge, 3 << 20);
    say("freed_huge", freed_huge, 5 << 20);
    say("own_heap", hak_heap_malloc(hak_heap_new(), 300), 300);
    say("foreign", static_room, 0);
    say("foreign", on_stack, 0);
    say("foreign", NULL, 0);
    puts("ready");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        *(volatile int *)8 = 1;
    pause();
    return 0;
}
