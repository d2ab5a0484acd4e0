/*
 * Batches: each thread allocates BATCH blocks and then frees all of them, ROUNDS times. The order of the frees is last
 * first (lifo), first first (fifo), every second one in order and then the others backwards (mixed), or random
 * (shuffled). Many allocators are at their best only with lifo.
 *
 * SIZE 0 takes mixed small sizes, 16-1000 B, most of them small, and each block checks itself. With any other SIZE all
 * blocks have that size and the loop is bare: TOUCH 1 writes the first byte of each block, TOUCH 0 nothing. A round
 * that is not timed comes first, so that the figures include no first touch. A thread ends after the round in which MS
 * milliseconds are over, unless MS is 0. With BENCH_VERIFY=1, blocks of a given size check themselves, too.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "common.h"

enum { BATCH_MOST = 1 << 17, SIZE_LEAST = 16, SIZE_MOST = 1000, SIZE_GIVEN_MOST = 1 << 30 };
enum order { LIFO, FIFO, MIXED, SHUFFLED };

static const char *const order_names[] = { "lifo", "fifo", "mixed", "shuffled", NULL };

struct worker {
    uint64_t random;
    uint64_t bytes;
    uint64_t rounds;
} __attribute__((aligned(128)));

static struct worker workers[BENCH_THREADS_MOST];
static void *tables[BENCH_THREADS_MOST][BATCH_MOST];
/* Block i of a batch stands at place[i] of the thread's table. The table's blocks are freed from first to last. */
static uint32_t place[BATCH_MOST];
static uint64_t rounds, most_ns;
static uint32_t batch;
static size_t size;
static bool touch, verify;
/* Threads wait here twice after the untimed round. The main thread starts the clock between the two waits. */
static pthread_barrier_t warmed, clocked;

static void lay_out(enum order order, uint64_t seed)
{
    uint32_t next = 0;
    uint64_t state = bench_seed(seed, BENCH_THREADS_MOST);
    for (uint32_t i = 0; i < batch; i++)
        place[i] = order == LIFO ? batch - 1 - i : i;
    if (order == MIXED) {
        for (uint32_t i = 0; i < batch; i += 2)
            place[i] = next++;
        for (uint32_t i = batch; i-- > 0;)
            if (i % 2 == 1)
                place[i] = next++;
    }
    if (order == SHUFFLED)
        for (uint32_t i = batch - 1; i > 0; i--) {
            uint32_t other = bench_scale((uint32_t)(bench_random(&state) >> 32), i + 1);
            uint32_t kept = place[i];
            place[i] = place[other];
            place[other] = kept;
        }
}

static void mixed_round(struct worker *worker, void **blocks)
{
    for (uint32_t i = 0; i < batch; i++) {
        uint64_t random = bench_random(&worker->random);
        uint32_t range = 1 + bench_scale((uint32_t)random, SIZE_MOST - SIZE_LEAST + 1);
        size_t bytes = SIZE_LEAST + bench_scale((uint32_t)(random >> 32), range);
        blocks[place[i]] = bench_block_new(bytes, i);
        worker->bytes += bytes;
    }
    for (uint32_t i = 0; i < batch; i++)
        bench_block_free(blocks[i]);
}

static inline __attribute__((always_inline)) void bare_round(void **blocks, bool writes)
{
    for (uint32_t i = 0; i < batch; i++) {
        char *block = malloc(size);
        if (block == NULL)
            bench_fail("malloc(%zu) failed", size);
        if (writes)
            *(volatile char *)block = 1;
        blocks[place[i]] = block;
    }
    for (uint32_t i = 0; i < batch; i++)
        free(blocks[i]);
}

static void verified_round(void **blocks)
{
    for (uint32_t i = 0; i < batch; i++)
        blocks[place[i]] = bench_block_new(size, i);
    for (uint32_t i = 0; i < batch; i++)
        bench_block_free(blocks[i]);
}

static void one_round(struct worker *worker, void **blocks)
{
    if (size == 0)
        mixed_round(worker, blocks);
    else if (verify)
        verified_round(blocks);
    else if (touch)
        bare_round(blocks, true);
    else
        bare_round(blocks, false);
}

static void run_rounds(struct worker *worker)
{
    uint64_t end = bench_now_ns() + most_ns;
    while (worker->rounds < rounds) {
        one_round(worker, tables[worker - workers]);
        worker->rounds++;
        if (most_ns != 0 && bench_now_ns() >= end)
            break;
    }
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;
    if (size != 0) {
        one_round(worker, tables[worker - workers]);
        pthread_barrier_wait(&warmed);
        pthread_barrier_wait(&clocked);
    }
    run_rounds(worker);
}

static void run_threads(struct bench_run *bench, unsigned threads)
{
    pthread_barrier_init(&warmed, NULL, threads + 1);
    pthread_barrier_init(&clocked, NULL, threads + 1);
    bench_begin_threads(bench, "batches", threads, worker_main, workers, sizeof workers[0]);
    if (size != 0) {
        pthread_barrier_wait(&warmed);
        bench_begin(bench, "batches");
        pthread_barrier_wait(&clocked);
    }
    bench_join_threads();
}

/* Runs in the main thread: C libraries take shorter paths while a process has only one thread. */
static void run_alone(struct bench_run *bench)
{
    one_round(&workers[0], tables[0]);
    bench_begin(bench, "batches");
    run_rounds(&workers[0]);
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 8,
        "[ROUNDS] [ORDER] [BATCH] [THREADS] [SEED] [SIZE] [TOUCH] [MS]\n"
        "  batches of blocks of SIZE bytes, or of 16-1000 B (0), freed in ORDER lifo, fifo, mixed or shuffled;\n"
        "  TOUCH 1 writes a byte of each; MS milliseconds at most (default 6000 mixed 1000 1 42 0 1 0)");
    rounds = bench_argument(argc, argv, 1, "ROUNDS", 6000, 0, UINT64_C(1) << 40);
    enum order order = (enum order)bench_choice(argc, argv, 2, "ORDER", MIXED, order_names);
    batch = (uint32_t)bench_argument(argc, argv, 3, "BATCH", 1000, 1, BATCH_MOST);
    unsigned threads = (unsigned)bench_argument(argc, argv, 4, "THREADS", 1, 1, BENCH_THREADS_MOST);
    uint64_t seed = bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX);
    size = bench_argument(argc, argv, 6, "SIZE", 0, 0, SIZE_GIVEN_MOST);
    touch = bench_argument(argc, argv, 7, "TOUCH", 1, 0, 1) != 0;
    most_ns = bench_argument(argc, argv, 8, "MS", 0, 0, 1000000) * 1000000;
    verify = bench_verify_wanted() && size >= SIZE_LEAST;
    uint64_t bytes = 0, done = 0;
    struct bench_run bench;

    lay_out(order, seed);
    for (unsigned i = 0; i < threads; i++)
        workers[i].random = bench_seed(seed, i);
    if (size != 0 && threads == 1)
        run_alone(&bench);
    else
        run_threads(&bench, threads);
    for (unsigned i = 0; i < threads; i++) {
        done += workers[i].rounds;
        bytes += workers[i].bytes + workers[i].rounds * batch * size;
    }
    bench_end(&bench, 2 * done * batch);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
