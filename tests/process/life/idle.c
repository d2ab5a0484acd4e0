/*
 * idle WHAT: frees 100 MiB of blocks, prints "ready", and waits for the end of standard input.
 *
 * WHAT: alone     one thread
 *       again     one thread, which allocates and frees as much over and over before that
 *       trim      one thread, which calls malloc_trim(0) before it waits
 *       threaded  another thread, which never allocates, waits meanwhile
 *       ended     another thread frees them and ends; a third one waits meanwhile
 *       huge      it is one block, so that no call comes after its free; another thread waits meanwhile
 */
#include <malloc.h>
#include <pthread.h>

#include "work.h"

enum { BLOCKS = 100 << 10 };

static char *blocks[BLOCKS];

static void *wait_for_the_end(void *unused)
{
    pause();
    return unused;
}

static void *use(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(1024), 1, 1024);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

static void begin(pthread_t *thread, void *(*run)(void *))
{
    if (pthread_create(thread, NULL, run, NULL))
        fail("pthread_create");
}

int main(int argc, char **argv)
{
    pthread_t thread;
    char end;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "threaded") == 0 || strcmp(argv[1], "ended") == 0 || strcmp(argv[1], "huge") == 0)
        begin(&thread, wait_for_the_end);
    if (strcmp(argv[1], "ended") == 0) {
        begin(&thread, use);
        pthread_join(thread, NULL);
    } else if (strcmp(argv[1], "huge") == 0) {
        char *volatile block = malloc(100 << 20);
        sleep(1); /* the other thread's start is over, and the purge thread sleeps */
        memset(block, 1, 100 << 20);
        free(block);
    } else {
        for (int rounds = strcmp(argv[1], "again") == 0 ? 10 : 1; rounds > 0; rounds--)
            use(NULL);
    }
    if (strcmp(argv[1], "trim") == 0)
        malloc_trim(0);
    /* write: printf would call malloc, which could give memory back. */
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        fail("write");
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    return 0;
}
