#include "superslab/shared_pool.h"

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"

#define POOL_ALL_UNITS (~(uint32_t)1) /* every unit but the header's */

struct shared_pool shared_pool = { .lock = LOCK_INIT(LOCK_RANK_POOL) };

void shared_pool_init(struct slot *slots, uint32_t first, uint32_t end)
{
    shared_pool.slots = slots;
    shared_pool.slots_unused = first;
    shared_pool.slots_committed = end;
    for (; first < end; first++)
        slots[first].huge_pages = hak_options.thp == OPTION_ALWAYS ? PAGES_HUGE : PAGES_SMALL;
}

uint32_t shared_pool_now_ms(void) { return (uint32_t)(os_now_coarse() / 1000000) | 1; }

void shared_pool_schedule_purge(uint64_t delay_ms)
{
    uint32_t when = (uint32_t)(shared_pool_now_ms() + delay_ms) | 1;
    uint32_t due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);

    if (due == 0 || (int32_t)(when - due) < 0)
        atomic_store_explicit(&shared_pool.next_purge_ms, when, memory_order_release);
}

void shared_pool_want_purge_slow(void) { shared_pool_schedule_purge(hak_options.purge_delay); }

/* P3: puts the slot into the bucket of its number of free units: at the head, or at the tail if no memory is behind it, so that
 * memory that is there is used first. */
void shared_pool_move_bucket(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];
    unsigned bucket = base_count_bits(slot->free), old = slot->bucket;

    bucket += bucket == POOL_BUCKET_EMPTY && slot->touched == 0 && slot->huge_pages != PAGES_SMALL;
    if (bucket == old)
        return;
    if (old != 0) {
        if (slot->prev)
            shared_pool.slots[slot->prev].next = slot->next;
        else
            shared_pool.heads[old] = slot->next;
        if (slot->next)
            shared_pool.slots[slot->next].prev = slot->prev;
        else
            shared_pool.tails[old] = slot->prev;
        if (shared_pool.heads[old] == 0)
            shared_pool.bucket_mask &= ~(UINT64_C(1) << old);
        shared_pool.dirty_empties -= old == POOL_BUCKET_EMPTY && slot->touched != 0;
    }
    slot->bucket = (uint8_t)bucket;
    slot->prev = 0;
    slot->next = 0;
    if (bucket == 0)
        return;
    if (slot->touched == 0) {
        slot->prev = shared_pool.tails[bucket];
        shared_pool.tails[bucket] = number;
        if (slot->prev)
            shared_pool.slots[slot->prev].next = number;
        else
            shared_pool.heads[bucket] = number;
    } else {
        slot->next = shared_pool.heads[bucket];
        shared_pool.heads[bucket] = number;
        if (slot->next)
            shared_pool.slots[slot->next].prev = number;
        else
            shared_pool.tails[bucket] = number;
    }
    shared_pool.bucket_mask |= UINT64_C(1) << bucket;
    shared_pool.dirty_empties += bucket == POOL_BUCKET_EMPTY && slot->touched != 0;
}

/* The next slot never used, committing more when needed; 0 when there is none. */
static uint32_t pool_new_slot(enum slot_kind kind)
{
    uint32_t number;

    if (shared_pool.slots_unused == shared_pool.slots_committed) {
        uint32_t first;
        bool huge_pages;
        size_t count = window_commit_slots(&first, &huge_pages);
        if (count == 0) {
            atomic_store_explicit(&shared_pool.tight, true, memory_order_relaxed);
            return 0;
        }
        shared_pool.slots_committed = first + (uint32_t)count;
        for (number = first; huge_pages && number < shared_pool.slots_committed; number++)
            shared_pool.slots[number].huge_pages = PAGES_HUGE;
    }
    number = shared_pool.slots_unused++;
    shared_pool.slots[number].kind = (uint8_t)kind;
    return number;
}

static uint32_t pool_new_superslab(void)
{
    uint32_t number = pool_new_slot(SLOT_SUPERSLAB);

    if (number == 0)
        return 0;
    shared_pool.slots[number].free = POOL_ALL_UNITS;
    shared_pool.superslabs++;
    debug_count(COUNT_REFILL_NEW_SUPERSLAB);
    shared_pool_move_bucket(number);
    return number;
}

/* The units at which a run of `units` units of the mask starts. */
static uint32_t pool_run_starts(uint32_t mask, unsigned units)
{
    while (units > 1) {
        unsigned half = units / 2;
        mask &= mask >> half;
        units -= half;
    }
    return mask;
}

