/*
 * The header of a SuperSlab: who owns each slab in it, and which of its blocks are free. Nothing of it lies in or beside
 * user blocks, so no write through a user's pointer reaches it.
 *
 * A slab is a run of units cut into blocks of one class; a span is a slab of one block. Its header is the one of its first unit.
 *
 * H1: used counts the blocks not free in `local`, less those whose remote free is counted and not drained; it is
 *     changed under the owner heap's lock only, like all of the owner's line and `local`.
 * H2: a bit of `local` is set iff the block is free and known to be so by the owner; bit w of `summary` is set iff local[w] != 0.
 * H3: a bit of `remote` is set iff the block was freed by another thread and not collected yet.
 * H4: a slab whose remote_count is not 0 is in exactly one heap's pending queue, or about to be pushed there by the thread
 *     that raised it from 0 (pool/remote.c).
 * H5: used == 0 implies remote_count == 0 and all blocks free in `local`: nobody else will touch the header.
 * H6: a slab in state SLAB_ACTIVE has an owner, and is in that heap's `full` list iff summary == 0, else in its
 *     `available` list of the class.
 */
#ifndef HAK_SUPERSLAB_SUPERSLAB_H
#define HAK_SUPERSLAB_SUPERSLAB_H

#include "config/classes.h"

struct heap;

enum slab_state {
    SLAB_FREE = 0, /* units in the shared pool; the rest of the header means nothing */
    SLAB_WARM,     /* taken from the pool, in a heap's warm pool, ready to carve */
    SLAB_ACTIVE    /* carved: has a class and an owner */
};

struct slab {
    /* The owner's line: H1. `owner` is also read by remote freers. */
    _Alignas(HAK_CACHE_LINE) struct heap *_Atomic owner;
    struct slab *next, *prev; /* in one of the owner's lists */
    char *start;              /* the first block */
    uint64_t summary;
    uint32_t used;
    uint16_t blocks;
    uint8_t class;
    uint8_t units;
    _Atomic uint8_t state; /* enum slab_state */
    bool zero;             /* no byte of the units was written since the system gave them */
    bool populated;        /* zero, but maybe with memory behind it: faulted in and not carved yet */
    bool dense;            /* there is memory behind most of it, as far as is known */
    bool scrubbed;         /* the pages without a block in use were purged, and no block was taken or freed since */
    /* The words that go with it; classes of 1 KiB and more use the first alone. */
    _Alignas(HAK_CACHE_LINE) _Atomic uint64_t local[SLAB_MAP_WORDS];
    /* The remote line and words: any thread, atomically. */
    _Alignas(HAK_CACHE_LINE) _Atomic uint32_t remote_count; /* frees announced and not drained */
    struct slab *pending_next;                             /* in the owner's pending queue */
    _Alignas(HAK_CACHE_LINE) _Atomic uint64_t remote[SLAB_MAP_WORDS];
};

struct superslab {
    uint8_t first_unit[SUPERSLAB_UNITS]; /* of the slab that unit u belongs to; true while it is not SLAB_FREE */
    uint32_t dense;                      /* P6 */
    struct slab slabs[SUPERSLAB_UNITS];  /* [0] is unused: its place is the header's */
    _Atomic uint16_t touched[SUPERSLAB_UNITS]; /* E1, in debug builds: pages of each unit */
};

_Static_assert(sizeof(struct superslab) <= UNIT_SIZE, "the header fits unit 0");
_Static_assert(offsetof(struct slab, local) == HAK_CACHE_LINE, "the owner's fields share one line");

HAK_INLINE struct superslab *superslab_of(const void *address)
{
    return (struct superslab *)((uintptr_t)address & ~(SUPERSLAB_SIZE - 1));
}

/* The slab that `address`, which lies in a SuperSlab beyond unit 0, belongs to if it is in use. */
HAK_INLINE struct slab *slab_of(const void *address)
{
    struct superslab *superslab = superslab_of(address);
    return &superslab->slabs[superslab->first_unit[((uintptr_t)address >> UNIT_SHIFT) & (SUPERSLAB_UNITS - 1)]];
}

HAK_INLINE unsigned slab_first_unit(const struct slab *slab)
{
    return (unsigned)(slab - superslab_of(slab)->slabs);
}

#endif
