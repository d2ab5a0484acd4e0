/*
 * The operations of front.h and fast.h as libhakmem-je has them: they count the bytes that each thread allocates and
 * frees, and allocate in the arena that the thread is bound to. je/entry.h gives them front's names.
 *
 * Q1: a thread that is bound to a heap, or wants no cache, has none (front_set_thread_cached), so malloc's fast path
 *     misses, and counted_malloc_miss looks at `bound`.
 */
#ifndef HAK_JE_COUNTED_H
#define HAK_JE_COUNTED_H

#include "front/fast.h"

struct counted {
    uint64_t allocated, freed; /* bytes by the thread since its start, rounded up to the blocks' sizes */
    struct heap *bound;        /* the first-class heap of its malloc, or NULL */
    bool uncached;             /* it wants no cache */
};
HAK_DATA _Thread_local struct counted counted __attribute__((tls_model("initial-exec")));

/* The usable size of a live block. */
HAK_INLINE size_t counted_size(const void *block)
{
    char *window = window_base();
    size_t unit = window_block_unit(window, block), class = CLASS_NONE;

    if (!window_is_beyond(unit))
        class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    return class != CLASS_NONE ? class_bounds.size[class] : front_block_size(block);
}

/* The same for a block that is or was in a thread's cache. */
HAK_INLINE size_t counted_cached_size(const void *block)
{
    char *window = window_base();
    size_t unit = (size_t)((const char *)block - window) >> UNIT_SHIFT;

    return class_bounds.size[__atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED)];
}

/* ---- malloc. The names after `counted_` are those after `front_` ---- */

/* Calls that the fast path cannot serve. */
HAK_HIDDEN void *counted_malloc_miss(size_t size);
HAK_HIDDEN void *counted_malloc_at(size_t size, const void *site);
HAK_HIDDEN void *counted_malloc_cohort(size_t size, uint32_t key, const void *site);

/* A block of the heap; NULL: of the thread's cache, also for a thread that is bound. */
HAK_HIDDEN void *counted_alloc_in(struct heap *heap, size_t alignment, size_t size, bool zeroed);
HAK_HIDDEN void *counted_uncached_alloc(size_t alignment, size_t size, bool zeroed);

/* For front_malloc_from, which ends there if it has no block. */
HAK_INLINE void *counted_no_block(size_t size)
{
    (void)size;
    return NULL;
}

HAK_INLINE void *counted_malloc_from(const uintptr_t *offset, size_t size, enum seal_kind kind,
                                     void *(*medium)(size_t), void *(*slow)(size_t))
{
    void *block = front_malloc_from(offset, size, kind, counted_no_block, counted_no_block);

    if (HAK_UNLIKELY(block == NULL))
        return size > FAST_MAX ? medium(size) : slow(size);
    counted.allocated += counted_cached_size(block);
    return block;
}

HAK_INLINE void *counted_malloc_or(size_t size, void *(*medium)(size_t), void *(*slow)(size_t))
{
    return counted_malloc_from(&hak_cache_offset, size, SEAL_MALLOC, medium, slow);
}

HAK_INLINE void *counted_malloc(size_t size)
{
    return counted_malloc_or(size, counted_malloc_miss, counted_malloc_miss);
}

HAK_INLINE void *counted_calloc(size_t count, size_t size)
{
    size_t bytes;

    return counted_alloc_in(counted.bound, BLOCK_ALIGN, __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes,
                            true);
}

HAK_INLINE void *counted_aligned_alloc(size_t alignment, size_t size)
{
    return counted_alloc_in(counted.bound, alignment, size, false);
}

/* ---- free ---- */

HAK_HIDDEN void counted_free_named(void *block, const char *function);
HAK_HIDDEN void counted_free_slow(void *block);
HAK_HIDDEN void counted_free_sized(void *block, size_t size, size_t alignment, const char *function);
HAK_HIDDEN void counted_uncached_free(void *block, const char *function);

/* Counts a block that the fast path took. */
HAK_INLINE bool counted_freed(const void *block)
{
    counted.freed += counted_cached_size(block);
    return true;
}

HAK_INLINE bool counted_free_told(const uintptr_t *offset, void *block, size_t told, enum seal_kind kind)
{
    return front_free_told(offset, block, told, kind) && counted_freed(block);
}

HAK_INLINE bool counted_free_sized_hit(void *block, size_t size, size_t alignment)
{
    return front_free_sized_hit(block, size, alignment) && counted_freed(block);
}

HAK_INLINE void counted_free_or(void *block, void (*slow)(void *))
{
    if (!counted_free_told(&hak_cache_offset, block, SIZE_MAX, SEAL_MALLOC))
        slow(block);
}

HAK_INLINE void counted_free(void *block) { counted_free_or(block, counted_free_slow); }

/* ---- Other sizes, batches, first-class heaps ---- */

HAK_HIDDEN void *counted_realloc(void *block, size_t size, const char *function);
HAK_HIDDEN size_t counted_expand(void *block, size_t size);
HAK_HIDDEN size_t counted_resize_in_place(void *block, size_t size, const char *function);
HAK_HIDDEN size_t counted_malloc_batch(size_t size, size_t count, void **blocks);
HAK_HIDDEN void counted_free_batch(void *const *blocks, size_t count);
HAK_HIDDEN void *counted_heap_aligned_alloc(struct heap *heap, size_t alignment, size_t size, bool zeroed);
HAK_HIDDEN void *counted_heap_realloc(struct heap *heap, void *block, size_t size);

#endif
