/* The code that taking and purging units share: a slot's tier, its huge pages, and when a purge is due. */
#include "superslab/shared_pool.h"

#include "options/options.h"
#include "superslab/footprint.h"
#include "superslab/strict.h"

HAK_DATA_HERE struct shared_pool shared_pool = { .lock = LOCK_INIT(LOCK_RANK_POOL) };

uint32_t shared_pool_now_ms(void) { return (uint32_t)(os_now_coarse() / 1000000) | 1; }

void shared_pool_schedule_purge(uint64_t delay_ms)
{
    uint32_t when = (uint32_t)(shared_pool_now_ms() + delay_ms) | 1;
    uint32_t due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);

    if (due == 0 || (int32_t)(when - due) < 0)
        atomic_store_explicit(&shared_pool.next_purge_ms, when, memory_order_release);
}

void shared_pool_want_purge_slow(void) { shared_pool_schedule_purge(hak_options.purge_delay); }

/* Puts the slot into the bucket of its number of free units (P3): at the head, or at the tail if it has no memory, so
 * that slots with memory are used first. */
void shared_pool_move_bucket(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];
    unsigned bucket = base_count_bits(slot->free), old = slot->bucket;

    bucket += bucket == POOL_BUCKET_EMPTY && slot->touched == 0 && slot->huge_pages != PAGES_SMALL;
    if (strict_is(number))
        bucket = strict_bucket(number);
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

void shared_pool_end_prewarmed(struct superslab *superslab)
{
    superslab->prewarmed = false;
    shared_pool.units_prewarmed -= SUPERSLAB_UNITS - 1;
}

size_t shared_pool_excess(void)
{
    return hak_options.ss_lru_size == SS_LRU_SIZE_DEFAULT ? footprint_waits_too_much() : 0;
}

/* No SuperSlab may wait when the system is out of memory (P5). While the option has its default value, may_wait bytes
 * may wait (N6), and no more than N7 allows. */
uint32_t shared_pool_lru_excess(size_t *bytes)
{
    size_t most = shared_pool_shortage() != SHORTAGE_NONE ? 0 : (size_t)hak_options.ss_lru_size;
    size_t dirty = shared_pool.units_dirty * UNIT_SIZE;

    *bytes = most == SS_LRU_SIZE_DEFAULT ? shared_pool_excess() : 0;
    if (*bytes)
        return shared_pool.dirty_empties;
    *bytes = SIZE_MAX;
    if (shared_pool.dirty_empties <= most)
        return 0;
    if (most == SS_LRU_SIZE_DEFAULT && shared_pool.may_wait) {
        if (dirty <= shared_pool.may_wait)
            return 0;
        *bytes = dirty - shared_pool.may_wait;
    }
    return shared_pool.dirty_empties - (uint32_t)most;
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

/* ---- Address space given back (P5) ---- */

size_t shared_pool_unmap(uint32_t number)
{
    struct slot *slot = &shared_pool.slots[number];

    HAK_ASSERT(slot->free == POOL_ALL_UNITS && slot->touched == 0);
    if (slot->decommitted || shared_pool.decommitted >= POOL_UNMAPPED_MAX)
        return 0;
    /* Set before another mapping may take the place (W4). */
    __atomic_store_n(&slot->decommitted, true, __ATOMIC_RELEASE);
    if (!window_unmap_slot(number)) {
        __atomic_store_n(&slot->decommitted, false, __ATOMIC_RELAXED);
        return 0;
    }
    shared_pool.decommitted++;
    return SUPERSLAB_SIZE;
}

size_t shared_pool_unmap_unused(void)
{
    size_t bytes = (size_t)(shared_pool.slots_committed - shared_pool.slots_unused) * SUPERSLAB_SIZE;

    if (bytes == 0 || !window_shrink(shared_pool.slots_unused))
        return 0;
    shared_pool.slots_committed = shared_pool.slots_unused;
    return bytes;
}
