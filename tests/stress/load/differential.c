/* Protects every way to allocate, free and resize, by threads that come and go: blocks and live bytes match a record.
 *
 * differential [--calls N] [--threads N] [--generations N] [--budget BYTES] [--seed N]
 *
 * Each seat has some thousand slots for blocks. A step picks a slot and an operation: allocate into it in any way, free
 * its block in any way, resize the block, swap it with another thread's, or make a call that leaves blocks alone
 * (collect, idle, failing requests, heaps). Threads end after their share of a generation, and new ones take their
 * seats. Between generations, when nothing runs, the allocator's live bytes must equal the record's exactly.
 */
#define _GNU_SOURCE
#include "differential.h"

#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage_check.h"

static const char *const option_names[] = { "calls", "threads", "generations", "budget", "seed", NULL };

size_t diff_budget;
static uint64_t steps_of_thread;

struct exchange_cell {
    pthread_mutex_t lock;
    struct diff_slot slot;
};
static struct exchange_cell *exchange;

/* ---- Draws ---- */

size_t diff_draw_size(struct chance *chance)
{
    size_t pick = chance_below(chance, 1000);
    size_t live = block_live_bytes();
    size_t left = live < diff_budget ? diff_budget - live : 0;
    size_t size;

    if (pick < 620)
        size = chance_log(chance, 0, KIB);
    else if (pick < 930)
        size = chance_log(chance, 1, 32 * KIB);
    else if (pick < 990)
        size = chance_log(chance, 32 * KIB, MIB);
    else
        size = chance_log(chance, MIB, 40 * MIB);
    return size > KIB && size > left / 4 ? size % KIB : size;
}

size_t diff_draw_alignment(struct chance *chance)
{
    unsigned shift = chance_is(chance, 900) ? (unsigned)chance_below(chance, 13) : (unsigned)chance_below(chance, 23);

    return (size_t)1 << shift;
}

/* ---- Ways to allocate ---- */

static void adopt(struct diff_seat *seat, struct diff_slot *slot, void *start, size_t size, size_t alignment,
                  enum diff_origin origin)
{
    slot->origin = origin;
    block_adopt(&slot->block, start, size, alignment, chance_next(&seat->chance));
}

/* With guards on, a block may have exactly the requested bytes. */
static bool may_be_guarded(size_t usable, size_t size)
{
    const char *guards = getenv("HAKMEM_GUARD");

    return guards && *guards == '1' && usable == (size ? size : 1);
}

static void fill_malloc(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t size = diff_draw_size(&seat->chance);
    size_t good = hak_good_size(size);

    adopt(seat, slot, hak_malloc(size), size, 1, DIFF_PLAIN);
    CHECK(good >= size && (good == slot->block.usable || may_be_guarded(slot->block.usable, size)),
          "good size of %zu is %zu, the block's usable size %zu", size, good, slot->block.usable);
    CHECK(hak_good_size(good) == good, "good size of good size %zu is %zu", good, hak_good_size(good));
    seat->calls += 4;
}

static void fill_calloc(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t size = diff_draw_size(&seat->chance);
    size_t count = size == 0 ? chance_below(&seat->chance, 3) : 1 + chance_below(&seat->chance, 8);
    size_t each = size / (count == 0 ? 1 : count);
    void *start = hak_calloc(count, each);

    CHECK(start != NULL, "calloc(%zu, %zu)", count, each);
    block_check_zero(start, count * each);
    adopt(seat, slot, start, count * each, 1, DIFF_PLAIN);
    seat->calls += 2;
}

static void fill_aligned(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t alignment = diff_draw_alignment(&seat->chance);
    size_t size = diff_draw_size(&seat->chance);

    adopt(seat, slot, hak_aligned_alloc(alignment, size), size, alignment, DIFF_ALIGNED);
    seat->calls += 2;
}

