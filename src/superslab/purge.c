#include "superslab/purge.h"

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"
#include "superslab/footprint.h"
#include "superslab/limits.h"
#include "superslab/ranges.h"
#include "superslab/strict.h"
#include "superslab/touched.h"

/* Slots whose units are given back while the lock is released once. */
#define PURGE_BATCH 32
/* A huge page of a SuperSlab in use is not split for fewer free units. */
#define PURGE_WORTH_UNITS (SUPERSLAB_UNITS / 2)

struct purge_range {
    uint32_t slot;
    uint32_t mask; /* the units; bit 0: also the header, because the SuperSlab is empty */
    size_t bytes;  /* of the units with memory, without the header */
    bool split;    /* huge pages must be refused first (P7) */
    bool kept;     /* the system refused a part: the units may still have memory */
    bool closes;   /* the units become guard units (V16) */
    uint32_t closed; /* those that have become ones */
};

/* The slot's free units with memory. The header of an empty SuperSlab leaves even if the units are clean. A prewarmed
 * SuperSlab waits for its first use. */
static uint32_t purge_dirty_units(uint32_t number, bool all)
{
    const struct slot *slot = &shared_pool.slots[number];

    if (slot->bucket != POOL_BUCKET_EMPTY)
        return slot->free & slot->touched;
    if (!all && (slot->touched & 1) && ((struct superslab *)window_slot_address(number))->prewarmed)
        return 0;
    return slot->touched & (slot->free | 1);
}

/* Those that have waited long enough at `now`: all if nothing was freed for a purge delay, else those that are free
 * since `aged` was filled, a delay ago. */
static uint32_t purge_due_units(struct slot *slot, uint32_t dirty, uint32_t now, bool all)
{
    uint32_t due, delay = (uint32_t)hak_options.purge_delay;

    if (dirty == 0)
        return 0;
    if (all || base_elapsed(now, slot->freed_ms) >= delay) {
        due = dirty;
    } else {
        bool aged = slot->aged != 0 && base_elapsed(now, slot->aged_ms) >= delay;
        bool worth = slot->huge_pages == PAGES_SMALL || base_count_bits(slot->free) >= PURGE_WORTH_UNITS;
        due = aged && worth ? slot->aged & dirty : 0;
        if (aged || slot->aged == 0) {
            slot->aged = dirty & ~due & ~(uint32_t)1;
            slot->aged_ms = now;
        }
    }
    return due;
}

/* The slot's units that lie in [start, end). */
static uint32_t units_within(uint32_t slot, const char *start, const char *end)
{
    const char *first = window_slot_address(slot);
    size_t low = start > first ? (size_t)(start - first) >> UNIT_SHIFT : 0;
    size_t high = base_min((size_t)(end - first) >> UNIT_SHIFT, SUPERSLAB_UNITS);

    return (uint32_t)(base_low_mask((unsigned)high) & ~base_low_mask((unsigned)low));
}

/* Purges [start, end), which belongs to ranges[first..last], with one call. */
static size_t purge_call(struct purge_range *ranges, size_t first, size_t last, char *start, char *end)
{
    size_t size = (size_t)(end - start);
    bool closed = false, purged;

    if (size == 0)
        return 0;
    purged = HAK_SECURE && ranges[first].closes ? strict_purge(start, size, &closed) : os_purge(start, size);
    for (; first <= last; first++) {
        ranges[first].kept |= !purged;
        ranges[first].closed |= closed ? ranges[first].mask & units_within(ranges[first].slot, start, end) : 0;
    }
    return purged ? size : 0;
}

