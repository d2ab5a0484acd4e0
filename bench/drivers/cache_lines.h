/*
 * The worker that cache_scratch and cache_thrash share. It holds one small block at a time: it allocates the block,
 * adds one to each of its bytes WRITES times, checks them and frees it. Alone in its cache lines, a block costs only
 * the writes. Beside another thread's block, each write takes the line away from the other processor.
 */
#ifndef BENCH_CACHE_LINES_H
#define BENCH_CACHE_LINES_H

#include "common.h"

enum { CACHE_LINE = 64, CACHE_SIZE_MOST = 4096 };

struct cache_worker {
    uint64_t iterations, writes;
    uint32_t size;
    unsigned char first;
    void *handed;
    uintptr_t last;
} __attribute__((aligned(2 * CACHE_LINE)));

/* Fills a block with `first`, adds one to its bytes `writes` times, and checks the result. */
static inline void cache_block_work(volatile unsigned char *block, uint32_t size, unsigned char first, uint64_t writes)
{
    for (uint32_t at = 0; at < size; at++)
        block[at] = first;
    for (uint64_t write = 0; write < writes; write++)
        for (uint32_t at = 0; at < size; at++)
            block[at]++;
    for (uint32_t at = 0; at < size; at++)
        if (block[at] != (unsigned char)(first + writes))
            bench_fail("a block of %u bytes lost its contents at byte %u", size, at);
}

static inline void *cache_block_new(uint32_t size)
{
    void *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%u) failed", size);
    return block;
}

/* Body of a thread: 2 * iterations operations, and one more if it was handed a block, which it uses and frees first. */
static inline void cache_worker_main(void *argument)
{
    struct cache_worker *worker = argument;

    if (worker->handed != NULL) {
        cache_block_work(worker->handed, worker->size, worker->first, worker->writes);
        free(worker->handed);
    }
    for (uint64_t i = 0; i < worker->iterations; i++) {
        void *block = cache_block_new(worker->size);
        cache_block_work(block, worker->size, (unsigned char)(worker->first + i), worker->writes);
        worker->last = (uintptr_t)block;
        free(block);
    }
}

/* The number of workers whose last block shares a cache line with another worker's last block. */
static inline unsigned cache_shared_lines(const struct cache_worker *workers, unsigned count)
{
    unsigned sharing = 0;
    for (unsigned i = 0; i < count; i++) {
        bool shared = false;
        for (unsigned k = 0; k < count; k++)
            shared = shared ||
                     (k != i && workers[k].last / CACHE_LINE <= (workers[i].last + workers[i].size - 1) / CACHE_LINE &&
                      workers[i].last / CACHE_LINE <= (workers[k].last + workers[k].size - 1) / CACHE_LINE);
        sharing += shared;
    }
    return sharing;
}

#endif
