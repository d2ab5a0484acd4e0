/*
 * What HAKMEM says of the blocks that a program allocated: hits and misses by size class, and MF2's figures. The names
 * of hakmem/stats.h are weak here: on another allocator they are NULL, and the program has no such figures.
 */
#ifndef BENCH_POOL_FIGURES_H
#define BENCH_POOL_FIGURES_H

#include <hakmem/stats.h>

#include "common.h"

enum { POOL_CLASSES_MOST = 64 };

struct pool_figures {
    struct hak_stats stats;
    struct hak_stats_class classes[POOL_CLASSES_MOST];
    size_t classes_count;
};

/* Blocks of one size that the program allocated. A realloc that moves a block allocates one. */
struct pool_allocated {
    size_t size;
    uint64_t blocks;
};

/* The bytes of the block that malloc gives for `size`: on HAKMEM, those of its size class. */
size_t pool_block_size(size_t size);

/* Returns false on another allocator. */
bool pool_figures_read(struct pool_figures *figures);

/* Prints a line for each size class that has blocks of `sizes` sizes: the hits, which are the allocations that the
 * thread's cache served, and the misses. Puts their sums into the RESULT line as pool_hits and pool_misses. The program
 * has allocated nothing else of these classes between `before` and `after`. */
void pool_report_classes(struct bench_run *run, const struct pool_figures *before, const struct pool_figures *after,
                         const struct pool_allocated *allocated, unsigned sizes);

#endif
