/*
 * The test's own record of the blocks in use, and of the slabs released and their contents then. The test compares the
 * allocator's records with it: the invariants of superslab/superslab.h (H), pool/heap.h (O) and pool/remote.h (M).
 */
#ifndef HAK_TESTS_MF2_LEDGER_H
#define HAK_TESTS_MF2_LEDGER_H

#include "pool/heap.h"

/* ledger_start forgets everything before a schedule. ledger_start_watch begins its steps. */
void ledger_start(void);
void ledger_start_watch(void);

/* heap_take_blocks under the heap's lock. Fails if a block comes that is in use. Returns the number. */
size_t ledger_take(struct heap *heap, unsigned class, void **out, size_t want);

/* The block's user gives it up. Call it once, before the block is freed. */
void ledger_drop(const void *block);

/* After each step: queues are whole; a slab is in one queue at most, and in none once released; the step changed only
 * slabs whose owner's lock was held (H1), and their owner only under both locks (O2). */
void ledger_watch(void);

/* When all threads are done: every slab with uncollected remote frees is in one queue (H4), every other mark is
 * collected, and no orphan's queue has an entry (O4). */
void ledger_check_settled(void);

/* When all queues are drained: a slab is released iff no block of it is in use, and the figures of all others are right
 * (H1, H2, H6). */
void ledger_check_drained(void);

/* `more` blocks are being freed remotely, or fewer if it is negative. */
void ledger_note_batch(int more);

/* In the child of a fork: all heaps are orphans or serve; slabs are whole; no block in use is free; only blocks are
 * lost that threads were freeing. */
void ledger_check_child(void);

/* The name of a field of a slab, a heap or the registry. Leaves `name` as it is for other addresses. */
void ledger_describe(const void *address, char *name, size_t size);

/* Gives up and frees all blocks in use, as their owners would. */
void ledger_free_all(void);

/* At the end: all slabs are released, and nobody wrote to them since. */
void ledger_check_released(void);

#endif
