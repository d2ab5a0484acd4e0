/* What an address is: the live block that starts there, as far as can be seen. */
#ifndef HAK_FRONT_BLOCK_H
#define HAK_FRONT_BLOCK_H

#include <errno.h>

#include "pool/heap.h"

struct block {
    size_t size;       /* usable bytes; 0: no block, and reported */
    struct slab *slab; /* NULL: huge */
    struct heap *heap; /* its first-class heap, or NULL */
};

/* The slab in use that an address of the window lies in, or NULL. Any thread, any address. */
HAK_HIDDEN struct slab *block_active_slab(const void *address);

/* Finds the live block that starts at the address, or reports misuse of `function`. A block in some thread's cache looks alive. */
HAK_HIDDEN struct block block_find(const void *address, const char *function);

/* Whether a block of `old` usable bytes should stay where it is for `size` bytes: it fits, and not much of it is wasted. */
HAK_INLINE bool block_may_stay(size_t old, size_t size)
{
    return size <= old && (size >= old / 2 || old <= 64);
}

HAK_INLINE void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* A block in a heap under its lock: for first-class heaps, alignments that no class has, and threads without a cache. *zero: it reads as
 * zero. NULL when memory is out. */
HAK_HIDDEN void *allocate_in_heap(struct heap *heap, size_t alignment, size_t size, bool *zero);

#endif
