/* See pool_figures.h. */
#define _GNU_SOURCE
#include "pool_figures.h"

#include <malloc.h>
#include <unistd.h>

#pragma weak hak_stats_get
#pragma weak hak_stats_classes

bool pool_figures_read(struct pool_figures *figures)
{
    if (hak_stats_get == NULL || hak_stats_classes == NULL)
        return false;
    if (hak_stats_get(&figures->stats, sizeof figures->stats) == 0)
        bench_fail("hak_stats_get failed");
    figures->classes_count = hak_stats_classes(figures->classes, sizeof figures->classes[0], POOL_CLASSES_MOST);
    return true;
}

size_t pool_block_size(size_t size)
{
    void *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    size_t usable = malloc_usable_size(block);
    free(block);
    return usable;
}

static uint64_t misses_of(const struct pool_figures *figures, size_t block_size)
{
    for (size_t i = 0; i < figures->classes_count; i++)
        if (figures->classes[i].block_size == block_size)
            return figures->classes[i].malloc_misses;
    return 0;
}

void pool_report_classes(struct bench_run *run, const struct pool_figures *before, const struct pool_figures *after,
                         const struct pool_allocated *allocated, unsigned sizes)
{
    uint64_t hits_sum = 0, misses_sum = 0;
    size_t classes[POOL_CLASSES_MOST];

    for (unsigned i = 0; i < sizes; i++)
        classes[i] = pool_block_size(allocated[i].size);
    for (unsigned i = 0; i < sizes; i++) {
        uint64_t blocks = 0, misses = misses_of(after, classes[i]) - misses_of(before, classes[i]);
        bool first = true;
        for (unsigned j = 0; j < sizes; j++) {
            if (classes[j] != classes[i])
                continue;
            first &= j >= i;
            blocks += allocated[j].blocks;
        }
        if (!first)
            continue;
        dprintf(STDOUT_FILENO, "  pool: %7zu B: %llu hits, %llu misses\n", classes[i],
                (unsigned long long)(blocks - misses), (unsigned long long)misses);
        hits_sum += blocks - misses;
        misses_sum += misses;
    }
    bench_extra(run, "pool_hits", hits_sum);
    bench_extra(run, "pool_misses", misses_sum);
}