/* Purges the units of the ranges, with one call for neighbours, also across SuperSlabs. Returns the bytes. */
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
            if (run_start != end || ranges[i].closes != ranges[first].closes) {
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

/* Makes the oldest EMPTY SuperSlabs due, whatever their age, if there are more than the LRU may hold. */
static void purge_trim_lru(uint32_t now)
{
    size_t bytes, aged = 0;
    uint32_t number = shared_pool.tails[POOL_BUCKET_EMPTY], excess = shared_pool_lru_excess(&bytes), leaving = 0;

    for (; number && leaving < excess && aged < bytes; number = shared_pool.slots[number].prev) {
        struct slot *slot = &shared_pool.slots[number];
        if (slot->touched == 0 || ((struct superslab *)window_slot_address(number))->prewarmed)
            continue;
        if (base_elapsed(now, slot->freed_ms) < hak_options.purge_delay)
            footprint_note_trimmed();
        slot->aged = slot->free & slot->touched;
        slot->aged_ms = now - (uint32_t)hak_options.purge_delay;
        aged += base_count_bits(slot->aged) * UNIT_SIZE;
        leaving++;
        debug_count(COUNT_LRU_EVICTED);
        if (hak_options.ss_lru_debug)
            base_message("LRU: SuperSlab %u leaves, %u stay", number, shared_pool.dirty_empties - leaving);
    }
}

/* Counts an EMPTY SuperSlab that was given back whole. It left the LRU when purge_take took it out of its bucket. */
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

/* Gives back the memory that mlockall may have put behind untouched addresses (P2): slots mapped ahead, and clean
 * units. */
static size_t purge_populated(void)
{
    size_t bytes = shared_pool_unmap_unused();

    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++) {
        const struct slot *slot = &shared_pool.slots[number];
        uint64_t clean = slot->free & ~slot->touched;
        if (slot->kind != SLOT_SUPERSLAB || slot->decommitted)
            continue;
        while (clean) {
            unsigned low = base_low_bit(clean), run = base_low_bit(~(clean >> low));
            clean &= ~(base_low_mask(run) << low);
            if (os_purge(window_slot_address(number) + low * UNIT_SIZE, run * UNIT_SIZE))
                bytes += run * UNIT_SIZE;
        }
    }
    return bytes;
}

/* Takes the units out of the pool while they are given back (G1). The header of an EMPTY SuperSlab leaves with the last
 * of its units. */
static struct purge_range purge_take(uint32_t number, uint32_t units)
{
    struct slot *slot = &shared_pool.slots[number];
    bool split = false;
    size_t dirty = base_count_bits(units & ~(uint32_t)1);

    shared_pool.units_dirty -= dirty;
    footprint_leaves(dirty * UNIT_SIZE);
    if (slot->bucket == POOL_BUCKET_EMPTY && (slot->touched & 1) &&
        ((struct superslab *)window_slot_address(number))->prewarmed)
        shared_pool_end_prewarmed((struct superslab *)window_slot_address(number));
    if (slot->bucket == POOL_BUCKET_EMPTY && (slot->free & slot->touched & ~units) == 0)
        units = slot->free | 1;
    else
        split = shared_pool_split(number);
    slot->free &= ~units;
    shared_pool_move_bucket(number);
    return (struct purge_range){ .slot = number,
                                 .mask = units,
                                 .bytes = dirty * UNIT_SIZE,
                                 .split = split,
                                 .closes = strict_is(number) && !(units & 1) };
}

static void purge_put_back(const struct purge_range *range)
{
    struct slot *slot = &shared_pool.slots[range->slot];

    slot->free |= range->mask & ~(uint32_t)1;
    footprint_left(range->bytes);
    if (range->closed) {
        ((struct superslab *)window_slot_address(range->slot))->guards |= range->closed;
        slot->touched &= ~range->closed;
    }
    if (range->kept) {
        shared_pool.units_dirty += base_count_bits(slot->touched & range->mask & ~(uint32_t)1);
    } else {
        shared_pool.headers -= slot->touched & range->mask & 1;
        slot->touched &= ~range->mask;
        if (HAK_DEBUG && !(range->mask & 1))
            purge_note_untouched(range->slot, range->mask);
        if (range->mask & 1)
            purge_note_lru(range->slot);
    }
    shared_pool_move_bucket(range->slot);
    if (range->mask & 1 && !range->kept && shared_pool_shortage() != SHORTAGE_NONE)
        shared_pool_unmap(range->slot);
}

