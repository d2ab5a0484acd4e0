/*
 * What the test knows by itself: which blocks are in use, which slabs were released and how they looked then.
 * Against it the allocator's own records are held: the invariants of superslab/superslab.h (H), pool/heap.h (O) and
 * pool/remote.h (M).
 */
#ifndef HAK_TESTS_MF2_LEDGER_H
#define HAK_TESTS_MF2_LEDGER_H

#include "pool/heap.h"

/* Forgets everything: the start of a schedule. And the start of its steps. */
void ledger_start(void);
void ledger_start_watch(void);

/* heap_take_blocks under the heap's lock; no block may come that is in use. Returns the number. */
size_t ledger_take(struct heap *heap, unsigned class, void **out, size_t want);

/* The block's user gives it up: to be called before it is freed, once. */
void ledger_drop(const void *block);

/* After each step: queues are whole, no slab is in two of them or in any once it is released; and the step changed
 * only slabs whose owner's lock was held (H1), and their owner with both locks (O2). */
void ledger_watch(void);

/* When all threads are done, before anything else: every slab whose remote frees are not collected is in one queue
 * (H4), every other mark is collected, no orphan's queue has an entry (O4). */
void ledger_check_settled(void);

/* When all queues are drained: a slab is released iff no block of it is in use, and what is left has its figures
 * right (H1, H2, H6). */
void ledger_check_drained(void);

/* Gives up and frees all blocks in use, as their owners would. */
void ledger_free_all(void);

/* At last: all slabs are released and nobody wrote to them since. */
void ledger_check_released(void);

#endif
