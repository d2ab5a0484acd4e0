/* Makes calls whose numbers the arguments say, says so, and waits until standard input ends.
 *
 *     hits ROUNDS THREADS
 *
 * Each thread makes, with blocks of 1,000 bytes: ROUNDS pairs; of 40,000 bytes: ROUNDS pairs; of 65,536: ROUNDS pairs;
 * of 700 bytes: ROUNDS blocks, which are freed in the order of their allocation; of 3,000 bytes by calloc and of 1,536
 * by aligned_alloc: ROUNDS pairs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t rounds;

static void use(void *block)
{
    *(volatile char *)block = 1;
    free(block);
}

static void *calls(void *unused)
{
    static _Thread_local void *blocks[20000];

    (void)unused;
    for (size_t i = 0; i < rounds; i++)
        use(malloc(1000));
    for (size_t i = 0; i < rounds; i++)
        use(malloc(40000));
    for (size_t i = 0; i < rounds; i++)
        use(malloc(65536));
    for (size_t i = 0; i < rounds; i++)
        blocks[i] = malloc(700);
    for (size_t i = 0; i < rounds; i++)
        free(blocks[i]);
    for (size_t i = 0; i < rounds; i++)
        use(calloc(3, 1000));
    for (size_t i = 0; i < rounds; i++)
        use(aligned_alloc(512, 1536));
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[8];
    size_t others = count == 3 ? strtoul(arguments[2], NULL, 10) : 0;
    char byte;

    rounds = count == 3 ? strtoul(arguments[1], NULL, 10) : 0;
    if (others > 8 || rounds > 20000)
        return 2;
    for (size_t i = 0; i < others; i++)
        if (pthread_create(&threads[i], NULL, calls, NULL))
            return 3;
    calls(NULL);
    for (size_t i = 0; i < others; i++)
        pthread_join(threads[i], NULL);
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        return 4;
    return (int)read(STDIN_FILENO, &byte, 1);
}
