#include <string.h>

#include "harden/sweep_map.h"
#include "os/lock.h"
#include "os/os.h"
#include "pool/huge.h"
#include "superslab/footprint.h"
#include "superslab/metadata.h"

/* Each takes up to two mappings: all take at most an eighth of vm.max_map_count at its default. */
#define LARGE_MOST 4096u

struct large {
    uintptr_t start;
    size_t size;
    bool passed; /* as in struct sweep_word */
};

/* The waiting huge blocks, in no order, under huge_lock. Any thread adds entries; only a sweep removes them. */
static struct large *large_table; /* Order: release as it is made, acquire without the lock: large_candidates */
static unsigned large_count;

/* The sweep's candidates, by address. For the sweeping thread alone. */
static struct large_candidate {
    uintptr_t start;
    size_t size;
    uint32_t place; /* in the table */
    bool found;
} *large_candidates;
static unsigned large_candidate_count;

/* ---- Waiting ---- */

static bool large_have_table(void)
{
    struct large *new_table;

    if (__atomic_load_n(&large_table, __ATOMIC_ACQUIRE))
        return true;
    new_table = metadata_allocate(LARGE_MOST * (sizeof *large_table + sizeof *large_candidates), 16);
    if (new_table == NULL)
        return false;
    lock_acquire(&huge_lock);
    if (large_table == NULL) {
        large_candidates = (struct large_candidate *)(void *)(new_table + LARGE_MOST);
        __atomic_store_n(&large_table, new_table, __ATOMIC_RELEASE);
    }
    lock_release(&huge_lock);
    return true;
}

bool sweep_large_is_full(void) { return __atomic_load_n(&large_count, __ATOMIC_RELAXED) >= LARGE_MOST / 2; }

/* Makes addresses wait that have no memory and are inaccessible. */
static bool large_wait(char *start, size_t size)
{
    bool waits;

    lock_acquire(&huge_lock);
    waits = large_count < LARGE_MOST;
    if (waits) {
        large_table[large_count] = (struct large){ .start = (uintptr_t)start, .size = size };
        __atomic_store_n(&large_count, large_count + 1, __ATOMIC_RELAXED);
    }
    lock_release(&huge_lock);
    if (waits) {
        size_t cost = sweep_cost_of_addresses(size);
        if (atomic_fetch_add(&sweep.waiting, cost) + cost >=
                atomic_load_explicit(&sweep.trigger, memory_order_relaxed) ||
            sweep_large_is_full())
            atomic_store(&sweep.due, true);
    }
    return waits;
}

static void large_unmap(uintptr_t start, size_t size) { os_unmap((void *)start, size); }

bool sweep_free_huge(void *block)
{
    size_t size = huge_take_out(block);
    bool waits;

    if (size == 0)
        return false;
    /* The footprint does not count waiting addresses: they have no memory. */
    footprint_huge_waits(size);
    footprint_huge_leaves(size);
    waits = large_have_table() && os_purge(block, size) && os_protect(block, size, false) && large_wait(block, size);
    if (!waits)
        large_unmap((uintptr_t)block, size);
    footprint_huge_left(size);
    return true;
}

void sweep_hold_addresses(void *address, size_t bytes)
{
    if (!large_have_table() || os_map_at(address, bytes) != OS_PLACE_MAPPED)
        return; /* another thread has mapped something there */
    if (!os_protect(address, bytes, false) || !large_wait(address, bytes))
        large_unmap((uintptr_t)address, bytes);
}

size_t sweep_large_waiting(void)
{
    size_t cost = 0;

    lock_acquire(&huge_lock);
    for (unsigned i = 0; i < large_count; i++)
        cost += sweep_cost_of_addresses(large_table[i].size);
    lock_release(&huge_lock);
    return cost;
}

/* ---- A sweep ---- */

/* Shell sort: there are few, and the C library's sort might allocate. */
static void large_sort(void)
{
    for (unsigned gap = large_candidate_count / 2; gap > 0; gap /= 2) {
        for (unsigned i = gap; i < large_candidate_count; i++) {
            struct large_candidate moved = large_candidates[i];
            unsigned at = i;
            for (; at >= gap && large_candidates[at - gap].start > moved.start; at -= gap)
                large_candidates[at] = large_candidates[at - gap];
            large_candidates[at] = moved;
        }
    }
}

void sweep_large_begin(void)
{
    lock_acquire(&huge_lock);
    large_candidate_count = large_count;
    for (unsigned i = 0; i < large_count; i++)
        large_candidates[i] = (struct large_candidate){ large_table[i].start, large_table[i].size, i, false };
    lock_release(&huge_lock);
    large_sort();
}

void sweep_large_bounds(uintptr_t *low, uintptr_t *span)
{
    const struct large_candidate *last = large_candidates + large_candidate_count - 1;

    *low = large_candidate_count ? large_candidates[0].start : 0;
    *span = large_candidate_count ? last->start + last->size - *low : 0;
}

void sweep_large_mark(uintptr_t address)
{
    unsigned low = 0, high = large_candidate_count;

    while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (large_candidates[middle].start <= address)
            low = middle;
        else
            high = middle;
    }
    if (large_candidate_count && address - large_candidates[low].start < large_candidates[low].size)
        large_candidates[low].found = true;
}

size_t sweep_large_end(bool deaf, bool all)
{
    size_t released = 0;
    unsigned kept = 0;

    /* Entries behind large_candidate_count came later. Size 0 marks entries that leave, and candidates that stay. */
    lock_acquire(&huge_lock);
    for (unsigned i = 0; i < large_candidate_count; i++) {
        struct large *large = &large_table[large_candidates[i].place];
        bool leaves = all || (!large_candidates[i].found && (!deaf || large->passed));
        large->passed = deaf && !large_candidates[i].found;
        if (leaves)
            large->size = 0;
        else
            large_candidates[i].size = 0;
    }
    for (unsigned i = 0; i < large_count; i++)
        if (large_table[i].size)
            large_table[kept++] = large_table[i];
    __atomic_store_n(&large_count, kept, __ATOMIC_RELAXED);
    lock_release(&huge_lock);
    for (unsigned i = 0; i < large_candidate_count; i++) {
        if (large_candidates[i].size == 0)
            continue;
        atomic_fetch_sub(&sweep.waiting, sweep_cost_of_addresses(large_candidates[i].size));
        large_unmap(large_candidates[i].start, large_candidates[i].size);
        released++;
    }
    large_candidate_count = 0;
    return released;
}
