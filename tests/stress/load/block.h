/*
 * The test's own record of a block: what was requested, and what must hold.
 *
 * V1 (no overlap): the usable bytes of all live records are disjoint. A shadow map has an atomic bit for each 16 bytes
 *    of address space. A bit that is set already is an overlap.
 * V2 (contents): a pattern made from the block's seed reads back until the block is released.
 */
#ifndef TESTS_STRESS_BLOCK_H
#define TESTS_STRESS_BLOCK_H

#include "support.h"

struct block {
    unsigned char *start; /* NULL: no block */
    size_t size;          /* as requested */
    size_t usable;        /* by hak_usable_size */
    size_t alignment;     /* as requested, or 16 */
    uint64_t seed;
};

/* Takes over a fresh block: checks its alignment and usable size, marks it and writes its pattern. */
void block_adopt(struct block *block, void *start, size_t size, size_t alignment, uint64_t seed);

/* Checks the pattern. */
void block_verify(const struct block *block);
/* Checks the part of the pattern in the first `bytes`, at an address to which the contents may have moved. */
void block_verify_at(const struct block *block, const void *start, size_t bytes);

/* Checks the pattern and unmarks the block, which may then be freed. Clears only the record's start. */
void *block_release(struct block *block);

/* Fails unless the first `bytes` are zero. Samples large blocks. */
void block_check_zero(const void *start, size_t bytes);

/* Usable bytes of all live records, now and at most. */
size_t block_live_bytes(void);
size_t block_live_peak(void);
size_t block_live_count(void);

#endif
