/* Statistics as text: usage.h's figures in lines. */
#include "observe/report.h"

#include "base/format.h"
#include "observe/usage.h"
#include "options/options.h"

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
    report_line("peak", usage.live_peak, "highest mapped so far");
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

void observe_exit_report(void)
{
    if (hak_options.show_stats)
        observe_report();
}
