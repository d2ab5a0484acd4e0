/* Free blocks for requests that the hardened path serves from slabs and spans. */
#ifndef HAK_FRONT_HARDENED_TAKE_H
#define HAK_FRONT_HARDENED_TAKE_H

#include "front/thread_cache.h"

/* Whether a span may serve the request whose canary has no room in it (V20). Such sizes are a span class's size, or up
 * to 7 bytes less. */
HAK_HIDDEN bool hardened_may_be_exact(size_t alignment, size_t size);

/* Bytes that the request takes in a block of the slab, which is more than the block has if it does not fit. */
HAK_HIDDEN size_t hardened_bytes_in(const struct slab *slab, size_t size);

/* A free block for the request, with room for its seal. heap: first-class, or NULL for that of `cache`, which may be
 * NULL. *zero: its memory is known to be zero. NULL: memory is out, or only a mapping has room. For a thread that holds
 * no lock. */
HAK_HIDDEN char *hardened_take(struct thread_cache *cache, struct heap *heap, size_t alignment, size_t size,
                               bool *zero);

#endif
