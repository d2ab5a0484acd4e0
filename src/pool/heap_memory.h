/*
 * The memory of heaps: 15 heaps to a group, whose structs share a page, and whose bodies and thread caches lie in arrays, so that
 * the memory of dead neighbours goes back with one call. Everything here is called under registry.lock.
 */
#ifndef HAK_POOL_HEAP_MEMORY_H
#define HAK_POOL_HEAP_MEMORY_H

#include "pool/heap.h"

/* A zeroed heap with its body and its lock. NULL when memory is out. */
HAK_HIDDEN struct heap *heap_memory_make(void);

/* Zeroed memory of `size` bytes for the heap's cache, for good; the size is the same for all heaps. False when memory is out. */
HAK_HIDDEN bool heap_memory_add_cache(struct heap *heap, size_t size);

/* The heap's body is in use from now on, and with `cache` its cache, too. */
HAK_HIDDEN void heap_memory_use(struct heap *heap, bool cache);

/* What is MEMORY_DEAD of the heap may be purged once it is ripe. */
HAK_HIDDEN void heap_memory_bury(struct heap *heap);

/* What was buried until now is due for a purge, and what the system refused to take before. */
HAK_HIDDEN void heap_memory_ripen(void);

/* Purges what is due in at most `groups` groups; `begin` is called before the body of a heap goes. Returns the bytes. */
HAK_HIDDEN size_t heap_memory_purge(unsigned groups, void (*begin)(struct heap *heap));

/* In the child of a fork: buries anew what is MEMORY_DEAD of all heaps, which are linked by heap.next. */
HAK_HIDDEN void heap_memory_reset_in_child(struct heap *heaps);

/* Whether such a purge has something to do. */
HAK_HIDDEN bool heap_memory_is_due(void);

#endif
