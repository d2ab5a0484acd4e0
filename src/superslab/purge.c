#include "superslab/purge.h"

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"
#include "superslab/touched.h"

/* Ranges given back with one taking of the lock. */
#define PURGE_BATCH 32

struct purge_range {
    uint32_t slot;
    uint32_t mask; /* of units; bit 0 with the header, when the SuperSlab is empty */
    bool split;    /* huge pages are to be refused first (P7) */
    bool kept;     /* the system did not take all of it: it may still have its memory */
};

/* What of the slot has waited long enough at `now`: everything free if nothing was freed for a delay, else what was free
 * at the last look and was not taken since. */
static uint32_t purge_ripe_units(struct slot *slot, uint32_t now, bool all)
{
    uint32_t dirty = slot->free & slot->touched, ripe, delay = (uint32_t)hak_options.purge_delay;

    /* The header of an empty SuperSlab, even where its units are clean. */
    if (slot->bucket == POOL_BUCKET_EMPTY)
        dirty |= slot->touched & 1;
    if (dirty == 0)
        return 0;
    if (all || now - slot->freed_ms >= delay) {
        ripe = dirty;
    } else {
        bool aged = slot->aged != 0 && now - slot->aged_ms >= delay;
        /* While the SuperSlab is in use, a huge page is not split for little. */
        bool worth = slot->huge_pages == PAGES_SMALL || base_count_bits(slot->free) >= SUPERSLAB_UNITS / 2;
        ripe = aged && worth ? slot->aged & dirty : 0;
        if (aged || slot->aged == 0) {
            slot->aged = dirty & ~ripe & ~(uint32_t)1;
            slot->aged_ms = now;
        }
    }
    return ripe;
}

/* One call for the pending bytes, which belong to ranges[first..last]. */
static size_t purge_call(struct purge_range *ranges, size_t first, size_t last, char *start, char *end)
{
    if (start == end)
        return 0;
    if (os_purge(start, (size_t)(end - start)))
        return (size_t)(end - start);
    for (; first <= last; first++)
        ranges[first].kept = true;
    return 0;
}

/* Purges the units of the ranges, neighbours across SuperSlabs in one call. Returns the bytes. */
static size_t purge_ranges(struct purge_range *ranges, size_t count)
{
    char *start = NULL, *end = NULL;
    size_t purged = 0, first = 0, last = 0;

    for (size_t i = 0; i < count; i++)
        if (ranges[i].split)
            os_advise_huge(window_slot_address(ranges[i].slot), SUPERSLAB_SIZE, false);
    for (size_t i = 0; i < count; i++) {
        uint64_t mask = ranges[i].mask;
        while (mask) {
            unsigned low = base_low_bit(mask), run = base_low_bit(~(mask >> low));
            char *run_start = window_slot_address(ranges[i].slot) + low * UNIT_SIZE;
            mask &= ~(base_low_mask(run) << low);
            if (run_start != end) {
                purged += purge_call(ranges, first, last, start, end);
                start = run_start;
                first = i;
            }
            end = run_start + run * UNIT_SIZE;
            last = i;
        }
    }
    return purged + purge_call(ranges, first, last, start, end);
}

/* With more empties than the LRU may hold, the oldest leave whatever their age: they are made ripe. */
static void purge_trim_lru(uint32_t now)
{
    uint32_t number = shared_pool.tails[POOL_BUCKET_EMPTY], excess = 0;

    if (shared_pool.dirty_empties > shared_pool_lru_size())
        excess = shared_pool.dirty_empties - (uint32_t)shared_pool_lru_size();
    for (; number && excess; number = shared_pool.slots[number].prev) {
        struct slot *slot = &shared_pool.slots[number];
        if (slot->touched == 0)
            continue;
        slot->aged = slot->free & slot->touched;
        slot->aged_ms = now - (uint32_t)hak_options.purge_delay;
        excess--;
        debug_count(COUNT_LRU_EVICTED);
        if (hak_options.ss_lru_debug)
            base_message("LRU: SuperSlab %u leaves, %u stay", number, shared_pool.dirty_empties - excess);
    }
}

