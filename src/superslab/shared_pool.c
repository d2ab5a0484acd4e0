#include "superslab/shared_pool.h"

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"
#include "superslab/arrival.h"
#include "superslab/footprint.h"
#include "superslab/limits.h"
#include "superslab/purge.h"
#include "superslab/strict.h"
#include "superslab/touched.h"

bool shared_pool_init(void)
{
    if (shared_pool.slots)
        return true;
    if (!window_init())
        return false;
    shared_pool.slots = window_slots;
    shared_pool.slots_unused = window_slots_begin();
    shared_pool.slots_committed = window_slots_mapped();
    for (uint32_t number = shared_pool.slots_unused; number < shared_pool.slots_committed; number++)
        shared_pool.slots[number].huge_pages =
            hak_options.thp == OPTION_ALWAYS ? PAGES_HUGE : PAGES_SMALL;
    return true;
}

static void pool_set_kind(uint32_t number, enum slot_kind kind)
{
    __atomic_store_n(&shared_pool.slots[number].kind, (uint8_t)kind, __ATOMIC_RELAXED);
}

/* Adds `count` slots, mapped from `first` on. Those that the window left out before them become foreign (W4). */
static void pool_add_slots(uint32_t first, size_t count, bool huge_pages)
{
    uint32_t number = shared_pool.slots_committed;

    shared_pool.slots_foreign += first - number;
    for (; number < first; number++)
        pool_set_kind(number, SLOT_FOREIGN);
    shared_pool.slots_unused = first;
    shared_pool.slots_committed = first + (uint32_t)count;
    for (; number < shared_pool.slots_committed; number++)
        shared_pool.slots[number].huge_pages = huge_pages ? PAGES_HUGE : PAGES_SMALL;
}

/* The next slot that was never used. Maps more if needed. 0: there is none. */
static uint32_t pool_new_slot(enum slot_kind kind)
{
    if (shared_pool.slots_unused == shared_pool.slots_committed) {
        uint32_t first;
        bool huge_pages;
        size_t count = window_grow(&first, &huge_pages);
        bool full = window_slots_mapped() >= window_slots_limit();
        enum shortage shortage = count ? SHORTAGE_NONE : full ? SHORTAGE_WINDOW : SHORTAGE_SYSTEM;
        atomic_store_explicit(&shared_pool.shortage, shortage, memory_order_relaxed);
        if (count == 0)
            return 0;
        pool_add_slots(first, count, huge_pages);
    }
    pool_set_kind(shared_pool.slots_unused, kind);
    return shared_pool.slots_unused++;
}

static uint32_t pool_new_superslab(void)
{
    uint32_t number = pool_new_slot(SLOT_SUPERSLAB);

    if (number == 0)
        return 0;
    shared_pool.slots[number].free = POOL_ALL_UNITS;
    if (strict_is(number) && shared_pool.slots[number].huge_pages != PAGES_SMALL) {
        shared_pool.slots[number].huge_pages = PAGES_SMALL;
        os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, false);
    }
    shared_pool.superslabs++;
    debug_count(COUNT_REFILL_NEW_SUPERSLAB);
    shared_pool_move_bucket(number);
    return number;
}

/* The start of a run in the shortest stretch of `mask` (units of the slot) that holds one; 0: there is none. */
static unsigned pool_best_run(uint32_t number, uint32_t mask, unsigned units, unsigned align_units)
{
    uint32_t starts = pool_run_starts(mask, units), longer;
    unsigned best = 0, best_length = SUPERSLAB_UNITS + 1;

    if (starts == 0)
        return 0;
    if (strict_is(number))
        return strict_choose(number, starts, units, align_units);
    if (align_units == 1) {
        longer = pool_run_starts(mask, units + 1);
        starts &= ~(longer | longer << 1); /* stretches of exactly this length */
        if (starts)
            return base_low_bit(starts);
    }
    while (mask) {
        unsigned low = base_low_bit(mask), length = base_low_bit(~((uint64_t)mask >> low));
        unsigned start = (unsigned)base_align_up(low, align_units);
        if (start + units <= low + length && length < best_length) {
            best = start;
            best_length = length;
        }
        mask &= ~((uint32_t)base_low_mask(length) << low);
    }
    return best;
}

