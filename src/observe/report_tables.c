#include "observe/report_tables.h"

#include <errno.h>

#include "base/format.h"
#include "observe/counters.h"
#include "observe/stats.h"

enum { BOUND_ROOM = 32 };

/* part / whole, in tenths. */
static uint64_t tenths(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : part * 10 / whole;
}

/* The share of hits, if the lower bound is close enough to tell it. */
static void bound_text(char text[static BOUND_ROOM], uint64_t share)
{
    text[0] = '\0';
    if (stats_bound_tells(share))
        base_format(text, BOUND_ROOM, ", %lu.%02lu %% of all", share / 100, share % 100);
}

void report_front_lines(struct output *output, const struct hak_stats *totals)
{
    uint64_t refill = tenths(totals->refilled_blocks, totals->refills);
    uint64_t flush = tenths(totals->flushed_blocks, totals->flushes);
    char mallocs[BOUND_ROOM], frees[BOUND_ROOM];

    bound_text(mallocs, totals->malloc_coverage_min);
    bound_text(frees, totals->free_coverage_min);
    output_line(output,
                "thread caches: %lu refills of %lu blocks (%lu.%lu each), %lu flushes of %lu blocks (%lu.%lu each)",
                totals->refills, totals->refilled_blocks, refill / 10, refill % 10, totals->flushes,
                totals->flushed_blocks, flush / 10, flush % 10);
    output_line(output, "fast path: at least %lu mallocs%s (%lu missed), and %lu frees%s (%lu overflowed)",
                totals->malloc_hits_min, mallocs, totals->malloc_misses, totals->free_hits_min, frees,
                totals->free_overflows);
}

void report_warm_lines(struct output *output, const struct hak_stats *totals)
{
    uint64_t hits = stats_share(totals->warm_hits, totals->warm_misses) / 10;

    output_line(output, "warm pool: %lu hits, %lu misses (%lu.%lu %% hits), %lu slabs prefilled", totals->warm_hits,
                totals->warm_misses, hits / 10, hits % 10, totals->warm_prefilled);
}

void report_lru_lines(struct output *output, const struct hak_stats *totals)
{
    output_line(output, "LRU of empty SuperSlabs: %lu entered (%lu of them prewarmed), %lu used again, %lu purged, "
                "%lu are in it", totals->lru_entered, totals->prewarmed, totals->lru_reused, totals->lru_purged,
                totals->lru_entered - totals->lru_reused - totals->lru_purged);
}

/* ---- Tables ---- */

void report_front_table(struct output *output)
{
    struct stats_shot *shot = stats_take();

    if (shot == NULL) {
        output_fail(output, ENOMEM);
        return;
    }
    report_front_lines(output, &shot->totals);
    output_line(output, "%10s %12s %12s %12s %12s %12s %12s %12s", "block size", "misses", "refilled", "overflows",
                "flushed", "hits malloc", "hits free", "cached");
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct hak_stats_class *row = &shot->classes[class];
        if (stats_class_is_used(row))
            output_line(output, "%10lu %12lu %12lu %12lu %12lu %12lu %12lu %12lu", row->block_size, row->malloc_misses,
                        row->refilled_blocks, row->free_overflows, row->flushed_blocks, row->malloc_hits_min,
                        row->free_hits_min, row->cached_blocks);
    }
    stats_give(shot);
}

void report_warm_table(struct output *output)
{
    struct stats_shot *shot = stats_take();

    if (shot == NULL) {
        output_fail(output, ENOMEM);
        return;
    }
    report_warm_lines(output, &shot->totals);
    output_line(output, "%10s %12s %12s %12s %12s", "block size", "carved", "released", "slabs", "free blocks");
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct hak_stats_class *row = &shot->classes[class];
        if (row->slabs_carved)
            output_line(output, "%10lu %12lu %12lu %12lu %12lu", row->block_size, row->slabs_carved,
                        row->slabs_released, row->slabs, row->free_blocks);
    }
    stats_give(shot);
}

void report_lru_table(struct output *output)
{
    struct stats_shot *shot = stats_take();

    if (shot == NULL) {
        output_fail(output, ENOMEM);
        return;
    }
    report_lru_lines(output, &shot->totals);
    stats_give(shot);
}

/* One line with the classes that have counts of a counter. */
static void report_debug_classes(struct output *output, enum debug_counter which)
{
    unsigned shown = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (debug_counter_of(which, class))
            output_print(output, "%s%zu: %lu", shown++ ? ", " : output->prefix, class_size(class),
                         (unsigned long)debug_counter_of(which, class));
    if (shown)
        output_print(output, "\n");
}

void report_debug_table(struct output *output)
{
    if (!HAK_DEBUG_COUNTERS) {
        output_line(output, "HAKMEM_DEBUG_COUNTERS: this build carries no debug counters; "
                            "make EXTRA_CFLAGS=-DHAKMEM_DEBUG_COUNTERS=1 builds them in");
        return;
    }
    output_line(output, "debug counters that are not 0; below each, block sizes and their counts");
    for (unsigned which = 0; which < DEBUG_COUNTERS; which++) {
        if (debug_counter_sum(which) == 0)
            continue;
        output_line(output, "%-22s %12lu  %s", debug_counter_names[which].name, (unsigned long)debug_counter_sum(which),
                    debug_counter_names[which].help);
        report_debug_classes(output, which);
    }
}
