/* Thread churn: THREADS threads in all, AT_ONCE at a time. Each allocates BLOCKS blocks of 16-4096 B, frees them in
 * another order and ends. Shows what a thread costs an allocator: its cache, its heap, and taking them back. */
#define _GNU_SOURCE
#include <pthread.h>

#include "common.h"

enum { AT_ONCE_MOST = 256, BLOCKS_MOST = 4096, SIZE_LEAST = 16, SIZE_MOST = 4096 };

static void *tables[AT_ONCE_MOST][BLOCKS_MOST];
static uint32_t blocks_each;
static uint64_t seed;

struct worker {
    pthread_t thread;
    uint64_t number;
    void **blocks;
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    uint64_t random = bench_seed(seed, worker->number);

    for (uint32_t i = 0; i < blocks_each; i++)
        worker->blocks[i] = bench_block_new(
            SIZE_LEAST + bench_scale((uint32_t)(bench_random(&random) >> 32), SIZE_MOST - SIZE_LEAST + 1), i);
    /* Even places first, then odd ones from the end. */
    for (uint32_t i = 0; i < blocks_each; i += 2)
        bench_block_free(worker->blocks[i]);
    for (uint32_t i = blocks_each; i-- > 0;)
        if (i % 2 == 1)
            bench_block_free(worker->blocks[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[THREADS] [BLOCKS] [AT_ONCE] [SEED]\n  short-lived threads (default 20000 100 4 42)");
    uint64_t threads = bench_argument(argc, argv, 1, "THREADS", 20000, 0, UINT64_C(1) << 40);
    blocks_each = (uint32_t)bench_argument(argc, argv, 2, "BLOCKS", 100, 0, BLOCKS_MOST);
    unsigned at_once = (unsigned)bench_argument(argc, argv, 3, "AT_ONCE", 4, 1, AT_ONCE_MOST);
    seed = bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX);
    struct worker workers[AT_ONCE_MOST];
    struct bench_run bench;

    bench_begin(&bench, "thread_churn");
    for (uint64_t first = 0; first < threads; first += at_once) {
        unsigned count = threads - first < at_once ? (unsigned)(threads - first) : at_once;
        for (unsigned i = 0; i < count; i++) {
            workers[i].number = first + i;
            workers[i].blocks = tables[i];
            int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
            if (error != 0)
                bench_fail("pthread_create: %s", strerror(error));
        }
        for (unsigned i = 0; i < count; i++)
            pthread_join(workers[i].thread, NULL);
    }
    bench_end(&bench, threads * 2 * blocks_each);
    bench_report(&bench);
    return 0;
}
