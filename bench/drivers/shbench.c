/*
 * Modeled on SmartHeap's shbench, after its published description: each thread sweeps the sizes from 1 to LARGEST bytes
 * and allocates more blocks of smaller sizes. At the end of a sweep it frees most of the sweep's blocks, in turn in the
 * order of allocation and backwards. It keeps one block in KEPT_EVERY, which replaces a block of an earlier sweep.
 */
#include "common.h"

enum { SWEEP_MOST = 1 << 14, KEPT = 4096, KEPT_EVERY = 13, LARGEST_MOST = 1 << 16, SIZE_LEAST = 16, AT_ONCE = 64 };

struct worker {
    uint64_t random;
    uint64_t bytes;
    uint64_t operations;
    uint64_t serial;
    uint32_t next_kept;
} __attribute__((aligned(128)));

static struct worker workers[BENCH_THREADS_MOST];
static void *sweeps[BENCH_THREADS_MOST][SWEEP_MOST];
static void *kept[BENCH_THREADS_MOST][KEPT];
static uint64_t rounds;
static uint32_t largest;

/* Requests of less than 16 bytes become 16, because the stamp takes that much. */
static size_t stamped(uint32_t size)
{
    return size < SIZE_LEAST ? SIZE_LEAST : size;
}

static uint32_t allocate_sweep(struct worker *worker, void **blocks)
{
    uint32_t count = 0;
    /* The random step makes sweeps differ. */
    for (uint32_t size = 1; size <= largest;
         size += 1 + bench_scale((uint32_t)(bench_random(&worker->random) >> 32), 48)) {
        uint32_t more = 1 + AT_ONCE * 16 / (size + 15);
        for (uint32_t i = 0; i < more && count < SWEEP_MOST; i++) {
            blocks[count++] = bench_block_new(stamped(size), worker->serial++);
            worker->bytes += stamped(size);
        }
    }
    return count;
}

static void keep_some(struct worker *worker, void **blocks, uint32_t count, void **places)
{
    for (uint32_t i = 0; i < count; i += KEPT_EVERY) {
        void **place = &places[worker->next_kept++ % KEPT];
        worker->operations += bench_block_free(*place);
        *place = blocks[i];
        blocks[i] = NULL;
    }
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;
    void **blocks = sweeps[worker - workers], **places = kept[worker - workers];

    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t count = allocate_sweep(worker, blocks);
        worker->operations += count;
        keep_some(worker, blocks, count, places);
        for (uint32_t i = 0; i < count; i++)
            worker->operations += bench_block_free(blocks[round % 2 == 0 ? i : count - 1 - i]);
    }
    for (uint32_t i = 0; i < KEPT; i++)
        worker->operations += bench_block_free(places[i]);
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 4,
        "[ROUNDS] [LARGEST] [THREADS] [SEED]\n"
        "  sweeps of sizes from 1 to LARGEST bytes, the small ones often, some blocks kept (default 5000 1000 1 42)");
    rounds = bench_argument(argc, argv, 1, "ROUNDS", 5000, 0, UINT64_C(1) << 40);
    largest = (uint32_t)bench_argument(argc, argv, 2, "LARGEST", 1000, 1, LARGEST_MOST);
    unsigned threads = (unsigned)bench_argument(argc, argv, 3, "THREADS", 1, 1, BENCH_THREADS_MOST);
    uint64_t seed = bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX);
    uint64_t bytes = 0, operations = 0;
    struct bench_run bench;

    for (unsigned i = 0; i < threads; i++)
        workers[i].random = bench_seed(seed, i);
    bench_begin_threads(&bench, "shbench", threads, worker_main, workers, sizeof workers[0]);
    bench_join_threads();
    for (unsigned i = 0; i < threads; i++) {
        bytes += workers[i].bytes;
        operations += workers[i].operations;
    }
    bench_end(&bench, operations);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