/* P5 */
static void purge_decommit(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];

    slot->decommitted = os_decommit(window_slot_address(number), SUPERSLAB_SIZE);
    shared_pool.decommitted += slot->decommitted;
}

/* An empty SuperSlab was given back whole; while it was, it was in no bucket and so not counted in the LRU. */
static void purge_note_lru(uint32_t number)
{
    shared_pool.lru_purged++;
    debug_count(COUNT_LRU_PURGED);
    if (hak_options.ss_lru_debug)
        base_message("LRU: SuperSlab %u was purged, %u stay", number, shared_pool.dirty_empties);
}

static void purge_note_untouched(uint32_t number, uint32_t units)
{
    for (; units; units &= units - 1)
        touched_note(window_slot_address(number) + base_low_bit(units) * UNIT_SIZE, UNIT_SIZE, false);
}

size_t purge_free_units(bool all)
{
    struct purge_range ranges[PURGE_BATCH];
    size_t purged = 0, count, left = 0;
    uint32_t now = shared_pool_now_ms(), number;

    lock_acquire(&shared_pool.lock);
    all = all || atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed);
    atomic_store_explicit(&shared_pool.over_soft_limit, false, memory_order_relaxed);
    purge_trim_lru(now);
    for (number = window_slots_begin(); number < shared_pool.slots_unused;) {
        for (count = 0; count < PURGE_BATCH && number < shared_pool.slots_unused; number++) {
            struct slot *slot = &shared_pool.slots[number];
            uint32_t ripe;
            bool split = false;
            if (slot->kind != SLOT_SUPERSLAB)
                continue;
            ripe = purge_ripe_units(slot, now, all);
            left += base_count_bits(slot->free & slot->touched & ~ripe);
            if (ripe == 0)
                continue;
            /* G1; the header of an empty SuperSlab goes with its units, all of which are held back meanwhile. */
            shared_pool.units_dirty -= base_count_bits(ripe & ~(uint32_t)1);
            if (slot->bucket == POOL_BUCKET_EMPTY && (slot->free & slot->touched & ~ripe) == 0)
                ripe = slot->free | 1;
            else
                split = shared_pool_split(number);
            slot->free &= ~ripe;
            shared_pool_move_bucket(number);
            ranges[count++] = (struct purge_range){ .slot = number, .mask = ripe, .split = split };
        }
        if (count == 0)
            break;
        lock_release(&shared_pool.lock);
        purged += purge_ranges(ranges, count);
        lock_acquire(&shared_pool.lock);
        for (size_t i = 0; i < count; i++) {
            struct slot *slot = &shared_pool.slots[ranges[i].slot];
            slot->free |= ranges[i].mask & ~(uint32_t)1;
            if (ranges[i].mask & 1 && !ranges[i].kept && atomic_load_explicit(&shared_pool.tight, memory_order_relaxed))
                purge_decommit(ranges[i].slot);
            left += ranges[i].kept;
            if (ranges[i].kept)
                shared_pool.units_dirty += base_count_bits(slot->touched & ranges[i].mask & ~(uint32_t)1);
            else
                slot->touched &= ~ranges[i].mask;
            if (HAK_DEBUG && !ranges[i].kept && !(ranges[i].mask & 1))
                purge_note_untouched(ranges[i].slot, ranges[i].mask);
            if (ranges[i].mask & 1 && !ranges[i].kept)
                purge_note_lru(ranges[i].slot);
            shared_pool_move_bucket(ranges[i].slot);
        }
    }
    shared_pool.purged_bytes += purged;
    if (left)
        shared_pool_schedule_purge(hak_options.purge_delay);
    lock_release(&shared_pool.lock);
    return purged;
}

void purge_begin(void) { atomic_exchange(&shared_pool.next_purge_ms, 0); }

size_t purge_run(bool all)
{
    purge_begin();
    return purge_free_units(all);
}
