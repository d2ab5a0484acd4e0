/*
 * MF2: how blocks return to their slab when a thread that does not own the slab frees them.
 *
 * The freer sets the blocks' bits in the slab's remote map, one atomic OR a word, and then announces their number in
 * remote_count. The thread that raises the count from 0 pushes the slab onto its owner's pending queue, once. The owner
 * drains the queue on its slow path: it takes the queue with one exchange, and a slab's bits with one a word.
 *
 * States of a slab, as the documents name them:
 *   OWNED      remote_count == 0
 *   PENDING    remote_count != 0: in the owner's queue, or about to be
 *   ABANDONED  the owner is HEAP_ORPHAN: the thread that makes the slab pending drains it (O4)
 *   ADOPTING   a refill holds both heaps' locks and changes `owner`; a drain forwards an entry that was left behind
 *   FREE       used == 0
 *
 * M1: bits are set before they are announced, and a slab is not released before all announced frees are drained (H1).
 *     So a freer that need not push never touches the slab after its announcement. A freer that pushes touches it while
 *     its own announced blocks keep the slab in use.
 * M2: a drain reads an entry's pending_next before it takes the entry's count: from then on it may be pushed anew.
 * M3: pending_count is never less than the number of slabs in the queue: a push counts and then links, a drain unlinks
 *     and then counts.
 * M4: from before a freer announces frees of a slab until it has pushed the slab, if it must, remote_freers names the
 *     freer and the slab. So the child of a fork, in which the freer is gone, finds the slab and pushes it.
 */
#ifndef HAK_POOL_REMOTE_H
#define HAK_POOL_REMOTE_H

#include "pool/heap.h"

/* A thread in the midst of remote_free_blocks. Order: release as `token` becomes 0, for the copy of a fork. */
struct remote_freer {
    _Alignas(HAK_CACHE_LINE) _Atomic uintptr_t token; /* 0: the place is free; else the thread's os_thread_token() */
    struct slab *_Atomic slab;
};
/* Threads that find no place free blocks under the owners' locks. That happens only if as many threads are preempted in
 * the midst of a remote free. */
enum { REMOTE_FREERS = 32 };
HAK_DATA struct remote_freer remote_freers[REMOTE_FREERS];

/* Frees blocks of one class that other heaps own, in any order, in batches of 48. Under no lock. */
HAK_HIDDEN void remote_free_blocks(unsigned class, void *const *blocks, size_t count, const char *function);

/* Drains the heap's pending queue. Returns the number of slabs. Under heap->lock. */
HAK_HIDDEN size_t remote_drain(struct heap *heap);

/* Frees one block under its owner's lock: first-class heaps, spans, HAKMEM_MF2_ENABLE=0. Under no other lock. False: it
 * is no live block, which is reported. */
HAK_HIDDEN bool remote_free_locked(void *block, const char *function);

/* In the child of a fork: pushes the slabs that vanished threads had announced and not pushed. `heaps`: the list of
 * all. `whole`: the fork interrupted no operation under a lock. Otherwise the thread may hold a queue in its registers,
 * and these slabs stay out. */
HAK_HIDDEN void remote_reset_in_child(const struct heap *heaps, bool whole);

#endif
