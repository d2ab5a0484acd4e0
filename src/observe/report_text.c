/* All statistics as text: a screen. */
#include "observe/counters.h"
#include "observe/report.h"
#include "observe/report_tables.h"
#include "pool/registry.h"

enum { CLASSES_SHOWN = 12, HEAPS_SHOWN = 8, SUPERSLABS_SHOWN = 4 }; /* so that all fits one screen */

static void text_bytes(struct output *output, const char *name, uint64_t bytes, const char *meaning)
{
    output_line(output, "%-13s %15lu  %s", name, bytes, meaning);
}

static void text_memory(struct output *output, const struct hak_stats *totals)
{
    output_line(output, "memory in bytes: mapped = live + cached + free in slabs + retained + metadata");
    text_bytes(output, "mapped", totals->mapped, "committed address space");
    text_bytes(output, "peak", totals->footprint_peak,
               "most bytes of slabs, free units with memory and huge blocks at one time");
    text_bytes(output, "live", totals->live, "blocks that the program holds");
    text_bytes(output, "cached", totals->cached, "blocks in thread caches");
    text_bytes(output, "free in slabs", totals->free_in_slab, "free blocks and tails of slabs in use");
    text_bytes(output, "retained", totals->retained, "free units, spans and huge ranges kept");
    text_bytes(output, "metadata", totals->metadata, "HAKMEM's own");
    if (totals->heap_profile != 0)
        text_bytes(output, "heap profile", totals->heap_profile, "of metadata: the heap profile's tables");
    text_bytes(output, "purged", totals->purged, "of mapped: given back to the system, no longer resident");
    text_bytes(output, "huge", totals->huge.live_bytes, "of live: blocks above 1 MiB");
    if (totals->limit != 0)
        text_bytes(output, "limit", totals->limit, "above it allocation fails");
    text_bytes(output, "resident", totals->resident, "of the whole process");
    if (HAK_DEBUG)
        output_line(output, "%-13s %15lu  pages of slabs on which blocks were handed out", "touched",
                    totals->touched_pages);
    output_line(output,
                "%lu huge blocks, %lu heaps, %lu orphans, %lu SuperSlabs: %lu full, %lu hot, %lu draining, %lu empty",
                totals->huge.live_blocks, totals->heaps_live, totals->heaps_orphan, totals->superslabs,
                totals->superslabs_full, totals->superslabs_hot, totals->superslabs_draining, totals->superslabs_empty);
}

static void text_pool(struct output *output, const char *name, const struct hak_stats_pool *pool)
{
    if (pool->slabs || pool->free_bytes)
        output_line(output, "%12s %12lu %12lu %15lu %15lu %15lu", name, pool->slabs, pool->live_blocks,
                    pool->live_bytes, pool->cached_bytes, pool->free_bytes);
}

static void text_pools(struct output *output, const struct hak_stats *totals)
{
    output_line(output, "%12s %12s %12s %15s %15s %15s", "pool", "slabs", "live blocks", "live bytes", "cached bytes",
                "free bytes");
    text_pool(output, "small", &totals->small);
    text_pool(output, "medium", &totals->medium);
    text_pool(output, "spans", &totals->spans);
    text_pool(output, "huge", &totals->huge);
}

/* ---- The largest of many ---- */

static uint64_t class_bytes(const struct hak_stats_class *row)
{
    return row->block_size * (row->live_blocks + row->cached_blocks + row->free_blocks);
}

static void text_classes(struct output *output, const struct stats_shot *shot)
{
    unsigned in_use = 0;
    uint64_t shown = 0; /* bits of classes */

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        in_use += shot->classes[class].slabs != 0;
    if (in_use == 0)
        return;
    output_line(output, "%u size classes in use%s", in_use, in_use > CLASSES_SHOWN ? "; those that hold most:" : ":");
    output_line(output, "%12s %12s %12s %12s %12s", "block size", "slabs", "live", "cached", "free");
    for (unsigned i = 0; i < base_min(in_use, CLASSES_SHOWN); i++) {
        const struct hak_stats_class *row;
        unsigned largest = 0;
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            if (shot->classes[class].slabs && !((shown >> class) & 1) &&
                (largest == 0 || class_bytes(&shot->classes[class]) > class_bytes(&shot->classes[largest])))
                largest = class;
        shown |= UINT64_C(1) << largest;
        row = &shot->classes[largest];
        output_line(output, "%12lu %12lu %12lu %12lu %12lu", row->block_size, row->slabs, row->live_blocks,
                    row->cached_blocks, row->free_blocks);
    }
}