/* The start of a run of the units in mask, in the shortest stretch of them that has one; 0 if there is none. */
static unsigned pool_best_run(uint32_t mask, unsigned units, unsigned align_units)
{
    uint32_t starts = pool_run_starts(mask, units), longer;
    unsigned best = 0, best_length = SUPERSLAB_UNITS + 1;

    if (starts == 0)
        return 0;
    if (align_units == 1) {
        longer = pool_run_starts(mask, units + 1);
        starts &= ~(longer | longer << 1); /* stretches of just the length */
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

/* The same among the slot's free units, those that suit the use first (P6). */
static unsigned pool_find_run(uint32_t number, unsigned units, unsigned align_units, enum pool_use use)
{
    const struct slot *slot = &shared_pool.slots[number];
    uint32_t touched = slot->free & slot->touched, dense;
    unsigned start = 0;

    if (pool_run_starts(slot->free, units) == 0)
        return 0;
    if (touched) {
        dense = touched & ((struct superslab *)window_slot_address(number))->dense;
        start = pool_best_run(use == POOL_DENSE ? dense : touched & ~dense, units, align_units);
        if (start == 0 && use == POOL_DENSE)
            start = pool_best_run(touched, units, align_units);
        if (start == 0 && use == POOL_SPARSE)
            start = pool_best_run(slot->free & ~dense, units, align_units);
    }
    return start ? start : pool_best_run(slot->free, units, align_units);
}

bool shared_pool_split(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];

    if (slot->huge_pages != PAGES_HUGE)
        return false;
    slot->huge_pages = PAGES_SPLIT;
    return ++shared_pool.split <= POOL_SPLIT_MAX;
}

void shared_pool_split_at(const void *address)
{
    uint32_t number = window_slot_of(address);
    bool split;

    lock_acquire(&shared_pool.lock);
    split = shared_pool_split(number);
    lock_release(&shared_pool.lock);
    if (split)
        os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, false);
}

/* P7: of a slot that begins anew, before its header is written. */
static void pool_join(uint32_t number)
{
    shared_pool.slots[number].huge_pages = PAGES_HUGE;
    shared_pool.split--;
    os_advise_huge(window_slot_address(number), SUPERSLAB_SIZE, true);
}

static struct slab *pool_take_run(uint32_t number, unsigned start, unsigned units)
{
    struct slot *slot = &shared_pool.slots[number];
    struct superslab *superslab = (struct superslab *)window_slot_address(number);
    struct slab *slab = &superslab->slabs[start];
    uint32_t mask = (uint32_t)base_low_mask(units) << start;
    unsigned unit;

    HAK_ASSERT((slot->free & mask) == mask);
    HAK_ASSERT(slot->huge_pages != PAGES_HUGE || (slot->touched | 1) == 1 || (slot->touched | 1) == UINT32_MAX); /* P7 */
    if (slot->huge_pages == PAGES_SPLIT && slot->touched == 0)
        pool_join(number);
    slab->zero = (slot->touched & mask) == 0;
    slab->populated = false;
    slab->dense = (superslab->dense & slot->touched & mask) != 0;
    shared_pool.units_dirty -= base_count_bits(slot->touched & mask);
    shared_pool.units_used += units;
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
        /* The first touch brings the whole huge page. */
        slot->touched = POOL_ALL_UNITS & ~mask;
        shared_pool.units_dirty += base_count_bits(slot->touched);
        shared_pool_want_purge();
    }
    slot->touched |= mask | 1;
    for (unit = start; unit < start + units; unit++)
        superslab->first_unit[unit] = (uint8_t)start;
    slab->start = (char *)superslab + (size_t)start * UNIT_SIZE;
    slab->units = (uint8_t)units;
    slab->class = CLASS_NONE;
    atomic_store_explicit(&slab->state, SLAB_WARM, memory_order_relaxed);
    return slab;
}

/* The slot to take the next run from: the fullest HOT one with room, then DRAINING and EMPTY ones the same way (they are
 * the higher buckets), then a new one. */
static uint32_t pool_choose_slot(unsigned units, unsigned align_units, enum pool_use use, unsigned *start)
{
    enum { TRIES = 8 }; /* per bucket: SuperSlabs in pieces must not make a search long */
    uint64_t buckets = shared_pool.bucket_mask & ~base_low_mask(units);
    uint32_t number;

    for (; buckets; buckets &= buckets - 1) {
        number = shared_pool.heads[base_low_bit(buckets)];
        for (unsigned tries = 0; number && tries < TRIES; tries++) {
            *start = pool_find_run(number, units, align_units, use);
            if (*start)
                return number;
            number = shared_pool.slots[number].next;
        }
    }
    number = pool_new_superslab();
    if (number)
        *start = pool_find_run(number, units, align_units, use);
    return number;
}

static size_t pool_footprint(void)
{
    return (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE + shared_pool.huge_bytes;
}

size_t shared_pool_footprint(void)
{
    size_t footprint;

    lock_acquire(&shared_pool.lock);
    footprint = pool_footprint();
    lock_release(&shared_pool.lock);
    return footprint;
}

static void pool_note_peak(void)
{
    size_t footprint = pool_footprint();

    if (footprint > shared_pool.footprint_peak)
        shared_pool.footprint_peak = footprint;
}

static bool pool_within_limits(size_t bytes)
{
    size_t footprint = pool_footprint() + bytes;

    if (HAK_UNLIKELY(hak_options.memory_limit_soft && footprint > hak_options.memory_limit_soft)) {
        atomic_store_explicit(&shared_pool.over_soft_limit, true, memory_order_relaxed);
        shared_pool_schedule_purge(0);
    }
    if (HAK_LIKELY(hak_options.memory_limit == 0))
        return true;
    return shared_pool.units_used * UNIT_SIZE + shared_pool.huge_bytes + bytes <= hak_options.memory_limit;
}

/* P5 */
static bool pool_make_writable(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];

    if (slot->decommitted && os_commit(window_slot_address(number), SUPERSLAB_SIZE)) {
        slot->decommitted = false;
        shared_pool.decommitted--;
    }
    return !slot->decommitted;
}

