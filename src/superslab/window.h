/*
 * The window: one stretch of addresses for all SuperSlabs, and the page map, which has a byte for each 64 KiB unit.
 *
 *   hak_window                                                             (aligned to a SuperSlab)
 *   +0          the empty cache: zeros, for threads without a cache            (front/thread_cache.h, T1)
 *   +1 unit     the retired cache: the same, for threads that are exiting
 *   +2 units    page map, one byte for each unit of the window
 *   ...         slot descriptors (superslab/slot.h)
 *   +head       slots of 2 MiB: SuperSlabs and metadata
 *
 * Nothing is reserved. window_init chooses a place with a large hole above it. As the window grows, the page map, the
 * descriptors and the slots are each mapped in steps, at their next address. So only used memory is mapped, and counts
 * for RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK and strict overcommit.
 *
 * W1: hak_units is 0, or the number of units from hak_window to the end of the slots that were ever mapped. It only
 *     grows. Every page-map byte and every slot descriptor below it is readable.
 * W2: a page-map byte is a class id c > 0 only while the unit belongs to a slab of class c whose blocks thread caches
 *     may hold, and a block may start there (in a span: the first unit). It stays while any block of the unit is live
 *     or in a thread cache, except while a span is a sample (Z9). All other bytes are 0, so that free takes no address
 *     behind a span's first unit for a block.
 * W3: before window_init, hak_window points at a page of zeros and hak_units is 0, so that malloc and free reach their
 *     slow paths without an extra check.
 * W4: an address below hak_units may belong to another mapping: one that was there before the window reached it
 *     (SLOT_FOREIGN), or one that the kernel placed where a slot was unmapped. The page map is 0 there, so fast paths
 *     leave the address to slow paths. These call window_contains, which reads the slot's descriptor.
 */
#ifndef HAK_SUPERSLAB_WINDOW_H
#define HAK_SUPERSLAB_WINDOW_H

#include "os/os.h"
#include "superslab/slot.h"

#define WINDOW_RETIRED_CACHE UNIT_SIZE
#define WINDOW_PAGE_MAP (2 * UNIT_SIZE)

/* Order: release in window_take_place. Relaxed: hak_units was read before, or the address is a block's, which a
 * thread gets after both were set. */
HAK_DATA char *hak_window;
/* Order: release; acquire: hak_window and the descriptors. Relaxed for a block. */
HAK_DATA size_t hak_units;
/* By slot number. Those before window_slots_begin() stand for the head, and are all zeros. */
HAK_DATA struct slot *window_slots;
/* How many bytes of the page map are mapped. As many bytes of the descriptors are mapped. */
HAK_DATA size_t window_head_mapped;

/* In libhakmem-secure, a secret from which random places are made. Else 0. */
HAK_DATA uint64_t window_secret;

/* Finds a place, and maps the head and the first slots; idempotent. False: no address space or memory. Under
 * process_lock. */
HAK_HIDDEN bool window_init(void);

/* Maps the next slots, fewer where a limit refuses more. Returns their number; 0: memory or address space is out.
 * *first is the first of them: the slots between the last mapped one and *first are to become SLOT_FOREIGN. *huge_pages
 * tells whether huge pages were asked for (the THP option). Called under pool.lock. */
HAK_HIDDEN size_t window_grow(uint32_t *first, bool *huge_pages);

/* Unmaps the slots from `end` on, which were not used since they were mapped. False: the system refused, and nothing
 * changed. Called under pool.lock. */
HAK_HIDDEN bool window_shrink(uint32_t end);

/* Unmap a slot, and map it again: zeroed, with or without huge pages. Called under pool.lock. */
HAK_HIDDEN bool window_unmap_slot(uint32_t slot);
HAK_HIDDEN enum os_place window_map_slot(uint32_t slot, bool huge_pages);

/* Bytes mapped for the head. */
HAK_HIDDEN size_t window_head_bytes(void);
/* The first usable slot; the end of the slots that were ever mapped (W1), are mapped now, and may ever be mapped. */
HAK_HIDDEN uint32_t window_slots_begin(void);
HAK_HIDDEN uint32_t window_slots_end(void);
HAK_HIDDEN uint32_t window_slots_mapped(void);
HAK_HIDDEN uint32_t window_slots_limit(void);

HAK_INLINE char *window_base(void) { return __atomic_load_n(&hak_window, __ATOMIC_RELAXED); }
HAK_INLINE size_t window_units(void) { return __atomic_load_n(&hak_units, __ATOMIC_RELAXED); }
/* unit >= window_units(). On x86-64 this is one instruction; compilers make two of an atomic load and a comparison. */
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

/* The unit that a block lies in. For an address that is not a multiple of BLOCK_ALIGN the result is beyond the window,
 * because the offset's low four bits become its high ones. This costs one instruction. */
HAK_INLINE size_t window_block_unit(const char *window, const void *block)
{
    size_t offset = (size_t)((const char *)block - window);
    return (offset >> 4 | offset << 60) >> (UNIT_SHIFT - 4);
}
_Static_assert(BLOCK_ALIGN == 1 << 4, "window_block_unit tests as many bits");

HAK_INLINE size_t window_unit(const void *address)
{
    return ((uintptr_t)address - (uintptr_t)window_base()) >> UNIT_SHIFT;
}
HAK_INLINE uint8_t *window_page_map(void) { return (uint8_t *)window_base() + WINDOW_PAGE_MAP; }
HAK_INLINE char *window_slot_address(uint32_t slot) { return window_base() + (size_t)slot * SUPERSLAB_SIZE; }
HAK_INLINE uint32_t window_slot_of(const void *address)
{
    return (uint32_t)(((uintptr_t)address - (uintptr_t)window_base()) >> SUPERSLAB_SHIFT);
}

/* The descriptor of the address's slot; NULL if no slot was ever mapped there. For slow paths. */
HAK_INLINE const struct slot *window_find_slot(const void *address)
{
    /* Acquire, and before hak_window is read: while another thread calls window_init, the units of the new window must
     * not be counted from the old place (W3). */
    size_t units = __atomic_load_n(&hak_units, __ATOMIC_ACQUIRE), unit = window_unit(address);
    return unit < units ? &window_slots[unit / SUPERSLAB_UNITS] : NULL;
}

/* Whether the address lies in a slot that is mapped, and in use for blocks or metadata (W4). */
HAK_INLINE bool window_contains(const void *address)
{
    const struct slot *slot = window_find_slot(address);
    return slot && slot_is_mapped(slot);
}

/* Whether the address lies in a SuperSlab, mapped or unmapped (P5). */
HAK_INLINE bool window_in_superslab(const void *address)
{
    const struct slot *slot = window_find_slot(address);
    return slot && slot_kind(slot) == SLOT_SUPERSLAB;
}

#endif
