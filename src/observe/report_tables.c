#include "observe/report_tables.h"

#include "observe/counters.h"
#include "observe/stats.h"
#include "superslab/shared_pool.h"

/* part / whole, in tenths. */
static uint64_t tenths(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : part * 10 / whole;
}

void report_front_lines(struct output *output, const struct hak_stats *totals)
{
    uint64_t refill = tenths(totals->refilled_blocks, totals->refills);
    uint64_t flush = tenths(totals->flushed_blocks, totals->flushes);

    output_line(output,
                "thread caches: %lu refills of %lu blocks (%lu.%lu each), %lu flushes of %lu blocks (%lu.%lu each)",
                totals->refills, totals->refilled_blocks, refill / 10, refill % 10, totals->flushes,
                totals->flushed_blocks, flush / 10, flush % 10);
    if (hak_options.front_stats)
        output_line(output,
                    "fast path: %lu mallocs hit, %lu missed (%lu.%02lu %% hits); %lu frees hit, %lu overflowed "
                    "(%lu.%02lu %%)",
                    totals->malloc_hits, totals->malloc_misses, totals->malloc_coverage / 100,
                    totals->malloc_coverage % 100, totals->free_hits, totals->free_overflows,
                    totals->free_coverage / 100, totals->free_coverage % 100);
    else
        output_line(output,
                    "fast path: %lu mallocs missed, %lu frees overflowed; HAKMEM_FRONT_STATS=1 counts hits, too",
                    totals->malloc_misses, totals->free_overflows);
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

static void part_line(struct output *output, const char *part, uint64_t hits, uint64_t misses, const char *meaning)
{
    uint64_t share = stats_share(hits, misses);

    if (hits + misses)
        output_line(output, "%-22s %14lu %12lu %4lu.%02lu %%  %s", part, hits, misses, share / 100, share % 100,
                    meaning);
}

static uint64_t less(uint64_t all, uint64_t part) { return all - base_min(part, all); }

/* Each part serves what the part above it missed. */
static void report_parts(struct output *output, const struct stats_shot *shot)
{
    const struct heap_counters *counters = &shot->count.counters;
    const struct hak_stats *totals = &shot->totals;
    uint64_t spans[4] = { 0 }, taken, made = less(totals->superslabs, totals->prewarmed);

    for (unsigned class = CLASS_SPAN_1; class < CLASS_COUNT; class++) {
        spans[0] += shot->classes[class].malloc_hits;
        spans[1] += shot->classes[class].malloc_misses;
        spans[2] += shot->classes[class].free_hits;
        spans[3] += shot->classes[class].free_overflows;
    }
    lock_acquire(&shared_pool.lock);
    taken = shared_pool.slabs_taken;
    lock_release(&shared_pool.lock);
    output_line(output, "%-22s %14s %12s %9s", "part", "hits", "misses", "rate");
    part_line(output, "thread caches, malloc", totals->malloc_hits, totals->malloc_misses, "a miss is a refill");
    part_line(output, "of these, spans", spans[0], spans[1], "blocks of 64 KiB to 1 MiB");
    part_line(output, "thread caches, free", totals->free_hits, totals->free_overflows, "a miss found the stack full");
    part_line(output, "of these, spans freed", spans[2], spans[3], "");
    part_line(output, "slabs", less(totals->refills, counters->slab_misses), counters->slab_misses,
              "refills; a miss needs another slab");
    part_line(output, "reserve (warm pool)", totals->warm_hits, totals->warm_misses,
              "slabs; a miss asks the shared pool");
    part_line(output, "shared pool", less(taken, made), made, "slabs; a miss makes a SuperSlab");
    part_line(output, "huge blocks", totals->huge_reused, less(totals->huge_allocated, totals->huge_reused),
              "a miss maps memory");
}

void report_front_table(struct output *output, const struct stats_shot *shot)
{
    report_front_lines(output, &shot->totals);
    report_parts(output, shot);
    output_line(output, "%10s %14s %12s %9s %14s %12s %9s %12s %12s %10s", "block size", "malloc hits", "misses",
                "rate", "free hits", "overflows", "rate", "refilled", "flushed", "cached");
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct hak_stats_class *row = &shot->classes[class];
        uint64_t mallocs = stats_share(row->malloc_hits, row->malloc_misses);
        uint64_t frees = stats_share(row->free_hits, row->free_overflows);
        if (stats_class_is_used(row))
            output_line(output, "%10lu %14lu %12lu %4lu.%02lu %% %14lu %12lu %4lu.%02lu %% %12lu %12lu %10lu",
                        row->block_size, row->malloc_hits, row->malloc_misses, mallocs / 100, mallocs % 100,
                        row->free_hits, row->free_overflows, frees / 100, frees % 100, row->refilled_blocks,
                        row->flushed_blocks, row->cached_blocks);
    }
}

void report_warm_table(struct output *output, const struct stats_shot *shot)
{
    report_warm_lines(output, &shot->totals);
    output_line(output, "%10s %12s %12s %12s %12s", "block size", "carved", "released", "slabs", "free blocks");
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct hak_stats_class *row = &shot->classes[class];
        if (row->slabs_carved)
            output_line(output, "%10lu %12lu %12lu %12lu %12lu", row->block_size, row->slabs_carved,
                        row->slabs_released, row->slabs, row->free_blocks);
    }
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
