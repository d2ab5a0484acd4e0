/*
 * MF2: how blocks freed by a thread that does not own their slab come home.
 *
 * The freer sets the blocks' bits in the slab's remote map, one atomic OR a word, and then announces their number in remote_count.
 * Whoever raises that from 0 pushes the slab onto its owner's pending queue, once. The owner drains the queue on its
 * slow path: it takes the whole queue with one exchange, and each slab's bits with one exchange a word.
 *
 * States of a slab, as the documents name them:
 *   OWNED      remote_count == 0
 *   PENDING    remote_count != 0: in the owner's queue, or about to be
 *   ABANDONED  the owner is HEAP_ORPHAN: whoever makes the slab pending drains it (O4)
 *   ADOPTING   a refill holds both heaps' locks and changes `owner`; a queue entry left behind is forwarded when drained
 *   FREE       used == 0
 *
 * M1: bits are set before they are announced, and a slab is not released before all that was announced is drained (H1): after its
 *     announcement a freer that does not push never touches the slab again, and one that pushes does so while its own
 *     announced blocks keep the slab in use.
 * M2: a queue entry is read (pending_next) before its count is taken, because from then on it may be pushed anew.
 * M3: pending_count is at no time less than the number of slabs in the queue: a push counts before it links, a drain after it
 *     unlinked.
 */
#ifndef HAK_POOL_REMOTE_H
#define HAK_POOL_REMOTE_H

#include "pool/heap.h"

/* Returns blocks of one class that other heaps own, in any order, those of a slab together as far as 128 blocks go. Holding no lock. */
HAK_HIDDEN void remote_free_blocks(unsigned class, void *const *blocks, size_t count, const char *function);

/* Collects what is pending in the heap's queue. Returns the number of slabs. Under heap->lock. */
HAK_HIDDEN size_t remote_drain(struct heap *heap);

/* Frees one block under its owner's lock: first-class heaps, spans, HAKMEM_MF2_ENABLE=0. Holding no lock. */
HAK_HIDDEN void remote_free_locked(void *block, const char *function);

#endif
