/*
 * idle alone|threaded|trim: frees 100 MiB of blocks, prints "ready", and waits for the end of standard input.
 * threaded: another thread waits meanwhile. trim: it calls malloc_trim(0) before it waits.
 */
#include <malloc.h>
#include <pthread.h>

#include "work.h"

enum { BLOCKS = 100 << 10 };

static void *wait_for_the_end(void *unused)
{
    pause();
    return unused;
}

int main(int argc, char **argv)
{
    static char *blocks[BLOCKS];
    pthread_t thread;
    char end;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "threaded") == 0 && pthread_create(&thread, NULL, wait_for_the_end, NULL))
        fail("pthread_create");
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(1024), 1, 1024);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    if (strcmp(argv[1], "trim") == 0)
        malloc_trim(0);
    /* write: printf would call malloc, which could give memory back. */
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        fail("write");
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    return 0;
}
