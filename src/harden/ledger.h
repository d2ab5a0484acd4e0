/*
 * The sizes of the larger blocks that a program holds, out of reach of its writes: a ledger for each slab, behind
 * struct superslab in the SuperSlab's header unit.
 *
 * V5: a free is valid only if it takes off the block's seal. seal_take is one atomic exchange, so of several frees at
 *     the same moment one takes the seal, and the others are reported. A free that comes when the program has the block
 *     again takes the new seal.
 * V6: a block has a seal (harden/seal.h) from before the program gets it until its free, and at no other time. Blocks
 *     of 1 KiB and more have their sizes in `sizes`, 0 for no seal; smaller ones have them in their own last 8 bytes.
 * V7: a free block reads as zero wherever it waits, and so does every unit of the shared pool.
 */
#ifndef HAK_HARDEN_LEDGER_H
#define HAK_HARDEN_LEDGER_H

#include "superslab/superslab.h"

/* The most blocks in a slab that has their sizes in the ledger. */
#define LEDGER_SIZES 64u

struct ledger {
    uint32_t sizes[LEDGER_SIZES]; /* Order: release and acquire by seal_take; acquire by look.c; else relaxed */
};

enum { LEDGER_OFFSET = (sizeof(struct superslab) + HAK_CACHE_LINE - 1) / HAK_CACHE_LINE * HAK_CACHE_LINE };
_Static_assert(LEDGER_OFFSET + SUPERSLAB_UNITS * sizeof(struct ledger) <= UNIT_SIZE, "the ledgers fit unit 0");

/* The slab's ledger. */
HAK_INLINE struct ledger *ledger_of(const struct slab *slab)
{
    return (struct ledger *)((char *)superslab_of(slab) + LEDGER_OFFSET) + slab_first_unit(slab);
}

/* Forgets all blocks of the slab. */
HAK_INLINE void ledger_clear(struct ledger *ledger) { __builtin_memset(ledger, 0, sizeof *ledger); }

#endif
