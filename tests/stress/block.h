/*
 * The test's own record of a block of the allocator: what was asked for, and what must hold of it.
 *
 * V1 (no overlap): the usable bytes of all blocks adopted at one moment are disjoint. A shadow map, one bit for each
 *    16 bytes of address space, is set and cleared with atomics; a bit found set already is an overlap.
 * V2 (contents): each block carries a pattern made from its seed; it reads back until the block is released.
 */
#ifndef TESTS_STRESS_BLOCK_H
#define TESTS_STRESS_BLOCK_H

#include "support.h"

struct block {
    unsigned char *start; /* NULL: no block */
    size_t size;          /* as asked for */
    size_t usable;        /* as hak_usable_size says */
    size_t alignment;     /* as asked for; 16 when none was */
    uint64_t seed;
};

/* Takes a block fresh from the allocator: checks its alignment and usable size, marks it and writes its pattern. */
void block_adopt(struct block *block, void *start, size_t size, size_t alignment, uint64_t seed);

/* Checks the pattern. */
void block_verify(const struct block *block);
/* Checks that part of the pattern that lies in the first `bytes`, at an address the contents may have moved to. */
void block_verify_at(const struct block *block, const void *start, size_t bytes);

/* Checks the pattern and unmarks the block: it may go back to the allocator. The record keeps its values but start. */
void *block_release(struct block *block);

/* Fails unless the first `bytes` are zero; large blocks are looked at in places. */
void block_check_zero(const void *start, size_t bytes);

/* Usable bytes of all adopted blocks, at this moment and at most. */
size_t block_live_bytes(void);
size_t block_live_peak(void);
size_t block_live_count(void);

#endif
