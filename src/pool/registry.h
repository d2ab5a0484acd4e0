/* All heaps: creation, orphans and their adoption. Heaps are never freed (O3): the number made is the most ever in use at once. */
#ifndef HAK_POOL_REGISTRY_H
#define HAK_POOL_REGISTRY_H

#include "pool/heap.h"

struct registry {
    struct lock lock;
    struct heap *heaps;            /* all, linked by heap.next, the newest first; never shortened */
    struct heap *orphans;          /* HEAP_THREAD orphans, linked by next_orphan, the last one first */
    struct heap *unused_first_class; /* linked by next_orphan */
    _Atomic uint32_t orphan_count;
    _Atomic uint32_t live_threads; /* threads that have a heap */
    uint32_t count;
    struct heap *house;            /* serves threads past their end; state HEAP_ORPHAN for ever (O4) */
};

HAK_HIDDEN extern struct registry registry;

/* Makes the house heap. False when memory is out. Called under the init lock. */
HAK_HIDDEN bool registry_init(void);

/* A heap for the calling thread: the last orphan with what it owns, or a new one. NULL when memory is out. */
HAK_HIDDEN struct heap *registry_take_heap(void);

/* The thread ends: its heap, with all it owns, becomes an orphan. Its cache has been flushed. */
HAK_HIDDEN void registry_abandon_heap(struct heap *heap);

/* The heap of sampled blocks, which no thread serves (O4). NULL when memory is out. */
HAK_HIDDEN struct heap *registry_new_profile(void);

HAK_HIDDEN struct heap *registry_new_first_class(void);
HAK_HIDDEN void registry_drop_first_class(struct heap *heap);

/* Before a refill takes a new slab: adopts one of the class with free blocks, from an orphan or from a heap that was idle for
 * HAKMEM_MF2_IDLE_THRESHOLD_US with HAKMEM_MF2_ENQUEUE_THRESHOLD slabs pending. Under heap->lock. True when heap->available[class]
 * has a slab. */
HAK_HIDDEN bool registry_adopt(struct heap *heap, unsigned class);

/* For the tick: drains idle heaps' pending queues, gives their warm slabs back, and, of heaps that did nothing since the last tick,
 * the free pages inside their slabs. `all`: of every heap whose lock is free; what they give is stale. Adds the bytes given
 * back at once to *purged. True if a later tick may get more. Holding no lock. */
HAK_HIDDEN bool registry_trim_idle(bool all, size_t *purged);

/* A number that changes whenever a thread is on a slow path. */
HAK_HIDDEN uint32_t registry_activity(void);

#endif