static void text_heaps(struct output *output, struct usage_count *count_room)
{
    static const char *const kinds[] = { "thread", "house", "first-class", "profile", "shared", "long-lived" };
    struct hak_stats_heap rows[HEAPS_SHOWN], row;
    size_t count = 0, all = 0;

    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
        size_t at;
        stats_heap(&row, heap, count_room);
        all += row.slabs != 0 || row.live;
        if (row.slabs == 0 && !row.live)
            continue;
        /* Keeps the rows sorted by bytes of slabs, and drops the least. */
        for (at = count; at > 0 && rows[at - 1].slab_bytes < row.slab_bytes; at--)
            if (at < HEAPS_SHOWN)
                rows[at] = rows[at - 1];
        if (at < HEAPS_SHOWN)
            rows[at] = row;
        count += count < HEAPS_SHOWN;
    }
    output_line(output, "%zu heaps in use or with slabs%s", all, all > count ? "; those that hold most:" : ":");
    output_line(output, "%6s %8s %-11s %14s %14s %14s %12s %12s %8s", "heap", "thread", "kind", "slab bytes", "used",
                "cached", "remote out", "remote in", "pending");
    for (size_t i = 0; i < count; i++)
        output_line(output, "%6lu %8lu %-11s %14lu %14lu %14lu %12lu %12lu %8lu%s", rows[i].number, rows[i].thread,
                    kinds[rows[i].kind], rows[i].slab_bytes, rows[i].used_bytes, rows[i].cached_bytes,
                    rows[i].remote_out, rows[i].remote_in, rows[i].pending,
                    rows[i].live || rows[i].kind ? "" : "  ended");
}

static void text_superslabs(struct output *output)
{
    static const char *const tiers[] = { "full", "hot", "draining", "empty" };
    struct hak_stats_superslab row;
    uint32_t number = 0;

    output_line(output, "%12s %9s %12s %12s %12s %12s", "SuperSlab", "tier", "used units", "free units", "dirty",
                "classes");
    for (unsigned i = 0; i < SUPERSLABS_SHOWN && stats_superslab(&row, &number); i++)
        output_line(output, "%12lu %9s %12lu %12lu %12lu %12u", row.number, tiers[row.tier], row.used_units,
                    row.free_units, row.dirty_units, base_count_bits(row.classes));
    if (stats_superslab(&row, &number))
        output_line(output, "%12s (JSON has all)", "...");
}

/* ---- All ---- */

static void text_counters(struct output *output, const struct hak_stats *totals)
{
    output_line(output, "slabs: %lu carved, %lu adopted, %lu released", totals->slabs_carved, totals->slabs_adopted,
                totals->slabs_released);
    output_line(output, "remote frees: %lu blocks sent, %lu collected, %lu under the owner's lock; %lu slabs enqueued, "
                "%lu drained, %lu requeued, %lu pending", totals->remote_out, totals->remote_in, totals->remote_locked,
                totals->pending_enqueued, totals->pending_drained, totals->pending_requeued, totals->pending);
    report_front_lines(output, totals);
    report_warm_lines(output, totals);
    report_lru_lines(output, totals);
    output_line(output, "huge blocks: %lu allocated (%lu out of freed ranges), %lu freed", totals->huge_allocated,
                totals->huge_reused, totals->huge_freed);
    output_line(output,
                "page faults: %lu soft (%lu since the last report), %lu hard (%lu); resident %ld since the start, "
                "%ld since the last report",
                totals->faults_soft, totals->faults_soft_recent, totals->faults_hard, totals->faults_hard_recent,
                (long)totals->resident_change, (long)totals->resident_change_recent);
}

void report_text(struct output *output, struct stats_shot *shot)
{
    text_memory(output, &shot->totals);
    text_pools(output, &shot->totals);
    text_classes(output, shot);
    text_heaps(output, &shot->count);
    text_superslabs(output);
    text_counters(output, &shot->totals);
}