/* The start of a run among the slot's free units: units that suit the use come first (P6). 0: there is none. */
static unsigned pool_find_run(uint32_t number, unsigned units, unsigned align_units, enum pool_use use)
{
    const struct slot *slot = &shared_pool.slots[number];
    uint32_t touched = slot->free & slot->touched, dense;
    unsigned start = 0;

    if (pool_run_starts(slot->free, units) == 0)
        return 0;
    if (touched) {
        dense = touched & ((struct superslab *)window_slot_address(number))->dense;
        start = pool_best_run(number, use == POOL_DENSE ? dense : touched & ~dense, units, align_units);
        if (start == 0 && use == POOL_DENSE)
            start = pool_best_run(number, touched, units, align_units);
        if (start == 0 && use == POOL_SPARSE)
            start = pool_best_run(number, slot->free & ~dense, units, align_units);
    }
    return start ? start : pool_best_run(number, slot->free, units, align_units);
}

/* As pool_find_run, among free units with memory behind them. */
static unsigned pool_find_touched(uint32_t number, unsigned units, unsigned align_units)
{
    const struct slot *slot = &shared_pool.slots[number];

    return pool_best_run(number, slot->free & slot->touched, units, align_units);
}

/* Asks for huge pages again (P7). */
static void pool_join(uint32_t number)
{
    shared_pool.slots[number].huge_pages = PAGES_HUGE;
    shared_pool.split--;
    os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, true);
}

/* Sets `touched` bits. A header that becomes touched counts in the footprint. */
static void pool_touch(struct slot *slot, uint32_t units)
{
    shared_pool.headers += (units & ~slot->touched & 1) != 0;
    slot->touched |= units;
}

/* P8 */
static bool pool_begins_sparse(enum pool_use use) { return use == POOL_SPARSE && hak_options.thp == OPTION_AUTO; }

/* Refuses huge pages, or asks for them, for a slot that begins anew (P7, P8). Call before its header is written. */
static void pool_begin_slot(uint32_t number, bool small_pages)
{
    const struct slot *slot = &shared_pool.slots[number];

    if (slot->huge_pages != PAGES_SMALL && hak_options.thp == OPTION_AUTO && !small_pages)
        small_pages = !arrival_superslab_begins();
    if (small_pages) {
        if (shared_pool_split(number))
            os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, false);
    } else if (slot->huge_pages == PAGES_SPLIT) {
        pool_join(number);
    }
    if (slot->huge_pages != PAGES_HUGE && !strict_is(number))
        arrival_note_small(number);
}

static struct slab *pool_take_run(uint32_t number, unsigned start, unsigned units, bool small_pages)
{
    struct slot *slot = &shared_pool.slots[number];
    struct superslab *superslab = (struct superslab *)window_slot_address(number);
    struct slab *slab = &superslab->slabs[start];
    uint32_t mask = (uint32_t)base_low_mask(units) << start;
    unsigned unit;

    HAK_ASSERT((slot->free & mask) == mask);
    /* P7 */
    HAK_ASSERT(slot->huge_pages != PAGES_HUGE || (slot->touched | 1) == 1 || (slot->touched | 1) == UINT32_MAX);
    /* A new header is written before it is read: a read would fault, and the write after it once more. */
    if (slot->touched == 0)
        pool_begin_slot(number, small_pages);
    else if (HAK_UNLIKELY(superslab->prewarmed))
        shared_pool_end_prewarmed(superslab);
    slab->zero = (slot->touched & mask) == 0;
    slab->populated = false;
    slab->dense = (slot->touched & mask) != 0 && (superslab->dense & slot->touched & mask) != 0;
    if (HAK_SECURE)
        slab->unclean = (slot->touched & mask) != 0 && (superslab->unclean & slot->touched & mask) != 0;
    shared_pool.units_dirty -= (slot->touched & mask) == mask ? units : base_count_bits(slot->touched & mask);
    shared_pool.units_used += units;
    shared_pool.slabs_taken++;
    if (slot->bucket == POOL_BUCKET_EMPTY && slot->touched != 0) {
        shared_pool.lru_reused++;
        debug_count(COUNT_LRU_REUSED);
        if (hak_options.ss_lru_debug)
            base_message("LRU: SuperSlab %u is used again, %u stay", number, shared_pool.dirty_empties - 1);
    }
    slot->free &= ~mask;
    slot->aged &= ~mask;
    shared_pool_move_bucket(number);
    if (slot->huge_pages == PAGES_HUGE && slot->touched == 0) {
        /* The first touch brings the whole huge page (P7). */
        pool_touch(slot, (POOL_ALL_UNITS & ~mask) | 1);
        shared_pool.units_dirty += base_count_bits(POOL_ALL_UNITS & ~mask);
        slot->freed_ms = shared_pool_now_ms(); /* the rest waits like freed units */
        shared_pool_want_purge();
    }
    pool_touch(slot, mask | 1);
    for (unit = start; unit < start + units; unit++)
        superslab->first_unit[unit] = (uint8_t)start;
    slab->start = (char *)superslab + (size_t)start * UNIT_SIZE;
    slab->units = (uint8_t)units;
    slab->class = CLASS_NONE;
    atomic_store_explicit(&slab->state, SLAB_WARM, memory_order_relaxed);
    return slab;
}

