/* holds SIZE COUNT KEPT THREADS [ROUNDS]: THREADS threads (the main one included) allocate and write COUNT blocks of
 * SIZE bytes each and free all but every KEPT-th, ROUNDS times. Prints "ready" and waits until its standard input
 * ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t size, count, kept, rounds = 1;
static pthread_barrier_t done;

static void *work(void *waits)
{
    char **blocks = calloc(count, sizeof *blocks);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++)
            if (blocks[i] == NULL)
                blocks[i] = memset(malloc(size), 1, size);
        for (size_t i = 0; i < count; i++)
            if (i % kept != 0) {
                free(blocks[i]);
                blocks[i] = NULL;
            }
    }
    pthread_barrier_wait(&done);
    while (waits != NULL)
        pause();
    return blocks;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    size = strtoul(argv[1], NULL, 10);
    count = strtoul(argv[2], NULL, 10);
    kept = strtoul(argv[3], NULL, 10);
    unsigned threads = (unsigned)strtoul(argv[4], NULL, 10);
    if (argc > 5)
        rounds = strtoul(argv[5], NULL, 10);
    pthread_barrier_init(&done, NULL, threads);
    for (unsigned i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, argv) != 0)
            return 1;
    }
    void *held = work(NULL);
    puts("ready");
    fflush(stdout);
    char rest[16];
    while (read(0, rest, sizeof rest) > 0)
        ;
    return held == NULL;
}
