/* Takes blocks from the fullest slabs, to move blocks together (MALLOCX_TCACHE_NONE). In libhakmem-je.so alone. */
#ifndef HAK_POOL_DENSE_H
#define HAK_POOL_DENSE_H

#include "pool/heap.h"

/* A class's slabs that have both blocks in use and free blocks. */
struct dense_usage {
    size_t slabs, used; /* the number of these slabs, and of blocks in use there */
};

/* Moves the fullest of the next DENSE_LOOK available slabs of the class to the head of the list, where heap_take_blocks
 * takes blocks. The slab stays there until it is full: *chosen remembers it between calls. Under heap->lock. */
#define DENSE_LOOK 64u
HAK_HIDDEN void heap_prefer_dense(struct heap *heap, unsigned class, const struct slab **chosen);

/* Adds the heap's slabs. Under heap->lock. */
HAK_HIDDEN void heap_add_dense_usage(const struct heap *heap, unsigned class, struct dense_usage *usage);

#endif