enum { TRIES = 8 }; /* slots looked at in a bucket: fragmented SuperSlabs must not make a search long */

/* The slot to take the next run from: the fullest HOT one with room, then DRAINING and EMPTY ones in the same way
 * (their buckets are higher). 0: none has room. */
static uint32_t pool_choose_slot(unsigned units, unsigned align_units, enum pool_use use, unsigned *start)
{
    unsigned bucket;

    for (uint64_t buckets = shared_pool.bucket_mask & ~base_low_mask(units); buckets;
         buckets &= ~(UINT64_C(1) << bucket)) {
        uint32_t number = shared_pool.heads[bucket = base_low_bit(buckets)];
        for (unsigned tries = 0; number && tries < TRIES; tries++) {
            *start = pool_find_run(number, units, align_units, use);
            if (*start)
                return number;
            number = shared_pool.slots[number].next;
        }
    }
    return 0;
}

/* As pool_choose_slot, among units with memory behind them: these add nothing to the footprint. */
static uint32_t pool_choose_touched(unsigned units, unsigned align_units, unsigned *start)
{
    unsigned bucket;

    for (uint64_t buckets = shared_pool.bucket_mask & ~base_low_mask(units); buckets;
         buckets &= ~(UINT64_C(1) << bucket)) {
        uint32_t number = shared_pool.heads[bucket = base_low_bit(buckets)];
        for (unsigned tries = 0; number && tries < TRIES; tries++) {
            *start = pool_find_touched(number, units, align_units);
            if (*start)
                return number;
            number = shared_pool.slots[number].next;
        }
    }
    return 0;
}

/* The bytes by which taking the run grows the footprint. `number` 0: a run of a new SuperSlab. */
static size_t pool_growth(uint32_t number, unsigned start, unsigned units)
{
    const struct slot *slot = &shared_pool.slots[number];
    uint32_t untouched = ((uint32_t)base_low_mask(units) << start | 1) & ~slot->touched;

    if (number == 0)
        return (units + 1) * UNIT_SIZE;
    if (slot->huge_pages != PAGES_SMALL && slot->touched == 0 &&
        (hak_options.thp != OPTION_AUTO || arrival_superslabs_dense()))
        return SUPERSLAB_SIZE;
    return untouched ? base_count_bits(untouched) * UNIT_SIZE : 0;
}

/* ---- P5 ---- */

/* Makes an unmapped SuperSlab foreign, because another mapping has its place. */
static void pool_lose(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];

    shared_pool.split -= slot->huge_pages == PAGES_SPLIT;
    shared_pool.superslabs--;
    shared_pool.slots_foreign++;
    pool_set_kind(number, SLOT_FOREIGN);
    slot->free = 0;
    slot->aged = 0;
    slot->huge_pages = PAGES_SMALL;
    shared_pool_move_bucket(number);
}

/* Opens the units of a run in a strict SuperSlab. False: the system refuses now. */
static bool pool_open_run(uint32_t number, unsigned start, unsigned units)
{
    unsigned dirty;
    bool open;

    if (!strict_is(number))
        return true;
    open = strict_open(number, start, units, &dirty);
    shared_pool.units_dirty -= dirty;
    return open;
}

/* Maps the slot if it is unmapped. False: the system refuses now, or, if the slot became SLOT_FOREIGN, for ever. */
static bool pool_make_writable(uint32_t number, unsigned start, unsigned units)
{
    struct slot *slot = &shared_pool.slots[number];
    enum os_place place;

    if (!slot->decommitted)
        return pool_open_run(number, start, units);
    place = window_map_slot(number, slot->huge_pages != PAGES_SMALL);
    if (place == OS_PLACE_REFUSED) {
        atomic_store_explicit(&shared_pool.shortage, SHORTAGE_SYSTEM, memory_order_relaxed);
        return false;
    }
    __atomic_store_n(&slot->decommitted, false, __ATOMIC_RELAXED);
    shared_pool.decommitted--;
    if (place == OS_PLACE_TAKEN) {
        pool_lose(number);
        return false;
    }
    if (slot->huge_pages == PAGES_SPLIT) {
        slot->huge_pages = PAGES_HUGE;
        shared_pool.split--;
    }
    return pool_open_run(number, start, units);
}

struct choice {
    uint32_t number; /* the slot; 0: there is no run */
    unsigned start;
    bool small_pages; /* the SuperSlab begins with small pages: the hard limit allows no huge page */
};