size_t shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use, struct slab **slabs)
{
    size_t taken = 0;

    lock_acquire(&shared_pool.lock);
    while (taken < count && pool_within_limits(units * UNIT_SIZE)) {
        unsigned start = 0;
        uint32_t number = pool_choose_slot(units, align_units, use, &start);
        if (number == 0 || !pool_make_writable(number))
            break;
        slabs[taken++] = pool_take_run(number, start, units);
        /* One SuperSlab's runs in a row, while they last: contiguous memory populates in one call. */
        while (taken < count && pool_within_limits(units * UNIT_SIZE) &&
               (start = pool_find_run(number, units, align_units, use)) != 0)
            slabs[taken++] = pool_take_run(number, start, units);
    }
    pool_note_peak();
    lock_release(&shared_pool.lock);
    return taken;
}

/* P5: nothing may wait when the system is out of memory. */
size_t shared_pool_lru_size(void)
{
    return atomic_load_explicit(&shared_pool.tight, memory_order_relaxed) ? 0 : (size_t)hak_options.ss_lru_size;
}

void shared_pool_release(struct slab *slab)
{
    uint32_t number = window_slot_of(slab), mask = (uint32_t)base_low_mask(slab->units) << slab_first_unit(slab);
    struct slot *slot = &shared_pool.slots[number];
    struct superslab *superslab = superslab_of(slab);

    lock_acquire(&shared_pool.lock);
    superslab->dense = slab->dense ? superslab->dense | mask : superslab->dense & ~mask;
    HAK_ASSERT((slot->free & mask) == 0);
    HAK_ASSERT(slab->used == 0 && atomic_load(&slab->remote_count) == 0); /* H5 */
    atomic_store_explicit(&slab->state, SLAB_FREE, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, NULL, memory_order_relaxed);
    /* A slab that was taken and never carved is still as the system gave it. */
    if (slab->zero && !slab->populated && slot->huge_pages != PAGES_HUGE)
        slot->touched &= ~mask;
    else
        shared_pool.units_dirty += slab->units;
    shared_pool.units_used -= slab->units;
    slot->free |= mask;
    if (!atomic_load_explicit(&shared_pool.stale, memory_order_relaxed))
        slot->freed_ms = shared_pool_now_ms();
    shared_pool_move_bucket(number);
    if (slot->bucket == POOL_BUCKET_EMPTY && slot->touched != 0) {
        shared_pool.lru_entered++;
        debug_count(COUNT_LRU_ENTERED);
        if (hak_options.ss_lru_debug)
            base_message("LRU: SuperSlab %u enters, %u are in it", number, shared_pool.dirty_empties);
    }
    if (HAK_UNLIKELY(shared_pool.units_dirty >= POOL_MUCH_FREE &&
                     !atomic_load_explicit(&shared_pool.much_free, memory_order_relaxed))) {
        atomic_store_explicit(&shared_pool.much_free, true, memory_order_relaxed);
        shared_pool_schedule_purge(0); /* a tick that may start the purge thread */
    }
    if (shared_pool.dirty_empties > shared_pool_lru_size() ||
        atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed))
        shared_pool_schedule_purge(0);
    lock_release(&shared_pool.lock);
    shared_pool_want_purge();
}

void *shared_pool_take_metadata_slot(void)
{
    uint32_t number;

    lock_acquire(&shared_pool.lock);
    number = pool_new_slot(SLOT_METADATA);
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
        /* Out of its bucket while it changes sides there (P3). */
        slot->free = 0;
        shared_pool_move_bucket(number);
        slot->free = POOL_ALL_UNITS;
        slot->touched = POOL_ALL_UNITS | 1;
        slot->freed_ms = shared_pool_now_ms();
        shared_pool_move_bucket(number);
        shared_pool.units_dirty += SUPERSLAB_UNITS - 1;
        shared_pool.lru_entered++;
        shared_pool.prewarmed++;
        debug_count(COUNT_LRU_ENTERED);
        debug_count(COUNT_PREWARMED);
    }
    shared_pool_schedule_purge(hak_options.purge_delay);
    lock_release(&shared_pool.lock);
    return done;
}

bool shared_pool_charge_huge(size_t bytes)
{
    bool allowed;

    lock_acquire(&shared_pool.lock);
    allowed = pool_within_limits(bytes);
    if (allowed)
        shared_pool.huge_bytes += bytes;
    lock_release(&shared_pool.lock);
    return allowed;
}

void shared_pool_note_huge_mapped(void)
{
    lock_acquire(&shared_pool.lock);
    pool_note_peak();
    lock_release(&shared_pool.lock);
}

void shared_pool_uncharge_huge(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    shared_pool.huge_bytes -= bytes;
    lock_release(&shared_pool.lock);
}
