/* first_gone [wait | relay]: the first thread ends by pthread_exit. Another one then allocates and frees 8 MB in small
 * blocks, prints "ready", and ends the process, with `wait` once its input ends. With `relay` it never ends: each
 * thread starts the next one, and ends itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 80000, KEPT = 4000 };

static void *kept[KEPT];
static pthread_t first;

static __attribute__((noinline)) void allocate_in_second_thread(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        void *block = memset(malloc(100), 1, 100);
        free(kept[i % KEPT]);
        kept[i % KEPT] = block;
    }
}

static void *relay(void *unused)
{
    pthread_t next;

    pthread_detach(pthread_self());
    while (pthread_create(&next, NULL, relay, unused) != 0)
        ;
    return unused;
}

static void *run(void *how)
{
    pthread_join(first, NULL);
    allocate_in_second_thread();
    puts("ready");
    fflush(stdout);
    if (how && strcmp(how, "relay") == 0)
        return relay(NULL);
    while (how && getchar() != EOF)
        ;
    exit(0);
}

int main(int argc, char **argv)
{
    pthread_t thread;

    (void)argc;
    first = pthread_self();
    pthread_create(&thread, NULL, run, argv[1]);
    pthread_exit(NULL);
}
