/* Programs that change all their block sizes at once: memory that waits for the old sizes serves the new ones, or
 * leaves before they grow (N2, superslab/footprint.h). */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <string.h>

#include "bounds.h"

#define LIVE (64 * MIB)

/* The lowest and highest size of each turn. */
static const struct {
    size_t low, high;
} turns[] = { { 16, 128 },          { 3 * MIB, 3 * MIB + KIB }, { KIB, 2 * KIB },      { 1200 * KIB, 1300 * KIB },
              { 100 * KIB, 900 * KIB }, { 16, 16 * KIB },        { MIB, 4 * MIB },      { 20 * KIB, 24 * KIB },
              { 2 * MIB, 5 * MIB },   { 64, 80 } };
enum { TURNS = sizeof turns / sizeof turns[0] };

/* Returns the live peak, by usable size. */
static size_t change_sizes(void)
{
    struct chance chance;
    size_t most = 0;

    chance_start(&chance, 1);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        struct chains chains = { .usable = 0 };
        chains_fill(&chains, &chance, LIVE, turns[turn].low, turns[turn].high, bounds_malloc, NULL);
        most = chains.usable > most ? chains.usable : most;
        chains_free(&chains);
    }
    return most;
}

void case_change_sizes(void)
{
    size_t start = bounds_start(), most;

    bounds_peak_reset();
    most = change_sizes();
    bounds_note("live peak, usable bytes", most);
    bounds_figure("peak above the start (1.27 x live peak + 10 MiB)", bounds_above(bounds_peak(), start),
                  most + most * 27 / 100 + 10 * MIB);
}

/* No block is refused, and the limit holds: 80 MiB above what the test held at its start. The peak counts other pages
 * of the process, too, and Linux adds pages up by CPU. */
void case_change_sizes_limited(void)
{
    size_t start = bounds_start();

    bounds_peak_reset();
    bounds_note("live peak, usable bytes", change_sizes());
    bounds_figure("peak above the start (80 MiB)", bounds_above(bounds_peak(), start), 81 * MIB);
}

/* Half stays live and half changes: a quarter of the peak and 8 MiB may wait, and a thread's cache pins slabs. Where
 * the last block of a turn is large, more is live than in the first turn. */
void case_change_half(void)
{
    static const size_t sizes[] = { 48, 3 * MIB, 1000, 1200 * KIB, 20 * KIB, 5 * MIB, 64 };
    struct chains kept = { .usable = 0 };
    struct chance chance;
    size_t start = bounds_start(), full = 0, first = 0, most = 0;

    chance_start(&chance, 2);
    bounds_peak_reset();
    chains_fill(&kept, &chance, LIVE / 2, 16, 32 * KIB, bounds_malloc, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct chains chains = { .usable = 0 };
        chains_fill(&chains, &chance, LIVE / 2, sizes[i], sizes[i] + 16, bounds_malloc, NULL);
        if (i == 0) {
            full = bounds_above(support_rss(), start);
            first = chains.usable;
        }
        most = chains.usable > most ? chains.usable : most;
        chains_free(&chains);
    }
    chains_free(&kept);
    full += most - first;
    bounds_note("held when most is live", full);
    bounds_figure("peak above the start (1.27 x that + 8 MiB + the cache)", bounds_above(bounds_peak(), start),
                  full + full * 27 / 100 + 10 * MIB + 6 * CACHE_BYTES);
}
