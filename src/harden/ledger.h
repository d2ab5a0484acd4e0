/*
 * The sizes of the spans that a program holds, out of reach of its writes: behind struct superslab in the SuperSlab's
 * header unit.
 */
#ifndef HAK_HARDEN_LEDGER_H
#define HAK_HARDEN_LEDGER_H

#include "harden/seal.h"
#include "superslab/superslab.h"

/* Of a span: the requested size plus 1, and the kind above it; 0: the program does not hold it (V6). Order: release and
 * acquire by ledger_take; else relaxed. */
struct ledger {
    uint32_t spans[SUPERSLAB_UNITS]; /* by the first unit */
};

enum {
    LEDGER_OFFSET = (sizeof(struct superslab) + HAK_CACHE_LINE - 1) / HAK_CACHE_LINE * HAK_CACHE_LINE,
    LEDGER_KIND_SHIFT = 28
};
_Static_assert(LEDGER_OFFSET + sizeof(struct ledger) <= UNIT_SIZE, "the ledger fits unit 0");
_Static_assert(POOLED_MAX < UINT32_C(1) << LEDGER_KIND_SHIFT, "a word holds each size");

HAK_INLINE uint32_t *ledger_of(const struct slab *slab)
{
    return &((struct ledger *)((char *)superslab_of(slab) + LEDGER_OFFSET))->spans[slab_first_unit(slab)];
}

HAK_INLINE void ledger_put(struct slab *slab, size_t requested, enum seal_kind kind)
{
    __atomic_store_n(ledger_of(slab), (uint32_t)requested + 1 + ((uint32_t)kind << LEDGER_KIND_SHIFT),
                     __ATOMIC_RELAXED);
}

/* False: the program does not hold the span. */
HAK_INLINE bool ledger_read(const struct slab *slab, size_t *requested, enum seal_kind *kind)
{
    uint32_t word = __atomic_load_n(ledger_of(slab), __ATOMIC_RELAXED);

    *requested = (word & ((UINT32_C(1) << LEDGER_KIND_SHIFT) - 1)) - 1;
    *kind = (enum seal_kind)(word >> LEDGER_KIND_SHIFT);
    return word != 0;
}

/* Takes the record off. False: another thread did since it was read. Release: the checks came before. Acquire: the
 * erasing comes after. */
HAK_INLINE bool ledger_take(struct slab *slab)
{
    return __atomic_exchange_n(ledger_of(slab), 0, __ATOMIC_ACQ_REL) != 0;
}

/* Forgets a span, or none. */
HAK_INLINE void ledger_clear(struct slab *slab) { __atomic_store_n(ledger_of(slab), 0, __ATOMIC_RELAXED); }

/* The guard word behind the requested bytes of a span or huge block: no byte of it is zero. The lower bits of the mix
 * are the same for all these blocks, so they come last. */
HAK_INLINE uint64_t seal_word(const void *block)
{
    return __builtin_bswap64(seal_mix(block)) | UINT64_C(0x0101010101010101);
}

#endif