/* Lets a SuperSlab begin with small pages if the limits allow these, but no huge page. */
static bool pool_begins_small(uint32_t number, size_t growth, unsigned units)
{
    if (growth != SUPERSLAB_SIZE || !footprint_allows((units + 1) * UNIT_SIZE))
        return false;
    if (shared_pool_split(number))
        os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, false);
    return true;
}

/* Chooses a run. For the `first` of a call it makes room or waits, without the lock. Further runs may not exceed N2. */
static struct choice pool_choose(unsigned units, unsigned align_units, enum pool_use use, bool first)
{
    bool made_room = false;
    unsigned waits = 0;

    for (;;) {
        struct choice choice = { 0 };
        size_t growth, excess;

        choice.number = pool_choose_slot(units, align_units, use, &choice.start);
        growth = pool_growth(choice.number, choice.start, units);
        excess = growth ? footprint_excess(growth) : 0;
        if (HAK_UNLIKELY(growth && first && !made_room &&
                         ((excess && footprint_waiting()) || limits_are_due(footprint_of_blocks())))) {
            struct choice touched = { 0 };
            touched.number = pool_choose_touched(units, align_units, &touched.start);
            if (touched.number)
                return touched;
            made_room = true;
            lock_release(&shared_pool.lock);
            purge_make_room(excess);
            lock_acquire(&shared_pool.lock);
            continue; /* other threads may have changed the pool */
        }
        if (HAK_UNLIKELY(excess && (!first || !footprint_allows(growth)))) {
            if (first && footprint_wait(&waits)) {
                made_room = false;
                continue;
            }
            choice.small_pages = first && pool_begins_small(choice.number, growth, units);
            if (!choice.small_pages)
                choice.number = pool_choose_touched(units, align_units, &choice.start);
            return choice;
        }
        if (choice.number || pool_new_superslab() == 0)
            return choice;
    }
}

size_t shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use, struct slab **slabs)
{
    size_t taken = 0, had;

    if (!strict_fits(units, align_units))
        return 0;
    lock_acquire(&shared_pool.lock);
    had = shared_pool.units_used + shared_pool.units_dirty;
    while (taken < count) {
        struct choice choice = pool_choose(units, align_units, use, taken == 0);
        unsigned start = choice.start;
        if (choice.number == 0)
            break;
        if (!pool_make_writable(choice.number, start, units)) {
            if (slot_kind(&shared_pool.slots[choice.number]) == SLOT_FOREIGN)
                continue;
            break;
        }
        slabs[taken++] = pool_take_run(choice.number, start, units, choice.small_pages || pool_begins_sparse(use));
        /* Further runs of the same SuperSlab: one call populates contiguous memory. */
        while (taken < count && (start = pool_find_run(choice.number, units, align_units, use)) != 0 &&
               footprint_excess(pool_growth(choice.number, start, units)) == 0 &&
               pool_open_run(choice.number, start, units))
            slabs[taken++] = pool_take_run(choice.number, start, units, false);
    }
    if (shared_pool.units_used + shared_pool.units_dirty > had)
        footprint_note_growth((shared_pool.units_used + shared_pool.units_dirty - had) * UNIT_SIZE);
    footprint_note_peak();
    lock_release(&shared_pool.lock);
    return taken;
}

size_t shared_pool_acquire_touched(unsigned units, unsigned align_units, size_t count, struct slab **slabs)
{
    size_t taken = 0;
    unsigned start;
    uint32_t number;

    lock_acquire(&shared_pool.lock);
    for (; taken < count && (number = pool_choose_touched(units, align_units, &start)) != 0 &&
           pool_open_run(number, start, units);
         taken++)
        slabs[taken] = pool_take_run(number, start, units, false);
    footprint_note_peak();
    lock_release(&shared_pool.lock);
    return taken;
}

/* Slabs that leave under one taking of the lock. A heap that ends may give back thousands, while other threads wait. */
#define RELEASE_MOST 64u

