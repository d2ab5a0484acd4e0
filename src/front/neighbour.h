/*
 * Where a sampled block would lie without the profile, to tell whose blocks keep a slab in use. The sampled block
 * itself lies in a slab of the profile's heap, which does not show that.
 */
#ifndef HAK_FRONT_NEIGHBOUR_H
#define HAK_FRONT_NEIGHBOUR_H

#include "front/thread_cache.h"

/* The unit, counted from the window's start, of the slab that holds the thread's next block of the class. Without the
 * profile the sampled call would have had that block, or one beside it. 0: none, as unit 0 holds no blocks (W3). */
HAK_INLINE uint32_t neighbour_unit(struct thread_cache *cache, unsigned class)
{
    unsigned count = cache_count(cache, class);
    const char *block = count ? cache->slots[cache->bins[class].top] : NULL;

    if (block == NULL) {
        lock_acquire(&cache->heap->lock);
        if (cache->heap->body->available[class].head)
            block = cache->heap->body->available[class].head->start;
        lock_release(&cache->heap->lock);
    }
    return block ? (uint32_t)((size_t)(block - window_base()) / UNIT_SIZE) : 0;
}

#endif
