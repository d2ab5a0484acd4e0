/*
 * The memory of heaps. A group has 15 heaps. Their structs share a page; their bodies and thread caches lie in arrays,
 * so that one call gives back the memory of dead neighbours. Under registry.lock, unless a function says otherwise.
 */
#ifndef HAK_POOL_HEAP_MEMORY_H
#define HAK_POOL_HEAP_MEMORY_H

#include "pool/heap.h"

/* A zeroed heap with its body and its lock. NULL when memory is out. */
HAK_HIDDEN struct heap *heap_memory_make(void);

/* Gives the heap zeroed memory for its cache, for good: `first_size` bytes to the first heap that calls, `size` to
 * others. All calls have the same sizes. False: memory is out. */
HAK_HIDDEN bool heap_memory_add_cache(struct heap *heap, size_t size, size_t first_size);

/* Whether the heap's cache was the first. Any thread, no lock. */
HAK_HIDDEN bool heap_memory_is_first(const struct heap *heap);

/* Purges the part by which the first cache is larger than others, while nobody uses that part. Only for the cache's
 * thread, without a lock. */
HAK_HIDDEN void heap_memory_purge_rest(struct heap *heap);

/* The heap's body is in use from now on, with `cache` also its cache. */
HAK_HIDDEN void heap_memory_use(struct heap *heap, bool cache);

/* Call when the heap's body or cache became MEMORY_DEAD: the next heap_memory_ripen makes it due for a purge. */
HAK_HIDDEN void heap_memory_bury(struct heap *heap);

/* Makes memory due for a purge that was buried until now, or that the system refused to take before. */
HAK_HIDDEN void heap_memory_ripen(void);

/* Purges due memory of up to `groups` groups. Calls `begin` for a heap before its body goes. Returns the bytes. */
HAK_HIDDEN size_t heap_memory_purge(unsigned groups, void (*begin)(struct heap *heap));

/* In the child of a fork: buries anew all memory that is MEMORY_DEAD. `heaps`: the list of all heaps. */
HAK_HIDDEN void heap_memory_reset_in_child(struct heap *heaps);

/* Whether heap_memory_purge has something to do. */
HAK_HIDDEN bool heap_memory_is_due(void);

#endif