static void pool_release_run(struct slab *slab, uint32_t now_ms)
{
    uint32_t number = window_slot_of(slab), mask = (uint32_t)base_low_mask(slab->units) << slab_first_unit(slab);
    struct slot *slot = &shared_pool.slots[number];
    struct superslab *superslab = superslab_of(slab);

    superslab->dense = slab->dense ? superslab->dense | mask : superslab->dense & ~mask;
    if (HAK_SECURE)
        superslab->unclean = slab->unclean ? superslab->unclean | mask : superslab->unclean & ~mask;
    HAK_ASSERT((slot->free & mask) == 0);
    HAK_ASSERT(slab->used == 0 && atomic_load(&slab->remote_count) == 0); /* H5 */
    atomic_store_explicit(&slab->state, SLAB_FREE, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    /* A slab that was taken and never carved is as the system gave it, but open (V16). */
    if (slab->zero && !slab->populated && slot->huge_pages != PAGES_HUGE && !strict_is(number))
        slot->touched &= ~mask;
    else
        shared_pool.units_dirty += slab->units;
    shared_pool.units_used -= slab->units;
    slot->free |= mask;
    if (!atomic_load_explicit(&shared_pool.stale, memory_order_relaxed))
        slot->freed_ms = now_ms;
    shared_pool_move_bucket(number);
    if (slot->bucket == POOL_BUCKET_EMPTY && slot->touched != 0) {
        shared_pool.lru_entered++;
        debug_count(COUNT_LRU_ENTERED);
        if (hak_options.ss_lru_debug)
            base_message("LRU: SuperSlab %u enters, %u are in it", number, shared_pool.dirty_empties);
    }
}

/* Releases some of the slabs. Returns the rest. */
static struct slab *pool_release_some(struct slab *slabs)
{
    size_t excess;
    uint32_t now_ms;

    lock_acquire(&shared_pool.lock);
    now_ms = shared_pool_now_ms();
    for (unsigned count = 0; slabs && count < RELEASE_MOST; count++) {
        struct slab *slab = slabs;
        slabs = slab->next;
        pool_release_run(slab, now_ms);
    }
    footprint_note_low();
    footprint_note_waiting();
    if (shared_pool_lru_excess(&excess) ||
        atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed))
        shared_pool_schedule_purge(0);
    lock_release(&shared_pool.lock);
    return slabs;
}

void shared_pool_release(struct slab *slabs)
{
    while (slabs)
        slabs = pool_release_some(slabs);
}

void *shared_pool_take_metadata_slot(void)
{
    uint32_t number;

    lock_acquire(&shared_pool.lock);
    number = pool_new_slot(SLOT_METADATA);
    if (number && shared_pool.slots[number].huge_pages == PAGES_HUGE && hak_options.thp == OPTION_AUTO) { /* P8 */
        shared_pool.slots[number].huge_pages = PAGES_SMALL;
        os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, false);
    }
    lock_release(&shared_pool.lock);
    return number ? window_slot_address(number) : NULL;
}

size_t shared_pool_prewarm(size_t count)
{
    size_t done = 0;

    lock_acquire(&shared_pool.lock);
    for (; done < count; done++) {
        uint32_t number = pool_new_superslab();
        struct slot *slot = &shared_pool.slots[number];
        if (number == 0 || !os_populate(window_slot_address(number), SUPERSLAB_SIZE))
            break;
        /* Outside its bucket while `touched` changes from 0 (P3). */
        slot->free = 0;
        shared_pool_move_bucket(number);
        slot->free = POOL_ALL_UNITS;
        pool_touch(slot, POOL_ALL_UNITS | 1);
        slot->freed_ms = shared_pool_now_ms();
        ((struct superslab *)window_slot_address(number))->prewarmed = true;
        shared_pool_move_bucket(number);
        shared_pool.units_dirty += SUPERSLAB_UNITS - 1;
        shared_pool.units_prewarmed += SUPERSLAB_UNITS - 1;
        shared_pool.lru_entered++;
        shared_pool.prewarmed++;
        debug_count(COUNT_LRU_ENTERED);
        debug_count(COUNT_PREWARMED);
    }
    lock_release(&shared_pool.lock);
    return done;
}

bool shared_pool_wants_room(size_t bytes)
{
    bool wanted;

    lock_acquire(&shared_pool.lock);
    wanted = footprint_excess(bytes) != 0;
    lock_release(&shared_pool.lock);
    return wanted;
}

bool shared_pool_charge_huge(size_t bytes)
{
    size_t excess;
    unsigned waits = 0;
    bool allowed;

    lock_acquire(&shared_pool.lock);
    excess = footprint_excess(bytes);
    if (HAK_UNLIKELY((excess && footprint_waiting()) || limits_are_due(footprint_of_blocks() + bytes))) {
        lock_release(&shared_pool.lock);
        purge_make_room(excess);
        lock_acquire(&shared_pool.lock);
        excess = footprint_excess(bytes);
    }
    do
        allowed = excess == 0 || footprint_allows(bytes);
    while (HAK_UNLIKELY(!allowed) && footprint_wait(&waits));
    if (allowed) {
        shared_pool.huge_bytes += bytes;
        footprint_note_growth(bytes);
    }
    lock_release(&shared_pool.lock);
    return allowed;
}
