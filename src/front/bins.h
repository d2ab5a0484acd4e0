/* What the two files of the thread cache share: thread_cache.c, and runs.c for its runs. */
#ifndef HAK_FRONT_BINS_H
#define HAK_FRONT_BINS_H

#include "front/thread_cache.h"

/* How often the hand passes an unused bin before cache_shrink_next closes it. Deep bins get more passes once deep_most
 * has grown: a program that holds a thousand blocks of each class in turn returns to the first class after some hundred
 * slow calls. */
#define HAND_PASSES 1u
#define HAND_PASSES_DEEP 32u
/* Deep bins (T7) may have so much at first. */
#define DEEP_FIRST_BYTES HAK_MIB

HAK_INLINE bool bin_is_deep(const struct thread_cache *cache, unsigned class)
{
    return cache->base[class] >= CACHE_SLOTS;
}

HAK_INLINE unsigned bin_capacity(const struct thread_cache *cache, unsigned class)
{
    return cache->bins[class].limit - cache->base[class];
}

/* Notes a slow call for the class, which keeps its bin open. */
HAK_INLINE void cache_note_busy(struct thread_cache *cache, unsigned class)
{
    cache->busy[class] =
        bin_is_deep(cache, class) && cache->deep_most > DEEP_FIRST_BYTES ? HAND_PASSES_DEEP : HAND_PASSES;
}

/* Counts frees that the bin took. While calls are counted (T8), these alone change the bin between two slow calls. The
 * bin holds `count` blocks, and `left` after this call. Under the heap's lock. */
HAK_INLINE void bin_note_frees(struct thread_cache *cache, unsigned class, unsigned count, unsigned left)
{
    unsigned seen = cache->seen[class];

    cache_set_seen(cache, class, left);
    if (count > seen)
        cache->heap->classes[class].free_hits += count - seen;
}

/* Moves `count` entries of the bin to out[], from the `from`th oldest on. Under the heap's lock (T4). */
HAK_INLINE void bin_take(struct thread_cache *cache, unsigned class, unsigned from, void **out, unsigned count)
{
    unsigned base = cache->base[class], left = cache_count(cache, class) - count;
    void **stack = &cache->slots[base + 1 + from];

    __builtin_memcpy(out, stack, count * sizeof *out);
    __builtin_memmove(stack, stack + count, (left - from) * sizeof *stack);
    bin_set_top(&cache->bins[class], base + left);
}

/* Counts the calls that the run served, as hits and for the profile. Under the heap's lock. */
HAK_HIDDEN void run_settle(struct thread_cache *cache, unsigned class);

/* Draws all countdowns anew. The calls that runs will serve stay without a sample. */
HAK_HIDDEN void runs_draw_anew(struct thread_cache *cache);

/* Returns the run's blocks to their slabs. For the cache's thread, without its heap's lock. */
HAK_HIDDEN void run_flush(struct thread_cache *cache, unsigned class);

#endif