/* Gives the ranges back, and releases the lock meanwhile. Returns the bytes. */
static size_t purge_batch(struct purge_range *ranges, size_t count)
{
    size_t purged;

    lock_release(&shared_pool.lock);
    purged = purge_ranges(ranges, count);
    lock_acquire(&shared_pool.lock);
    for (size_t i = 0; i < count; i++)
        purge_put_back(&ranges[i]);
    shared_pool.purged_bytes += purged;
    return purged;
}

/* Inserts the range in the order of addresses, so that neighbours leave in one call. */
static void purge_insert(struct purge_range *ranges, size_t count, struct purge_range range)
{
    for (; count > 0 && ranges[count - 1].slot > range.slot; count--)
        ranges[count] = ranges[count - 1];
    ranges[count] = range;
}

/* What purge_emptiest is about to give back. */
struct emptiest {
    struct purge_range ranges[PURGE_BATCH];
    size_t count, bytes, wanted;
};

/* Takes units of the bucket's SuperSlabs, the one at its tail first. */
static void emptiest_take(struct emptiest *emptiest, unsigned bucket)
{
    uint32_t number = shared_pool.tails[bucket], prev;

    for (; number && emptiest->count < PURGE_BATCH && emptiest->bytes < emptiest->wanted; number = prev) {
        const struct slot *slot = &shared_pool.slots[number];
        uint32_t dirty = slot->free & slot->touched;
        prev = slot->prev;
        if (dirty == 0)
            continue;
        emptiest->bytes += base_count_bits(dirty) * UNIT_SIZE;
        purge_insert(emptiest->ranges, emptiest->count++, purge_take(number, dirty));
    }
}

/* Gives back units of `wanted` bytes, but at most a batch. Units that would be taken last leave first: those of the
 * SuperSlabs with the most free units, from `most_free` down to `least_free`. Under pool.lock, as the next. */
static size_t purge_emptiest(size_t wanted, unsigned most_free, unsigned least_free)
{
    struct emptiest emptiest = { .wanted = wanted };

    for (unsigned bucket = most_free; bucket >= least_free; bucket--)
        emptiest_take(&emptiest, bucket);
    return emptiest.count ? purge_batch(emptiest.ranges, emptiest.count) : 0;
}

/* Gives back what waits in SuperSlabs in use beyond what may wait there (N7). */
static size_t purge_excess(void)
{
    size_t bytes = 0, wanted, got;

    while ((wanted = shared_pool_excess()) != 0 &&
           (got = purge_emptiest(wanted, POOL_BUCKET_EMPTY - 1, PURGE_WORTH_UNITS)) != 0) {
        bytes += got;
        footprint_note_trimmed();
    }
    if (bytes) { /* blocks in caches pin slabs, too (N5) */
        atomic_store_explicit(&shared_pool.flush_wanted, true, memory_order_relaxed);
        shared_pool_schedule_purge(0);
    }
    return bytes;
}

