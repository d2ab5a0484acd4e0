/* hold MEBIBYTES HELD_MS FREE_MS [CHILDREN]: maps and writes the memory, sleeps, gives it back, sleeps again. With
 * CHILDREN, so many children do it, started by a thread that is not the main one. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static size_t bytes;
static long held_ms, free_ms;

static void sleep_ms(long milliseconds)
{
    struct timespec pause = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
    nanosleep(&pause, NULL);
}

static void hold(void)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    memset(memory, 1, bytes);
    sleep_ms(held_ms);
    munmap(memory, bytes);
    sleep_ms(free_ms);
}

static void *start_children(void *count)
{
    for (intptr_t i = 0; i < (intptr_t)count; i++) {
        if (fork() == 0) {
            hold();
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {
    }
    return NULL;
}

int main(int argc, char **argv)
{
    bytes = strtoul(argv[1], NULL, 10) << 20;
    held_ms = strtol(argv[2], NULL, 10);
    free_ms = strtol(argv[3], NULL, 10);
    intptr_t children = argc > 4 ? strtol(argv[4], NULL, 10) : 0;
    if (children == 0) {
        hold();
        return 0;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, start_children, (void *)children) != 0)
        return 1;
    return pthread_join(thread, NULL);
}
