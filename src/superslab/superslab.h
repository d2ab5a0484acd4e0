/*
 * The header of a SuperSlab: which heap owns each slab, and which blocks of the slab are free. The header does not lie
 * in or beside user blocks, so no write through a user's pointer reaches it.
 *
 * A slab is a run of units cut into blocks of one class, a span a slab of one block. Its header is slabs[first unit].
 *
 * H1: used counts the blocks not free in `local`, and those that a drain moved there before their number was taken from
 *     remote_count. It changes under the owner heap's lock only, like `local` and all of the owner's line.
 * H2: a bit of `local` is set iff the block is free and its owner knows it; bit w of `summary`, iff local[w] != 0.
 * H3: a bit of `remote` is set iff another thread freed the block and the owner has not collected it yet.
 * H4: a slab whose remote_count is not 0 is in exactly one heap's pending queue, or the thread that raised the count
 *     from 0 is about to push it there (pool/remote.c).
 * H5: used == 0 implies remote_count == 0 and all blocks free in `local`: no other thread will touch the header.
 * H6: a slab in state SLAB_ACTIVE has an owner. It is in that heap's `full` list iff summary == 0, else in the heap's
 *     `available` list of the class.
 * H7: any thread may read the last line, without a lock; only carving, adoption and the shared pool change it. A thread
 *     that frees blocks of another heap's slab reads it before it marks them, and `owner` again if it pushes the slab:
 *     its blocks keep the slab in use (M1), so only an adoption can come between. Freers do not touch the owner's line.
 *     Other threads read it under the owner's lock, but for `local` and `used` when a program asks about a block.
 */
#ifndef HAK_SUPERSLAB_SUPERSLAB_H
#define HAK_SUPERSLAB_SUPERSLAB_H

#include "config/classes.h"

struct heap;

enum slab_state {
    SLAB_FREE = 0, /* its units are in the shared pool; the rest of the header means nothing */
    SLAB_WARM,     /* taken from the shared pool, and ready to carve */
    SLAB_ACTIVE    /* carved: has a class and an owner */
};

struct slab {
    /* The owner's line (H1). */
    _Alignas(HAK_CACHE_LINE) uint64_t summary;
    struct slab *next, *prev; /* neighbours in one of the owner's lists */
    uint32_t used;
    bool zero;             /* no byte of the units was written since the system gave them */
    bool populated;        /* zero, but perhaps with memory behind it: it was faulted in and not carved yet */
    bool dense;            /* there is probably memory behind most of it */
    bool unclean;          /* its units may have what was in a large block (V7) */
    bool scrubbed;         /* the pages without a block in use were purged, and no block was taken or freed since */
    bool holes;            /* some were purged, and no block was taken since */
    /* The first three words lie in the owner's line. Classes from 384 B on use no others. Order: relaxed (H1). */
    _Atomic uint64_t local[SLAB_MAP_WORDS];
    /* Any thread changes these. From 192 bytes on all words lie in the count's line: a freer writes one line. */
    _Alignas(HAK_CACHE_LINE) _Atomic uint32_t remote_count; /* frees announced, not drained. Order: release, acquire */
    struct slab *pending_next;                             /* the next slab in the owner's pending queue */
    _Atomic uint64_t remote[SLAB_MAP_WORDS]; /* Order: release by a freer, acquire by a drain: accesses to the blocks */
    /* The last line (H7). The last two words of `remote` lie there, too: only blocks of 16 bytes use them. */
    struct heap *_Atomic owner; /* Order: release by carving, adoption; acquire: its fields */
    char *start;                /* the first block */
    uint16_t blocks;
    uint8_t class;
    uint8_t units;
    _Atomic uint64_t given; /* libhakmem-secure: pages that blocks came from since the carving. Order: relaxed */
    _Atomic uint8_t state; /* enum slab_state. Order: release in slab_carve, acquire without the lock: all fields */
};

struct superslab {
    uint8_t first_unit[SUPERSLAB_UNITS]; /* [u]: first unit of unit u's slab; valid unless that is SLAB_FREE */
    uint32_t dense;                      /* P6 */
    uint32_t guards;                     /* V14 (superslab/strict.h) */
    uint32_t unclean;                    /* libhakmem-secure: units that may have what was in a large block (V7) */
    bool prewarmed;                      /* made ready at start, and not used since: no purge delay ends its wait */
    struct slab slabs[SUPERSLAB_UNITS];  /* [0] is unused: unit 0 holds this header */
    _Atomic uint16_t touched[SUPERSLAB_UNITS]; /* debug builds: a bit for each page of a unit. Order: relaxed (E1) */
};

_Static_assert(sizeof(struct superslab) <= UNIT_SIZE, "the header fits unit 0");
_Static_assert(offsetof(struct slab, local) + 3 * sizeof(uint64_t) == HAK_CACHE_LINE,
               "the owner's fields and the first words share one line");
_Static_assert(offsetof(struct slab, owner) / HAK_CACHE_LINE == sizeof(struct slab) / HAK_CACHE_LINE - 1,
               "H7: what any thread reads lies in the last line");

HAK_INLINE struct superslab *superslab_of(const void *address)
{
    return (struct superslab *)((uintptr_t)address & ~(SUPERSLAB_SIZE - 1));
}

/* The slab of `address`, which lies in a SuperSlab beyond unit 0, if that slab is in use. */
HAK_INLINE struct slab *slab_of(const void *address)
{
    struct superslab *superslab = superslab_of(address);
    return &superslab->slabs[superslab->first_unit[((uintptr_t)address >> UNIT_SHIFT) & (SUPERSLAB_UNITS - 1)]];
}

/* The bit of slab.given for the page of an address in a slab of slots: these have at most 3 units. */
HAK_INLINE uint64_t slab_page_bit(const struct slab *slab, const char *at, size_t page)
{
    return UINT64_C(1) << ((size_t)(at - slab->start) / page % 64);
}

HAK_INLINE unsigned slab_first_unit(const struct slab *slab)
{
    return (unsigned)(slab - superslab_of(slab)->slabs);
}

#endif