size_t purge_free_units(bool all)
{
    struct purge_range ranges[PURGE_BATCH];
    size_t purged = 0, count, left = 0;
    uint32_t now = shared_pool_now_ms(), number;

    if (limits_are_due(0))
        limits_read();
    lock_acquire(&shared_pool.lock);
    all = all || limits_pressed() || atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed);
    atomic_store_explicit(&shared_pool.over_soft_limit, false, memory_order_relaxed);
    footprint_decay(now);
    purge_trim_lru(now);
    for (number = window_slots_begin(); number < shared_pool.slots_unused;) {
        for (count = 0; count < PURGE_BATCH && number < shared_pool.slots_unused; number++) {
            struct slot *slot = &shared_pool.slots[number];
            uint32_t dirty, due;
            if (slot->kind != SLOT_SUPERSLAB)
                continue;
            dirty = purge_dirty_units(number, all);
            due = purge_due_units(slot, dirty, now, all);
            left += base_count_bits(dirty & ~due);
            if (due)
                ranges[count++] = purge_take(number, due);
        }
        if (count == 0)
            break;
        purged += purge_batch(ranges, count);
        for (size_t i = 0; i < count; i++)
            left += ranges[i].kept;
    }
    purged += purge_excess();
    if (all && os_memory_is_locked())
        purge_populated();
    if (left)
        shared_pool_schedule_purge(hak_options.purge_delay);
    lock_release(&shared_pool.lock);
    return purged;
}

bool purge_could_serve(size_t bytes)
{
    return bytes <= base_min(os_address_space_limit(), os_physical_memory());
}

size_t purge_address_space(void)
{
    static const unsigned buckets[] = { POOL_BUCKET_EMPTY, POOL_BUCKET_EMPTY + 1 };
    size_t bytes;

    purge_free_units(true);
    lock_acquire(&shared_pool.lock);
    bytes = shared_pool_unmap_unused();
    for (unsigned i = 0; i < 2; i++)
        for (uint32_t number = shared_pool.heads[buckets[i]]; number; number = shared_pool.slots[number].next)
            if (shared_pool.slots[number].touched == 0)
                bytes += shared_pool_unmap(number);
    lock_release(&shared_pool.lock);
    return bytes;
}

/* ---- Before the footprint grows (N2) ---- */

/* How many ms the oldest EMPTY SuperSlab's free units have waited; 0 if none is EMPTY. False: no unit waits. */
static bool purge_emptiest_waited(uint32_t now, uint32_t *waited)
{
    uint32_t number;
    bool any;

    lock_acquire(&shared_pool.lock);
    number = shared_pool.dirty_empties ? shared_pool.tails[POOL_BUCKET_EMPTY] : 0;
    while (number && shared_pool.slots[number].touched == 0)
        number = shared_pool.slots[number].prev;
    *waited = number ? base_elapsed(now, shared_pool.slots[number].freed_ms) : 0;
    any = shared_pool.units_dirty != 0;
    lock_release(&shared_pool.lock);
    return any;
}

/* Gives back units of `wanted` bytes, but at most a batch. */
static size_t purge_any(size_t wanted)
{
    size_t bytes;

    lock_acquire(&shared_pool.lock);
    /* The bucket behind that of EMPTY ones has no memory in it (P3). */
    bytes = purge_emptiest(wanted, shared_pool.dirty_empties ? POOL_BUCKET_EMPTY : POOL_BUCKET_EMPTY - 1, 1);
    lock_release(&shared_pool.lock);
    return bytes;
}

size_t purge_make_room(size_t wanted)
{
    uint32_t now = shared_pool_now_ms(), units_waited, ranges_waited;
    size_t given = 0, got;

    if (limits_are_due(SIZE_MAX))
        limits_read();
    while (given < wanted) {
        bool units = purge_emptiest_waited(now, &units_waited), ranges = ranges_oldest(now, &ranges_waited);

        got = 0;
        if (ranges && (!units || ranges_waited >= units_waited))
            got = ranges_give_back(wanted - given);
        if (got == 0 && units)
            got = purge_any(wanted - given);
        if (got == 0 && ranges)
            got = ranges_give_back(wanted - given);
        if (got == 0)
            break;
        given += got;
    }
    if (given || footprint_warm()) {
        lock_acquire(&shared_pool.lock);
        footprint_want_flush();
        lock_release(&shared_pool.lock);
    }
    return given;
}

void purge_begin(void) { atomic_exchange(&shared_pool.next_purge_ms, 0); }

size_t purge_run(bool all)
{
    purge_begin();
    return purge_free_units(all);
}
