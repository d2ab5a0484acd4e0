/* Blocks that bypass the thread caches: from a heap's slabs under its lock, or mappings of their own. */
#ifndef HAK_FRONT_DIRECT_H
#define HAK_FRONT_DIRECT_H

#include "pool/heap.h"

/* The class whose blocks have the alignment and hold `size` bytes (S2, S4). CLASS_NONE: a placed span or a mapping can.
 */
HAK_INLINE unsigned direct_class(size_t alignment, size_t size)
{
    return HAK_UNLIKELY(size > POOLED_MAX || alignment > UNIT_SIZE)
               ? CLASS_NONE
               : class_of_size(base_align_up(base_max(size, 1), alignment));
}

/* Usable bytes of a block of that size and alignment (1: none), from a thread's cache or past it. 0: there can be no
 * such block. Guarded blocks have fewer, and blocks that were mapped because memory was short may have more. */
HAK_HIDDEN size_t direct_size(size_t alignment, size_t size);

/* A block of the heap: for first-class heaps, alignments that no class has, and samples. *zero: it reads as zero. NULL
 * when memory is out. Any thread that holds no lock, as for the next three. */
HAK_HIDDEN void *direct_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero);

/* A mapping in place of a block of the heap (NULL: of a thread's). There may be room for one when the window is full or
 * cannot commit its next pages. NULL when memory is out. */
HAK_HIDDEN void *direct_map(struct heap *heap, size_t alignment, size_t size, bool *zero);

/* One block of the class for a thread without a cache, from the house heap. NULL when memory is out. */
HAK_HIDDEN void *direct_house_allocate(unsigned class, bool *zero);

/* Takes a block back past the cache of a thread that the heap serves. `function` is the public name. */
HAK_HIDDEN void direct_free(struct heap *heap, unsigned class, void *block, const char *function);

/* Takes a block back from a thread without a cache. */
HAK_HIDDEN void direct_house_free(unsigned class, void *block, const char *function);

#endif
