/*
 * malloc and free as nearly every call runs them. Anything unusual ends in a tail call.
 *
 * free takes a block's class from the page map alone, and caches blocks of any owner; a flush reads the owner from the
 * slab. free's last test compares with the block freed last: this catches a second free directly after the first. Its
 * first test catches an address that is no multiple of BLOCK_ALIGN: the unit is beyond the window (window_block_unit).
 */
#ifndef HAK_FRONT_FAST_H
#define HAK_FRONT_FAST_H

#include "front/front.h"
#include "front/seal.h"
#include "front/thread_cache.h"

/* If this is 1, every free checks that its block is live (docs/misuse.md). */
enum { CHECK_EVERY_FREE = 0 };

/* Requests above FAST_MAX. They get no address inside a block, whatever the program has freed. */
HAK_HIDDEN void *front_malloc_medium(size_t size);

/* Adds `by` to the top of a bin or run, whose value is `top`, in two instructions where the compiler takes three.
 * Adding to memory would load the top again, and a hit waits for its loads. */
HAK_INLINE void cache_move_top(struct thread_cache *cache, size_t place, size_t top, int by)
{
#if defined(__x86_64__) && defined(__OPTIMIZE__)
    __asm__("addl %2, %k1\n\tmovw %w1, %0" : "=m"(cache->places[place].top), "+r"(top) : "i"(by));
#else
    bin_set_top(&cache->places[place], top + (size_t)by);
#endif
}

/* All arguments but `size` are constants. `offset` leads to the cache. `kind` is the allocating function's (for the
 * hardened library). An entry point that fails in another way than malloc passes its own `medium` and `slow`. */
HAK_INLINE void *front_malloc_from(const uintptr_t *offset, size_t size, enum seal_kind kind, void *(*medium)(size_t),
                                   void *(*slow)(size_t))
{
    struct thread_cache *cache;
    size_t place, top;
    void *block;

    if (HAK_UNLIKELY(size > FAST_MAX - SEAL_ROOM))
        return medium(size);
    cache = (struct thread_cache *)(window_base() + *offset);
    place = cache->class_of[(size + SEAL_ROOM + BLOCK_ALIGN - 1) / BLOCK_ALIGN]; /* the class, or its run (T8) */
    top = cache->places[place].top;
    block = cache->slots[top];
    if (HAK_UNLIKELY(block == NULL)) /* T1, T2 */
        return slow(size);
    cache_move_top(cache, place, top, -1);
    seal_expect(cache->slots[top - 1], place - RUN_BINS);
    return seal_give(block, place - RUN_BINS, size, kind); /* V8 */
}

HAK_INLINE void *front_malloc_or(size_t size, void *(*medium)(size_t), void *(*slow)(size_t))
{
    return front_malloc_from(&hak_cache_offset, size, SEAL_MALLOC, medium, slow);
}

HAK_INLINE void *front_malloc(size_t size)
{
    return front_malloc_from(&hak_cache_offset, size, SEAL_MALLOC, front_malloc_medium, front_malloc_slow);
}

/* False: the fast path cannot take the block. `kind` is the freeing function's (for the hardened library), as is
 * `told`: the size that the caller gives, or SIZE_MAX. */
HAK_INLINE bool front_free_told(const uintptr_t *offset, void *block, size_t told, enum seal_kind kind)
{
    size_t unit, class, top;
    struct thread_cache *cache;
    char *window;

    window = window_base();
    unit = window_block_unit(window, block);
    if (HAK_UNLIKELY(CHECK_EVERY_FREE || window_is_beyond(unit)))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(!seal_is_whole(block, class, told, kind)))
        return false;
    cache = (struct thread_cache *)(window + *offset);
    top = cache->bins[class].top;
    if (HAK_UNLIKELY(top == cache->bins[class].limit || (!HAK_SECURE && cache->slots[top] == block))) /* T1 */
        return false;
    seal_take(block, class);
    heap_count_free(cache->heap, block, (unsigned)class, true);
    cache->slots[top + 1] = block;
    cache_move_top(cache, class, top, 1);
    return true;
}

HAK_INLINE bool front_free_hit(const uintptr_t *offset, void *block, enum seal_kind kind)
{
    return front_free_told(offset, block, SIZE_MAX, kind);
}

/* As front_free_hit, for a block whose size and alignment the caller gives; an alignment of 1 is none. Also false if
 * they do not fit the block's class: then front_free_sized looks closer. */
HAK_INLINE bool front_free_sized_hit(void *block, size_t size, size_t alignment)
{
    size_t unit, class, top;
    struct thread_cache *cache;
    char *window;

    if (HAK_SECURE)
        return alignment == 1 && front_free_told(&hak_cache_offset, block, size, SEAL_MALLOC);
    window = window_base();
    unit = window_block_unit(window, block);
    if (HAK_UNLIKELY(CHECK_EVERY_FREE || window_is_beyond(unit)))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    cache = (struct thread_cache *)(window + hak_cache_offset);
    top = cache->bins[class].top;
    if (HAK_UNLIKELY(!class_fits(class, block, size, alignment) || top == cache->bins[class].limit ||
                     cache->slots[top] == block)) /* T1 */
        return false;
    heap_count_free(cache->heap, block, (unsigned)class, true);
    cache->slots[top + 1] = block;
    cache_move_top(cache, class, top, 1);
    return true;
}

/* `slow` frees blocks that the fast path cannot, under the name that the user called. */
HAK_INLINE void front_free_or(void *block, void (*slow)(void *))
{
    if (!front_free_hit(&hak_cache_offset, block, SEAL_MALLOC))
        slow(block);
}

HAK_INLINE void front_free(void *block)
{
    front_free_or(block, front_free_slow);
}

#endif
