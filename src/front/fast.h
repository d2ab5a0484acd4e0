/*
 * malloc and free as nearly every call runs them. Anything unusual ends in a tail call.
 *
 * A block's class comes from the page map alone: blocks of any owner are cached alike, and flush asks the slab whose they are. The
 * last test of free compares with the block freed last: a second free directly after the first is caught here.
 */
#ifndef HAK_FRONT_FAST_H
#define HAK_FRONT_FAST_H

#include "front/front.h"
#include "front/thread_cache.h"

/* One constant away: a build that checks at every free that the block is a live one (docs/misuse.md). */
enum { CHECK_EVERY_FREE = 0 };

/* Requests above FAST_MAX. */
HAK_HIDDEN void *front_malloc_medium(size_t size);

/* Moves the top of a class's stack, which is `top` now. On x86-64 in two instructions, which the compiler would make three of; one
 * that adds to memory would load the top again, and loads are what a hit waits for. */
HAK_INLINE void cache_move_top(struct thread_cache *cache, size_t class, size_t top, int by)
{
#if defined(__x86_64__) && defined(__OPTIMIZE__)
    __asm__("addl %2, %k1\n\tmovw %w1, %0" : "=m"(cache->bins[class].top), "+r"(top) : "i"(by));
#else
    bin_set_top(&cache->bins[class], top + (size_t)by);
#endif
}

/* `offset`, `medium` and `slow` are constants: where the cache is, and what is called in place of front_malloc_medium and
 * front_malloc_slow by an entry point whose failure is not malloc's. */
HAK_INLINE void *front_malloc_from(const uintptr_t *offset, size_t size, void *(*medium)(size_t), void *(*slow)(size_t))
{
    struct thread_cache *cache;
    size_t class, top;
    void *block;

    if (HAK_UNLIKELY(size > FAST_MAX))
        return medium(size);
    cache = (struct thread_cache *)(window_base() + *offset);
    class = cache->class_of[(size + BLOCK_ALIGN - 1) / BLOCK_ALIGN];
    top = cache->bins[class].top;
    block = cache->slots[top];
    if (HAK_UNLIKELY(block == NULL)) /* T1, T2 */
        return slow(size);
    cache_move_top(cache, class, top, -1);
    return block;
}

HAK_INLINE void *front_malloc_or(size_t size, void *(*medium)(size_t), void *(*slow)(size_t))
{
    return front_malloc_from(&hak_cache_offset, size, medium, slow);
}

HAK_INLINE void *front_malloc(size_t size)
{
    return front_malloc_from(&hak_cache_offset, size, front_malloc_medium, front_malloc_slow);
}

/* False: the fast path cannot take the block. */
HAK_INLINE bool front_free_hit(const uintptr_t *offset, void *block)
{
    char *window = window_base();
    size_t unit = (size_t)((char *)block - window) >> UNIT_SHIFT, class, top;
    struct thread_cache *cache;

    if (HAK_UNLIKELY(window_is_beyond(unit) || CHECK_EVERY_FREE))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    cache = (struct thread_cache *)(window + *offset);
    top = cache->bins[class].top;
    if (HAK_UNLIKELY(top == cache->bins[class].limit || cache->slots[top] == block)) /* T1 */
        return false;
    cache->slots[top + 1] = block;
    cache_move_top(cache, class, top, 1);
    return true;
}

/* `slow` takes what the fast path cannot, under the name that the user called. */
HAK_INLINE void front_free_or(void *block, void (*slow)(void *))
{
    if (!front_free_hit(&hak_cache_offset, block))
        slow(block);
}

HAK_INLINE void front_free(void *block)
{
    front_free_or(block, front_free_slow);
}

#endif
