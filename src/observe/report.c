/* Statistics as text: usage.h's figures and the heaps' counters in lines. */
#include "observe/report.h"

#include "base/format.h"
#include "observe/usage.h"
#include "options/options.h"
#include "pool/registry.h"

enum {
    ROWS_MOST = 128,
    ROWS_SHOWN = 12, /* so that all fits one screen */
};

static void report_line(const char *name, size_t bytes, const char *meaning)
{
    base_message("%-13s %15zu  %s", name, bytes, meaning);
}

static size_t row_bytes(const struct usage_class *row)
{
    return row->block_size * (row->live_blocks + row->free_blocks);
}

/* Moves the rows that hold most to the front. */
static void sort_largest(struct usage_class *rows, size_t count, size_t wanted)
{
    for (size_t i = 0; i < wanted; i++) {
        size_t largest = i;
        for (size_t j = i + 1; j < count; j++)
            if (row_bytes(&rows[j]) > row_bytes(&rows[largest]))
                largest = j;
        struct usage_class row = rows[largest];
        rows[largest] = rows[i];
        rows[i] = row;
    }
}

static void report_classes(void)
{
    struct usage_class rows[ROWS_MOST];
    size_t count = base_min(observe_usage_classes(rows, ROWS_MOST), ROWS_MOST);
    size_t shown = base_min(count, ROWS_SHOWN);
    if (count == 0)
        return;
    sort_largest(rows, count, shown);
    base_message("%zu size classes in use%s", count, shown < count ? "; those that hold most:" : ":");
    base_message("%12s %12s %12s %12s", "block size", "slabs", "live", "free");
    for (size_t i = 0; i < shown; i++)
        base_message("%12zu %12zu %12zu %12zu", rows[i].block_size, rows[i].slabs, rows[i].live_blocks,
                     rows[i].free_blocks);
}

void observe_report(void)
{
    struct usage usage;
    observe_usage(&usage);
    base_message("memory in bytes: mapped = live + cached + free in slabs + retained + metadata");
    report_line("mapped", usage.mapped, "committed address space");
    report_line("peak", usage.footprint_peak, "most bytes of slabs, free units with memory and huge blocks at one time");
    report_line("live", usage.live, "blocks that the program holds");
    report_line("cached", usage.cached, "blocks in thread caches");
    report_line("free in slabs", usage.free_in_slab, "free blocks and tails of slabs in use");
    report_line("retained", usage.retained, "free units, spans and huge ranges kept");
    report_line("metadata", usage.metadata, "HAKMEM's own");
    report_line("purged", usage.purged, "of mapped: given back to the system, no longer resident");
    report_line("huge", usage.huge_live, "of live: blocks above 1 MiB");
    if (usage.limit_hard != 0)
        report_line("limit", usage.limit_hard, "above it allocation fails");
    base_message("%zu huge blocks, %zu SuperSlabs, %zu heaps", usage.huge_blocks, usage.superslabs, usage.heaps);
    report_classes();
}

/* ---- Counters, summed over all heaps; they count since each was made, and heaps are never freed (O3) ---- */

static struct heap_counters counters_of_all(void)
{
    struct heap_counters sum = { 0 };
    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap != NULL; heap = heap->next) {
        lock_acquire(&heap->lock);
        struct heap_counters one = heap->counters;
        lock_release(&heap->lock);
        sum.refills += one.refills;
        sum.refilled_blocks += one.refilled_blocks;
        sum.flushes += one.flushes;
        sum.flushed_blocks += one.flushed_blocks;
        sum.warm_hits += one.warm_hits;
        sum.warm_misses += one.warm_misses;
        sum.warm_prefilled += one.warm_prefilled;
        sum.slabs_carved += one.slabs_carved;
        sum.slabs_adopted += one.slabs_adopted;
        sum.slabs_released += one.slabs_released;
        sum.remote_blocks += one.remote_blocks;
        sum.pending_drained += one.pending_drained;
        sum.pending_requeued += one.pending_requeued;
    }
    return sum;
}

/* part / whole in tenths. */
static uint64_t tenths(uint64_t part, uint64_t whole, unsigned scale)
{
    return whole == 0 ? 0 : part * 10 * scale / whole;
}

static void report_front(const struct heap_counters *counters)
{
    uint64_t refill = tenths(counters->refilled_blocks, counters->refills, 1);
    uint64_t flush = tenths(counters->flushed_blocks, counters->flushes, 1);
    base_message("thread caches: %lu refills of %lu blocks (%lu.%lu each), %lu flushes of %lu blocks (%lu.%lu each)",
                 counters->refills, counters->refilled_blocks, refill / 10, refill % 10, counters->flushes,
                 counters->flushed_blocks, flush / 10, flush % 10);
}

static void report_warm_pool(const struct heap_counters *counters)
{
    uint64_t hits = tenths(counters->warm_hits, counters->warm_hits + counters->warm_misses, 100);
    base_message("warm pool: %lu hits, %lu misses (%lu.%lu %% hits), %lu slabs prefilled", counters->warm_hits,
                 counters->warm_misses, hits / 10, hits % 10, counters->warm_prefilled);
}

static void report_slabs(const struct heap_counters *counters)
{
    base_message("slabs: %lu carved, %lu adopted, %lu released", counters->slabs_carved, counters->slabs_adopted,
                 counters->slabs_released);
    base_message("remote frees: %lu blocks collected, %lu slabs drained, %lu requeued", counters->remote_blocks,
                 counters->pending_drained, counters->pending_requeued);
}

void observe_exit_report(void)
{
    struct heap_counters counters = counters_of_all();
    if (hak_options.show_stats) {
        observe_report();
        report_slabs(&counters);
    }
    if (hak_options.show_stats || hak_options.front_stats)
        report_front(&counters);
    if (hak_options.show_stats || hak_options.warm_pool_stats)
        report_warm_pool(&counters);
    if (hak_options.debug_counters)
        base_message("HAKMEM_DEBUG_COUNTERS: this build carries no debug counters");
    if (hak_options.tiny_profile)
        base_message("HAKMEM_TINY_PROFILE: this build carries no cycle profile");
}
