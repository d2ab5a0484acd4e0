/*
 * The window: one stretch of addresses that holds every pooled block, and the page map that tells what each 64 KiB unit of it is.
 *
 *   hak_window                                                             (aligned to a SuperSlab)
 *   +0          the empty cache: zeros, what a thread without a cache uses     (front/thread_cache.h, T1)
 *   +1 unit     the retired cache: the same, for threads that are exiting
 *   +2 units    page map, one byte a unit of the window
 *   ...         slot descriptors (superslab/slot.h)
 *   +head       slots of 2 MiB: SuperSlabs and metadata
 *
 * Nothing is reserved. window_init chooses a place with a large hole above it, and the page map, the descriptors and the slots are
 * each mapped in steps, at the next address, as the window grows. So what is mapped is what is used, and that alone counts for
 * RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK and strict overcommit.
 *
 * W1: hak_units is 0 or the number of units from hak_window to the end of the slots that were ever mapped; it only grows, and every
 *     page-map byte and every slot descriptor below it is readable.
 * W2: a page-map byte is a class id c > 0 only while the unit belongs to a slab of class c owned by a thread's heap; the class stays
 *     true while any block of the unit is live or in a thread cache. Everything else is 0.
 * W3: before window_init, hak_window points at a page of zeros and hak_units is 0, so that malloc and free fall through to
 *     their slow paths without a check.
 * W4: an address below hak_units may belong to somebody else: to a mapping that was there before the window reached it (SLOT_FOREIGN),
 *     or to one that the kernel placed where a slot was unmapped. The page map is 0 there, so the fast paths leave such an address
 *     to the slow paths, and those ask window_contains, which asks the slot's descriptor too.
 */
#ifndef HAK_SUPERSLAB_WINDOW_H
#define HAK_SUPERSLAB_WINDOW_H

#include "os/os.h"
#include "superslab/slot.h"

#define WINDOW_RETIRED_CACHE UNIT_SIZE
#define WINDOW_PAGE_MAP (2 * UNIT_SIZE)

HAK_DATA char *hak_window;
HAK_DATA size_t hak_units;
/* By slot number; those before window_slots_begin() stand for the head and are all zeros. */
HAK_DATA struct slot *window_slots;
/* Bytes of the page map that are mapped, and as many of descriptors. */
HAK_DATA size_t window_head_mapped;

/* Finds a place, and maps the head and the first slots; idempotent. False when there is no address space or memory for it. Called
 * under the init lock. */
HAK_HIDDEN bool window_init(void);

/* Maps the next slots, at least one, and fewer than wanted where a limit refuses more. Returns how many, and the first one's number:
 * those between the last mapped slot and that one become SLOT_FOREIGN. 0: out of memory or address space. *huge_pages tells
 * whether the THP option let huge pages be asked for. Called under the pool's lock. */
HAK_HIDDEN size_t window_grow(uint32_t *first, bool *huge_pages);

/* Unmaps the slots from `end` on, none of which was used since it was mapped. False: the system refused, nothing changed. Called under
 * the pool's lock. */
HAK_HIDDEN bool window_shrink(uint32_t end);

/* Unmaps a slot, and maps it again, zeroed, with or without huge pages. Called under the pool's lock. */
HAK_HIDDEN bool window_unmap_slot(uint32_t slot);
HAK_HIDDEN enum os_place window_map_slot(uint32_t slot, bool huge_pages);

/* Bytes mapped for the head. */
HAK_HIDDEN size_t window_head_bytes(void);
/* The slots before the first usable one; the end of those ever mapped (W1), of those mapped now, and of those that may ever be. */
HAK_HIDDEN uint32_t window_slots_begin(void);
HAK_HIDDEN uint32_t window_slots_end(void);
HAK_HIDDEN uint32_t window_slots_mapped(void);
HAK_HIDDEN uint32_t window_slots_limit(void);

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
HAK_INLINE uint8_t *window_page_map(void) { return (uint8_t *)window_base() + WINDOW_PAGE_MAP; }
HAK_INLINE char *window_slot_address(uint32_t slot) { return window_base() + (size_t)slot * SUPERSLAB_SIZE; }
HAK_INLINE uint32_t window_slot_of(const void *address)
{
    return (uint32_t)(((uintptr_t)address - (uintptr_t)window_base()) >> SUPERSLAB_SHIFT);
}

/* The descriptor of the slot that the address lies in; NULL if none was ever mapped there. For slow paths. */
HAK_INLINE const struct slot *window_find_slot(const void *address)
{
    size_t unit = window_unit(address);
    return unit < __atomic_load_n(&hak_units, __ATOMIC_ACQUIRE) ? &window_slots[unit / SUPERSLAB_UNITS] : NULL;
}

/* Whether the address lies in a slot that is mapped for HAKMEM and in use (W4). */
HAK_INLINE bool window_contains(const void *address)
{
    const struct slot *slot = window_find_slot(address);
    return slot && slot_is_mapped(slot);
}

/* Whether the address lies in a SuperSlab, or in one that is unmapped (P5). */
HAK_INLINE bool window_in_superslab(const void *address)
{
    const struct slot *slot = window_find_slot(address);
    return slot && slot_kind(slot) == SLOT_SUPERSLAB;
}

#endif