static void fill_posix_memalign(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t alignment = diff_draw_alignment(&seat->chance);
    size_t size = diff_draw_size(&seat->chance);
    void *start = NULL;
    int result;

    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    errno = 77;
    result = hak_posix_memalign(&start, alignment, size);
    CHECK(result == 0 && errno == 77, "posix_memalign(%zu, %zu) gives %d", alignment, size, result);
    adopt(seat, slot, start, size, alignment, DIFF_OTHER);
    seat->calls += 2;
}

static void fill_realloc(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t size = diff_draw_size(&seat->chance);
    bool array = chance_is(&seat->chance, 300);

    adopt(seat, slot, array ? hak_reallocarray(NULL, size, 1) : hak_realloc(NULL, size), size, 1, DIFF_PLAIN);
    seat->calls += 2;
}

static void fill_at_site(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t size = diff_draw_size(&seat->chance);
    const void *site = chance_is(&seat->chance, 500) ? NULL : (const void *)(uintptr_t)&fill_at_site;

    adopt(seat, slot, hak_alloc_at(size, site), size, 1, DIFF_PLAIN);
    seat->calls += 2;
}

static void fill_batch(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t count = 1 + chance_below(&seat->chance, DIFF_BATCH);
    size_t first = (size_t)(slot - seat->slots);
    size_t size = diff_draw_size(&seat->chance);
    void *blocks[DIFF_BATCH];
    size_t empty = 0;
    size_t used = 0;
    size_t got;

    if (size > 64 * KIB)
        size %= 64 * KIB;
    for (size_t i = 0; i < count; i++)
        empty += seat->slots[(first + i) % DIFF_SLOTS].block.start == NULL;
    got = hak_malloc_batch(size, empty, blocks);
    CHECK(got == empty, "a batch of %zu blocks of %zu bytes has %zu", empty, size, got);
    for (size_t i = 0; i < count; i++) {
        struct diff_slot *at = &seat->slots[(first + i) % DIFF_SLOTS];
        if (at->block.start == NULL)
            adopt(seat, at, blocks[used++], size, 1, DIFF_PLAIN);
    }
    seat->calls += 1 + empty;
}

static void fill_heap(struct diff_seat *seat, struct diff_slot *slot)
{
    diff_heaps_step(seat, slot);
}

/* ---- Ways to free ---- */

static void empty_free(struct diff_seat *seat, struct diff_slot *slot)
{
    errno = 1234;
    hak_free(block_release(&slot->block));
    CHECK(errno == 1234, "free changed errno");
    seat->calls += 2;
}

static void empty_sized(struct diff_seat *seat, struct diff_slot *slot)
{
    if (slot->origin == DIFF_PLAIN)
        hak_free_sized(block_release(&slot->block), slot->block.size);
    else if (slot->origin == DIFF_ALIGNED)
        hak_free_aligned_sized(block_release(&slot->block), slot->block.alignment, slot->block.size);
    else
        hak_free(block_release(&slot->block));
    seat->calls += 2;
}

static void empty_batch(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t count = 1 + chance_below(&seat->chance, DIFF_BATCH);
    size_t first = (size_t)(slot - seat->slots);
    void *blocks[DIFF_BATCH];
    void *kept[DIFF_BATCH];

    for (size_t i = 0; i < count; i++) {
        struct diff_slot *at = &seat->slots[(first + i) % DIFF_SLOTS];
        blocks[i] = at->block.start == NULL ? NULL : block_release(&at->block);
        seat->calls += blocks[i] != NULL;
    }
    memcpy(kept, blocks, count * sizeof blocks[0]);
    hak_free_batch(blocks, count);
    CHECK(memcmp(kept, blocks, count * sizeof blocks[0]) == 0, "free_batch changed its array");
    seat->calls++;
}

static void empty_by_realloc(struct diff_seat *seat, struct diff_slot *slot)
{
    CHECK(hak_realloc(block_release(&slot->block), 0) == NULL, "realloc(block, 0) gives a block");
    seat->calls += 2;
}

