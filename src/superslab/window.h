/*
 * The window: one range of address space that holds every pooled block, and the page map that tells what each 64 KiB
 * unit of it is. Reserved whole at start, committed in growing steps.
 *
 *   hak_window                                                             (aligned to a SuperSlab)
 *   +0          the empty cache: zeros, what a thread without a cache uses     (front/thread_cache.h, T1)
 *   +1 unit     the retired cache: the same, for threads that are exiting
 *   +2 units    page map, one byte a unit of the window
 *   ...         slot descriptors (superslab/shared_pool.h)
 *   +head       slots of 2 MiB: SuperSlabs and metadata
 *
 * W1: hak_units is 0 or the number of units from hak_window to the end of the committed slots; it only grows, and every
 *     page-map byte below it is readable.
 * W2: a page-map byte is a class id c > 0 only while the unit belongs to a slab of class c owned by a thread's heap; the class stays
 *     true while any block of the unit is live or in a thread cache. Everything else is 0.
 * W3: before window_init, hak_window points at a page of zeros and hak_units is 0, so that malloc and free fall through to
 *     their slow paths without a check.
 */
#ifndef HAK_SUPERSLAB_WINDOW_H
#define HAK_SUPERSLAB_WINDOW_H

#include "config/limits.h"

#define WINDOW_RETIRED_CACHE UNIT_SIZE
#define WINDOW_PAGE_MAP (2 * UNIT_SIZE)

HAK_HIDDEN extern char *hak_window;
HAK_HIDDEN extern size_t hak_units;

/* Reserves the window; idempotent. False when there is no address space or memory for it. Called under the init lock. */
HAK_HIDDEN bool window_init(void);

/* Commits the next slots, at least one. Returns how many (0: out of memory or address space) and the first one's number.
 * *huge_pages tells whether the THP option let huge pages be asked for. Called under the pool's lock. */
HAK_HIDDEN size_t window_commit_slots(uint32_t *first, bool *huge_pages);

/* Bytes committed for the head, the slots of the window in all, and the slots before the first usable one. */
HAK_HIDDEN size_t window_head_bytes(void);
HAK_HIDDEN uint32_t window_slots_end(void);
HAK_HIDDEN uint32_t window_slots_begin(void);

HAK_INLINE char *window_base(void) { return __atomic_load_n(&hak_window, __ATOMIC_RELAXED); }
HAK_INLINE size_t window_units(void) { return __atomic_load_n(&hak_units, __ATOMIC_RELAXED); }
/* unit >= window_units(), on x86-64 in the one instruction that compilers make two of for an atomic load. */
HAK_INLINE bool window_is_beyond(size_t unit)
{
#if defined(__x86_64__)
    bool beyond;
    __asm__("cmpq %2, %1" : "=@ccae"(beyond) : "r"(unit), "m"(hak_units));
    return beyond;
#else
    return unit >= window_units();
#endif
}

HAK_INLINE size_t window_unit(const void *address) { return ((uintptr_t)address - (uintptr_t)window_base()) >> UNIT_SHIFT; }
HAK_INLINE bool window_contains(const void *address) { return window_unit(address) < window_units(); }
HAK_INLINE uint8_t *window_page_map(void) { return (uint8_t *)window_base() + WINDOW_PAGE_MAP; }
HAK_INLINE char *window_slot_address(uint32_t slot) { return window_base() + (size_t)slot * SUPERSLAB_SIZE; }
HAK_INLINE uint32_t window_slot_of(const void *address)
{
    return (uint32_t)(((uintptr_t)address - (uintptr_t)window_base()) >> SUPERSLAB_SHIFT);
}

#endif
