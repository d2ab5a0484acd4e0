/*
 * Batches: each thread allocates BATCH blocks of mixed small sizes, 16-1000 B with most of them short, and frees all:
 * the last first (lifo), the first first (fifo), or every second one in order and the others backwards (mixed). Many
 * allocators are at their best on the first order only.
 */
#include "common.h"

enum { BATCH_MOST = 1 << 16, SIZE_LEAST = 16, SIZE_MOST = 1000 };
enum order { LIFO, FIFO, MIXED };

static const char *const order_names[] = { "lifo", "fifo", "mixed", NULL };

struct worker {
    uint64_t random;
    uint64_t bytes;
} __attribute__((aligned(128)));

static struct worker workers[BENCH_THREADS_MOST];
static void *tables[BENCH_THREADS_MOST][BATCH_MOST];
static enum order order;
static uint64_t rounds;
static uint32_t batch;

static void free_all(void **blocks)
{
    if (order == FIFO)
        for (uint32_t i = 0; i < batch; i++)
            bench_block_free(blocks[i]);
    if (order == MIXED)
        for (uint32_t i = 0; i < batch; i += 2)
            bench_block_free(blocks[i]);
    if (order != FIFO)
        for (uint32_t i = batch; i-- > 0;)
            if (order == LIFO || i % 2 == 1)
                bench_block_free(blocks[i]);
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;
    void **blocks = tables[worker - workers];

    for (uint64_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < batch; i++) {
            uint64_t random = bench_random(&worker->random);
            uint32_t range = 1 + bench_scale((uint32_t)random, SIZE_MOST - SIZE_LEAST + 1);
            size_t size = SIZE_LEAST + bench_scale((uint32_t)(random >> 32), range);
            blocks[i] = bench_block_new(size, i);
            worker->bytes += size;
        }
        free_all(blocks);
    }
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 5,
                "[ROUNDS] [ORDER] [BATCH] [THREADS] [SEED]\n"
                "  batches of blocks of 16-1000 B, freed in ORDER lifo, fifo or mixed (default 6000 mixed 1000 1 42)");
    rounds = bench_argument(argc, argv, 1, "ROUNDS", 6000, 0, UINT64_C(1) << 40);
    order = (enum order)bench_choice(argc, argv, 2, "ORDER", MIXED, order_names);
    batch = (uint32_t)bench_argument(argc, argv, 3, "BATCH", 1000, 1, BATCH_MOST);
    unsigned threads = (unsigned)bench_argument(argc, argv, 4, "THREADS", 1, 1, BENCH_THREADS_MOST);
    uint64_t seed = bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX);
    uint64_t bytes = 0;
    struct bench_run bench;

    for (unsigned i = 0; i < threads; i++)
        workers[i].random = bench_seed(seed, i);
    bench_begin_threads(&bench, "batches", threads, worker_main, workers, sizeof workers[0]);
    bench_join_threads();
    bench_end(&bench, 2 * threads * rounds * batch);
    for (unsigned i = 0; i < threads; i++)
        bytes += workers[i].bytes;
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