/* ---- Changes ---- */

static void change_realloc(struct diff_seat *seat, struct diff_slot *slot)
{
    struct block old = slot->block;
    size_t size = diff_draw_size(&seat->chance);
    size_t keep;
    void *start;

    if (chance_is(&seat->chance, 400)) /* slight growth, as of a vector or a string */
        size = old.usable + chance_below(&seat->chance, old.usable < MIB ? old.usable + 1 : MIB);
    if (size == 0)
        size = 1;
    block_release(&slot->block);
    if (chance_is(&seat->chance, 300))
        start = hak_reallocarray(old.start, 1, size);
    else
        start = hak_realloc(old.start, size);
    CHECK(start != NULL, "realloc from %zu to %zu", old.usable, size);
    keep = size < old.usable ? size : old.usable;
    block_verify_at(&old, start, keep);
    adopt(seat, slot, start, size, 1, DIFF_PLAIN);
    seat->calls += 3;
}

static void change_expand(struct diff_seat *seat, struct diff_slot *slot)
{
    struct block old = slot->block;
    size_t size = chance_is(&seat->chance, 300) ? chance_below(&seat->chance, old.usable + 1)
                                                : old.usable + chance_below(&seat->chance, old.usable + 1);
    size_t usable;
    size_t now;

    block_release(&slot->block);
    usable = hak_expand(old.start, size);
    now = hak_usable_size(old.start);
    CHECK(usable == 0 || usable >= size, "expand to %zu gives %zu", size, usable);
    CHECK(now == (usable == 0 ? old.usable : usable), "expand from %zu to %zu gives %zu, usable %zu", old.usable,
          size, usable, now);
    block_verify_at(&old, old.start, now < old.usable ? now : old.usable);
    adopt(seat, slot, old.start, usable == 0 ? old.size : size, old.alignment,
          usable == 0 ? slot->origin : DIFF_OTHER);
    seat->calls += 4;
}

static void change_exchange(struct diff_seat *seat, struct diff_slot *slot)
{
    struct exchange_cell *cell = &exchange[chance_below(&seat->chance, DIFF_EXCHANGE_CELLS)];
    struct diff_slot mine = *slot;

    pthread_mutex_lock(&cell->lock);
    *slot = cell->slot;
    cell->slot = mine;
    pthread_mutex_unlock(&cell->lock);
}

static void change_look(struct diff_seat *seat, struct diff_slot *slot)
{
    CHECK(hak_usable_size(slot->block.start) == slot->block.usable, "usable size of %p changed", 
          (void *)slot->block.start);
    CHECK(hak_heap_of(slot->block.start) == NULL, "%p is in a heap", (void *)slot->block.start);
    block_verify(&slot->block);
    seat->calls += 2;
}

static void call_collect(struct diff_seat *seat, struct diff_slot *slot)
{
    (void)slot;
    if (chance_is(&seat->chance, 20)) {
        if (chance_is(&seat->chance, 300))
            hak_thread_idle();
        else
            hak_collect(chance_is(&seat->chance, 300));
        seat->calls++;
    }
    hak_free(NULL);
    CHECK(hak_usable_size(NULL) == 0, "usable size of NULL");
    seat->calls += 2;
}

/* ---- The dice ---- */

typedef void (*diff_step)(struct diff_seat *seat, struct diff_slot *slot);
struct die {
    unsigned weight;
    diff_step step;
};

static const struct die dice_empty[] = {
    { 500, fill_malloc },          { 120, fill_calloc },  { 70, fill_aligned }, { 50, fill_posix_memalign },
    { 60, fill_realloc },          { 40, fill_at_site },  { 2, fill_batch },    { 60, fill_heap },
    { 40, diff_errors_step },      { 20, call_collect },  { 38, change_exchange },
};
static const struct die dice_full[] = {
    { 380, empty_free },      { 130, empty_sized },  { 3, empty_batch },   { 30, empty_by_realloc },
    { 130, change_realloc },  { 80, change_expand }, { 80, change_look },  { 60, fill_heap },
    { 30, diff_errors_step }, { 10, call_collect },  { 67, change_exchange },
};

