/* Memory bounds of one thread, by sizes. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <string.h>

#include "bounds.h"
#include "usage_check.h"

/* ---- Free it all and idle ---- */

static void free_and_idle(size_t total, size_t low, size_t high)
{
    struct chains chains = { .usable = 0 };
    struct chance chance;
    size_t start = bounds_start();
    size_t held;

    chance_start(&chance, 1);
    chains_fill(&chains, &chance, total, low, high, bounds_malloc, NULL);
    held = support_rss();
    bounds_note("held while all blocks live", bounds_above(held, start));
    CHECK(held - start >= chains.asked, "the blocks are not resident");
    chains_free(&chains);
    bounds_note("held when all are freed", bounds_above(support_rss(), start));
    bounds_idle();
    hak_free(hak_malloc(64));
    bounds_note("held after twice the purge delay and one malloc(64)", bounds_above(support_rss(), start));
    bounds_handful();
    bounds_figure("resident after a handful of calls (5 % above the start + 4 MiB)", support_rss(),
                  start + start / 20 + 4 * MIB);
}

void case_gigabyte(void)
{
    free_and_idle(GIB, 16, KIB);
}

void case_spans(void)
{
    free_and_idle(512 * MIB, 33 * KIB, MIB);
}

void case_huge(void)
{
    free_and_idle(512 * MIB, MIB, 40 * MIB);
}

/* ---- A heap destroyed ---- */

static void *allocate_in_heap(void *heap, size_t size)
{
    return hak_heap_malloc(heap, size);
}

void case_heap_destroy(void)
{
    size_t start = bounds_start();
    struct usage before = usage_read("before the heap");
    struct usage after;

    for (unsigned round = 0; round < 3; round++) {
        hak_heap_t *heap = hak_heap_new();
        struct chains chains = { .usable = 0 };
        struct chance chance;

        CHECK(heap != NULL, "no heap");
        chance_start(&chance, round);
        chains_fill(&chains, &chance, 60 * MIB, 16, 32 * KIB, allocate_in_heap, heap);
        chains_fill(&chains, &chance, 120 * MIB, 32 * KIB, MIB, allocate_in_heap, heap);
        chains_fill(&chains, &chance, 200 * MIB, MIB, 8 * MIB, allocate_in_heap, heap);
        after = usage_read("with a full heap");
        CHECK(after.live - before.live == chains.usable, "live grew by %zu, the heap's blocks have %zu",
              after.live - before.live, chains.usable);
        hak_heap_destroy(heap);
        after = usage_read("after the heap");
        CHECK(after.live == before.live, "a destroyed heap leaves %zu bytes live", after.live - before.live);
    }
    bounds_note("held at once after three heaps of 200 MiB", bounds_above(support_rss(), start));
    bounds_idle();
    bounds_handful();
    bounds_figure("left by destroyed heaps after twice the purge delay", bounds_above(support_rss(), start), 2 * MIB);
}

/* ---- Sizes that shift ---- */

/* A fifth of the live bytes, drawn at random, is replaced in each round by blocks of sizes somewhat larger than the round before,
 * starting again with small ones after the largest. */
void case_shifting_sizes(void)
{
    enum { ROUNDS = 60, SLOTS = 1 << 22 };
    const size_t live_bytes = 64 * MIB;
    static struct {
        void **slots;
        size_t count;
        size_t usable;
    } set;
    struct chance chance;
    size_t low = 16;
    size_t start;
    size_t worst_at_rest = 0;

    chance_start(&chance, 1);
    set.slots = support_map(SLOTS * sizeof *set.slots);
    memset(set.slots, 0, SLOTS * sizeof *set.slots);
    for (size_t i = 0; i < SLOTS; i++) /* resident before the start is measured */
        set.slots[i] = &set;
    start = bounds_start();
    bounds_peak_reset();
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t goal = set.usable - set.usable / 5;
        size_t held;

        while (set.usable > goal && set.count > 0) {
            size_t victim = chance_below(&chance, set.count);
            set.usable -= hak_usable_size(set.slots[victim]);
            hak_free(set.slots[victim]);
            set.slots[victim] = set.slots[--set.count];
        }
        while (set.usable < live_bytes) {
            size_t size = chance_log(&chance, low, 4 * low);
            void *block = hak_malloc(size);

            CHECK(block != NULL && set.count < SLOTS, "no block of %zu bytes", size);
            memset(block, 0x5a, size);
            set.slots[set.count++] = block;
            set.usable += hak_usable_size(block);
        }
        held = bounds_above(support_rss(), start);
        worst_at_rest = held > worst_at_rest ? held : worst_at_rest;
        low = low * 13 / 10 + 1;
        if (low > 100 * KIB)
            low = 16;
    }
    bounds_note("live bytes", live_bytes);
    bounds_note("peak above the start", bounds_above(bounds_peak(), start));
    bounds_figure("most held after a round (1.5 x live)", worst_at_rest, live_bytes + live_bytes / 2);
    while (set.count > 0)
        hak_free(set.slots[--set.count]);
}
