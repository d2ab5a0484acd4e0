/*
 * The descriptor of a 2 MiB slot of the window: the slot's kind, and for a SuperSlab, which units are free. Descriptors
 * lie in the window's head, outside the SuperSlabs, so that an empty SuperSlab can be purged or unmapped whole.
 */
#ifndef HAK_SUPERSLAB_SLOT_H
#define HAK_SUPERSLAB_SLOT_H

#include "config/limits.h"

enum slot_kind {
    SLOT_UNUSED = 0, /* mapped and never used, or not mapped */
    SLOT_SUPERSLAB,
    SLOT_METADATA,
    SLOT_FOREIGN /* a mapping that is not HAKMEM's was in the way (W4) */
};

enum slot_pages {
    PAGES_SMALL = 0, /* huge pages were not asked for */
    PAGES_HUGE,      /* huge pages were asked for; purged whole or at least by halves */
    PAGES_SPLIT      /* huge pages were asked for, and later refused (P7, P8) */
};

/* P1 to P8 are stated in superslab/shared_pool.h. */
struct slot {
    uint32_t free;     /* P1 */
    uint32_t touched;  /* P2 */
    uint32_t aged;     /* free and touched at aged_ms, and not taken since */
    uint32_t aged_ms;  /* when `aged` was last filled */
    uint32_t freed_ms; /* when a unit was last freed, or became touched with its huge page */
    uint32_t next, prev; /* neighbours in the bucket's list; 0: none */
    uint8_t bucket;      /* 0: in none */
    uint8_t kind;        /* enum slot_kind; also read without the lock */
    uint8_t huge_pages;  /* enum slot_pages */
    bool decommitted;    /* EMPTY, and not mapped (P5). Order: release before the unmap; else a hint */
};
_Static_assert(sizeof(struct slot) == 32, "32 units have as many bytes of page map: both grow in the same steps");

HAK_INLINE enum slot_kind slot_kind(const struct slot *slot)
{
    return (enum slot_kind)__atomic_load_n(&slot->kind, __ATOMIC_RELAXED);
}

/* Whether the slot is mapped, and in use for blocks or metadata. */
HAK_INLINE bool slot_is_mapped(const struct slot *slot)
{
    return slot_kind(slot) == SLOT_METADATA ||
           (slot_kind(slot) == SLOT_SUPERSLAB && !__atomic_load_n(&slot->decommitted, __ATOMIC_RELAXED));
}

#endif
