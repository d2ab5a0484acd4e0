/* Entries of thread caches that are no block: addresses inside one, which the program freed. */
#ifndef HAK_FRONT_ENTRIES_H
#define HAK_FRONT_ENTRIES_H

#include "front/thread_cache.h"
#include "pool/slab.h"

/* Whether a block of the class starts at the entry of a stack. If the program frees an address inside a block, the fast
 * path pushes that address. */
HAK_INLINE bool cache_entry_is_block(unsigned class, const void *entry)
{
    unsigned index;

    if (HAK_LIKELY(class_starts_at(class, entry)))
        return true;
    /* If the program freed the block, too, another slab may be in its place by now. */
    return __atomic_load_n(&window_page_map()[window_unit(entry)], __ATOMIC_RELAXED) == class &&
           slab_block_index(slab_of(entry), entry, &index);
}

/* Drops and reports the stack's top entries that are no block of the class. The caller is in a slow call, whose end
 * ends the process (misuse_settle). */
HAK_HIDDEN HAK_COLD void cache_drop_no_blocks(struct thread_cache *cache, struct bin *bin, unsigned class);

/* Pops the top block of the class from one of its two stacks, in a slow call. NULL: none is left. */
HAK_INLINE void *cache_pop_block(struct thread_cache *cache, struct bin *bin, unsigned class)
{
    if (cache->slots[bin->top] == NULL) /* T2 */
        return NULL;
    if (HAK_UNLIKELY(!cache_entry_is_block(class, cache->slots[bin->top])))
        cache_drop_no_blocks(cache, bin, class);
    return cache->slots[bin->top] ? cache_pop(cache, bin) : NULL;
}

#endif
