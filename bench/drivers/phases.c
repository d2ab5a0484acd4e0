/*
 * Phases: in each phase, THREADS threads start, allocate blocks of mixed sizes and lifetimes, and end. A block lives
 *  - briefly: until the same thread has allocated a few dozen others (about 5 of 8),
 *  - for the phase: until its thread ends (2 of 8); half of these are left to later threads,
 *  - long: it goes into a table that all threads share, and the thread that takes its place frees it (1 of 8).
 * After every fourth phase the main thread frees half of the table.
 *
 * Sizes are 16-1024 B, of one block in 32 up to 32 KiB, and of LARGE in 1000 from 64 KiB to 1 MiB.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "common.h"

enum {
    THREADS_MOST = 256,
    SHORT_SLOTS = 32,
    PHASE_SLOTS = 1024,
    SHARED_SLOTS = 1024,
    SMALL_MOST = 1024,
    MIDDLE_MOST = 32 * 1024,
    LARGE_LEAST = 64 * 1024,
    LARGE_MOST = 1024 * 1024
};

struct worker {
    pthread_t thread;
    uint64_t random;
    uint64_t operations;
    void *recent[SHORT_SLOTS];
    void *owned[PHASE_SLOTS];
};

static struct worker workers[THREADS_MOST];
static _Atomic(void *) shared[SHARED_SLOTS];
static uint64_t blocks_each;
static uint32_t large_permille;

static void *new_block(struct worker *worker, uint64_t serial)
{
    uint64_t random = bench_random(&worker->random);
    uint32_t kind = (uint32_t)random & 0x7fff;
    uint32_t bits = (uint32_t)(random >> 32);
    size_t size = 16 + bench_scale(bits, SMALL_MOST - 16 + 1);
    if (kind % 1000 < large_permille)
        size = LARGE_LEAST + bench_scale(bits, LARGE_MOST - LARGE_LEAST + 1);
    else if (kind >> 10 == 0)
        size = SMALL_MOST + bench_scale(bits, MIDDLE_MOST - SMALL_MOST + 1);
    worker->operations++;
    return bench_block_new(size, serial);
}

/* Puts the block into the shared table and frees the block that it replaces. */
static void share(struct worker *worker, void *block)
{
    uint32_t slot = bench_scale((uint32_t)(bench_random(&worker->random) >> 32), SHARED_SLOTS);
    worker->operations += bench_block_free(atomic_exchange(&shared[slot], block));
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t i = 0; i < blocks_each; i++) {
        void *block = new_block(worker, i);
        uint64_t random = bench_random(&worker->random);
        uint32_t life = (uint32_t)(random >> 61);
        uint32_t bits = (uint32_t)random;
        if (life == 0) {
            share(worker, block);
        } else {
            void **slot = life <= 2 ? &worker->owned[bench_scale(bits, PHASE_SLOTS)]
                                    : &worker->recent[bench_scale(bits, SHORT_SLOTS)];
            worker->operations += bench_block_free(*slot);
            *slot = block;
        }
    }
    for (unsigned slot = 0; slot < SHORT_SLOTS; slot++) {
        worker->operations += bench_block_free(worker->recent[slot]);
        worker->recent[slot] = NULL;
    }
    for (unsigned slot = 0; slot < PHASE_SLOTS; slot++) {
        void *block = worker->owned[slot];
        worker->owned[slot] = NULL;
        if (block != NULL && slot % 2 == 0)
            share(worker, block);
        else
            worker->operations += bench_block_free(block);
    }
    return NULL;
}

static uint64_t free_shared(unsigned step)
{
    uint64_t operations = 0;
    for (unsigned slot = 0; slot < SHARED_SLOTS; slot += step)
        operations += bench_block_free(atomic_exchange(&shared[slot], NULL));
    return operations;
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 5,
        "[PHASES] [THREADS] [BLOCKS] [LARGE] [SEED]\n"
        "  mixed lifetimes, dying threads (default 40 4 20000 0 42); LARGE per mille of blocks of 64 KiB-1 MiB");
    uint64_t phases = bench_argument(argc, argv, 1, "PHASES", 40, 0, UINT64_MAX);
    unsigned threads = (unsigned)bench_argument(argc, argv, 2, "THREADS", 4, 1, THREADS_MOST);
    blocks_each = bench_argument(argc, argv, 3, "BLOCKS", 20000, 0, UINT64_MAX);
    large_permille = (uint32_t)bench_argument(argc, argv, 4, "LARGE", 0, 0, 1000);
    uint64_t seed = bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX);
    uint64_t operations = 0;
    struct bench_run bench;

    bench_begin(&bench, "phases");
    for (uint64_t phase = 0; phase < phases; phase++) {
        for (unsigned i = 0; i < threads; i++) {
            workers[i].random = bench_seed(seed, phase * threads + i);
            int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
            if (error != 0)
                bench_fail("pthread_create: %s", strerror(error));
        }
        for (unsigned i = 0; i < threads; i++)
            pthread_join(workers[i].thread, NULL);
        if (phase % 4 == 3)
            operations += free_shared(2);
    }
    operations += free_shared(1);
    for (unsigned i = 0; i < threads; i++)
        operations += workers[i].operations;
    bench_end(&bench, operations);
    bench_report(&bench);
    return 0;
}
