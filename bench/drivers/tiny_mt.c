/* Tiny blocks on many threads: each thread allocates BATCH blocks of SIZE bytes, writes the first byte of each block
 * and frees them in the order of allocation, until it has done ITERATIONS operations. The threads share nothing. The
 * defaults are the source documents' run: 1,000,000 times 200 operations on each of four threads. */
#define _GNU_SOURCE
#include <pthread.h>

#include "common.h"

enum { THREADS_MOST = 256, BATCH_MOST = 4096 };

static uint64_t iterations;
static uint32_t size, batch;

static void *worker_main(void *argument)
{
    unsigned char *blocks[BATCH_MOST];
    unsigned char mark = (unsigned char)(uintptr_t)argument;

    for (uint64_t done = 0; done < iterations; done += 2 * (uint64_t)batch) {
        for (uint32_t i = 0; i < batch; i++) {
            blocks[i] = malloc(size);
            if (blocks[i] == NULL)
                bench_fail("malloc(%u) failed", size);
            *blocks[i] = (unsigned char)(mark + i);
        }
        for (uint32_t i = 0; i < batch; i++) {
            if (*blocks[i] != (unsigned char)(mark + i))
                bench_fail("block %u lost its contents", i);
            free(blocks[i]);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[THREADS] [ITERATIONS] [SIZE] [BATCH]\n  tiny blocks on many threads (default 4 200000000 16 100)");
    unsigned threads = (unsigned)bench_argument(argc, argv, 1, "THREADS", 4, 1, THREADS_MOST);
    iterations = bench_argument(argc, argv, 2, "ITERATIONS", 200000000, 0, UINT64_C(1) << 60);
    size = (uint32_t)bench_argument(argc, argv, 3, "SIZE", 16, 1, 1 << 30);
    batch = (uint32_t)bench_argument(argc, argv, 4, "BATCH", 100, 1, BATCH_MOST);
    uint64_t rounds = (iterations + 2 * (uint64_t)batch - 1) / (2 * (uint64_t)batch);
    pthread_t workers[THREADS_MOST];
    struct bench_run bench;

    bench_begin(&bench, "tiny_mt");
    for (unsigned i = 0; i < threads; i++) {
        int error = pthread_create(&workers[i], NULL, worker_main, (void *)(uintptr_t)(i * 37));
        if (error != 0)
            bench_fail("pthread_create: %s", strerror(error));
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    bench_end(&bench, threads * rounds * 2 * batch);
    bench_report(&bench);
    return 0;
}