static diff_step roll(struct chance *chance, const struct die *dice, size_t count)
{
    size_t pick = chance_below(chance, 1000);

    for (size_t i = 0; i < count; i++) {
        if (pick < dice[i].weight)
            return dice[i].step;
        pick -= dice[i].weight;
    }
    support_fail(__FILE__, __LINE__, "weights", "the weights of a die do not sum to 1000");
}

static void *run_seat(void *argument)
{
    struct diff_seat *seat = argument;

    for (uint64_t i = 0; i < steps_of_thread; i++) {
        struct diff_slot *slot = &seat->slots[chance_below(&seat->chance, DIFF_SLOTS)];
        if (slot->block.start == NULL)
            roll(&seat->chance, dice_empty, sizeof dice_empty / sizeof dice_empty[0])(seat, slot);
        else
            roll(&seat->chance, dice_full, sizeof dice_full / sizeof dice_full[0])(seat, slot);
    }
    return NULL;
}

/* ---- The run ---- */

int main(int argc, char **argv)
{
    uint64_t calls = support_option(argc, argv, "calls", 5000000);
    unsigned threads = (unsigned)support_option(argc, argv, "threads", 3);
    unsigned generations = (unsigned)support_option(argc, argv, "generations", 8);
    struct diff_seat *seats = support_map(threads * sizeof *seats);
    pthread_t *ids = support_map(threads * sizeof *ids);
    double start = support_seconds();
    uint64_t done = 0;
    struct usage usage;

    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    diff_budget = support_option(argc, argv, "budget", 300 * MIB);
    exchange = support_map(DIFF_EXCHANGE_CELLS * sizeof *exchange);
    for (size_t i = 0; i < DIFF_EXCHANGE_CELLS; i++)
        pthread_mutex_init(&exchange[i].lock, NULL);
    printf("differential --calls %llu --threads %u --generations %u --budget %zu --seed %llu\n",
           (unsigned long long)calls, threads, generations, diff_budget, (unsigned long long)support_seed);
    fflush(stdout);

    hak_free(hak_malloc(1));
    usage = usage_read("at the start");
    diff_heaps_start();
    /* A step makes about 3 calls. */
    steps_of_thread = calls / 3 / threads / generations;
    for (unsigned i = 0; i < threads; i++) {
        seats[i].index = i;
        chance_start(&seats[i].chance, i);
    }
    for (unsigned generation = 0; generation < generations; generation++) {
        for (unsigned i = 0; i < threads; i++)
            ids[i] = support_thread(run_seat, &seats[i]);
        for (unsigned i = 0; i < threads; i++)
            support_join(ids[i]);
        usage_check("between generations", usage.live);
    }
    diff_heaps_end();
    for (unsigned i = 0; i < threads; i++) {
        for (size_t k = 0; k < DIFF_SLOTS; k++) {
            if (seats[i].slots[k].block.start != NULL)
                empty_free(&seats[i], &seats[i].slots[k]);
        }
        done += seats[i].calls;
    }
    for (size_t i = 0; i < DIFF_EXCHANGE_CELLS; i++) {
        if (exchange[i].slot.block.start != NULL)
            empty_free(&seats[0], &exchange[i].slot);
    }
    CHECK(block_live_bytes() == 0 && block_live_count() == 0, "the test's own record is not empty");
    usage_check("at the end", usage.live);
    printf("%llu calls, at most %.1f MiB live, %.1f s\n", (unsigned long long)done,
           (double)block_live_peak() / (double)MIB, support_seconds() - start);
    return 0;
}
