/* Memory bounds of one thread, by block sizes. */
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

enum { SHIFT_ROUNDS = 80, SHIFT_SLOTS = 1 << 22 }; /* 64 MiB of 16-byte blocks at most */
#define SHIFT_LIVE (64 * MIB)

/* The live blocks in a ring, oldest first. */
struct live_set {
    void **slots;
    size_t first, count, usable;
};

static void **live_slot(const struct live_set *set, size_t index)
{
    return &set->slots[(set->first + index) % SHIFT_SLOTS];
}

/* Frees the oldest block, or a random block whose place the oldest takes. */
static void drop_one(struct live_set *set, struct chance *chance, bool oldest)
{
    void **victim = live_slot(set, oldest ? 0 : chance_below(chance, set->count));
    void *block = *victim;

    *victim = set->slots[set->first];
    set->first = (set->first + 1) % SHIFT_SLOTS;
    set->count--;
    set->usable -= hak_usable_size(block);
    hak_free(block);
}

static void add_one(struct live_set *set, size_t size)
{
    void *block = hak_malloc(size);

    CHECK(block != NULL && set->count < SHIFT_SLOTS, "no block of %zu bytes", size);
    memset(block, 0x5a, size);
    *live_slot(set, set->count++) = block;
    set->usable += hak_usable_size(block);
}

/*
 * Each round replaces a fifth of the live bytes by blocks from a window of sizes, whose highest is `width` times its
 * lowest. The window grows by `step` per cent a round and restarts at 16 bytes. Returns the most held after a round.
 */
static size_t shift_sizes(bool oldest, size_t width, size_t step)
{
    struct live_set set = { .slots = support_map(SHIFT_SLOTS * sizeof(void *)) };
    struct chance chance;
    size_t low = 16;
    size_t start;
    size_t most = 0;
    uint64_t sum = 0;

    chance_start(&chance, 1);
    for (size_t i = 0; i < SHIFT_SLOTS; i++) /* so that the slots are resident before the start is measured */
        set.slots[i] = &set;
    start = bounds_start();
    bounds_peak_reset();
    for (unsigned round = 0; round < SHIFT_ROUNDS; round++) {
        size_t goal = set.usable - set.usable / 5;
        size_t held;

        while (set.usable > goal)
            drop_one(&set, &chance, oldest);
        while (set.usable < SHIFT_LIVE)
            add_one(&set, chance_log(&chance, low, width * low));
        held = bounds_above(support_rss(), start);
        most = held > most ? held : most;
        sum += held;
        low += low * step / 100 + 1;
        if (low > 64 * KIB)
            low = 16;
    }
    bounds_note("live bytes", SHIFT_LIVE);
    bounds_note("peak above the start", bounds_above(bounds_peak(), start));
    bounds_note("mean held after a round", (size_t)(sum / SHIFT_ROUNDS));
    while (set.count > 0)
        drop_one(&set, &chance, true);
    support_unmap(set.slots, SHIFT_SLOTS * sizeof(void *));
    return most;
}

/* First in, first out: memory beyond the live bytes is the allocator's own doing. */
void case_shifting_sizes(void)
{
    bounds_figure("most held after a round (1.5 x live)", shift_sizes(true, 4, 30), SHIFT_LIVE + SHIFT_LIVE / 2);
}

/* Some blocks of each size live much longer and pin their slabs. An allocator that separates sizes cannot avoid that,
 * but can use the holes. glibc 2.36 holds 1.5 x live, jemalloc 5.3 1.8 x, mimalloc 2.0 3.0 x and tcmalloc-minimal 2.10
 * 4.0 x. */
void case_shifting_survivors(void)
{
    bounds_figure("most held after a round (3 x live)", shift_sizes(false, 64, 8), 3 * SHIFT_LIVE);
}
