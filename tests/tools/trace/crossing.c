/*
 * crossing THREADS ROUNDS: in each round every thread makes blocks and hands them to its neighbour, which resizes or
 * frees them. Then the threads end and others follow. The number of calls does not depend on the order: for each thread
 * and round 64 malloc, 16 realloc, 64 free.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 64, MOST_THREADS = 16, PASSES = 4 };

static _Atomic(unsigned char *) box[MOST_THREADS][BLOCKS];
static int threads;

static size_t size_of(int thread, int block)
{
    return 1 + (size_t)(thread * 977 + block * block * 31) % 6000;
}

static void *work(void *argument)
{
    int self = (int)(intptr_t)argument, from = (self + threads - 1) % threads;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = size_of(self, i);
        unsigned char *block = malloc(size);
        if (block == NULL)
            _exit(9);
        memset(block, self + 1, size);
        atomic_store(&box[self][i], block);
    }
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char *block;
        while ((block = atomic_exchange(&box[from][i], NULL)) == NULL)
            ;
        if (block[size_of(from, i) - 1] != from + 1)
            _exit(8);
        if (i % 4 == 0)
            block = realloc(block, size_of(from, i) * 2);
        free(block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    threads = atoi(argv[1]);
    for (int round = atoi(argv[2]); round > 0; round--) {
        pthread_t thread[MOST_THREADS];
        for (int i = 0; i < threads; i++)
            if (pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i) != 0)
                return 3;
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
    }
    return 0;
}
