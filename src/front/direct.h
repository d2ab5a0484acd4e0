/* Blocks that pass no thread cache: out of a heap's slabs, under its lock, or mappings of their own. */
#ifndef HAK_FRONT_DIRECT_H
#define HAK_FRONT_DIRECT_H

#include "pool/heap.h"

/* The class whose blocks are aligned so and hold `size` bytes (S2); CLASS_NONE if only a span at a chosen place or a mapping can be. */
HAK_HIDDEN unsigned direct_class(size_t alignment, size_t size);

/* A block in the heap: for first-class heaps, alignments that no class has, and samples. *zero: it reads as zero. NULL when memory
 * is out. Any thread that holds no lock, as the next three. */
HAK_HIDDEN void *direct_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero);

/* A mapping of its own in place of a block in the heap (NULL: a thread's): there may be room for one when the window is full, or its
 * next pages cannot be committed. NULL when memory is out. */
HAK_HIDDEN void *direct_map(struct heap *heap, size_t alignment, size_t size, bool *zero);

/* One block of the class for a thread without a cache, from the house heap. NULL when memory is out. */
HAK_HIDDEN void *direct_house_allocate(unsigned class, bool *zero);

/* Takes a block back from a thread without a cache. */
HAK_HIDDEN void direct_house_free(unsigned class, void *block, const char *function);

#endif
