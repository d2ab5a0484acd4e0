/* Allocation beyond the fast path: misses, larger sizes, zeroed and aligned blocks, batches. */
#include <string.h>

#include "front/block.h"
#include "front/fast.h"
#include "front/sample.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/shared_pool.h"

/* One block of the class for a thread without a cache. */
static void *house_allocate(unsigned class, bool *zero)
{
    void *block = NULL;
    uint64_t weight;

    if (!front_process_init())
        return NULL;
    debug_count_of(COUNT_EARLY_MALLOC_HOUSE, class, 1);
    weight = HAK_UNLIKELY(profile_on()) ? profile_draw_call(NULL, class_size(class)) : 0;
    if (weight)
        return sample_block(NULL, class, weight, zero);
    lock_acquire(&registry.house->lock);
    heap_take_blocks(registry.house, class, &block, 1, zero);
    registry.house->classes[class].direct++;
    lock_release(&registry.house->lock);
    return block;
}

static void *pooled_try(unsigned class, bool *zero)
{
    struct thread_cache *cache = thread_cache_get();

    if (HAK_UNLIKELY(cache == NULL))
        return house_allocate(class, zero);
    *zero = false;
    if (cache_count(cache, class)) {
        void *block = cache_pop(cache, class);
        debug_count_of(COUNT_EARLY_MALLOC_CACHED, class, 1);
        return block ? block : sample_entry(cache, class, zero);
    }
    return cache_refill(cache, class, zero);
}

/* A block of a class, with all that can be done when memory is short. *zero: it reads as zero. */
static void *pooled_allocate(unsigned class, bool *zero)
{
    void *block = pooled_try(class, zero);

    if (HAK_LIKELY(block != NULL))
        return block;
    if (atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed) || hak_options.memory_limit)
        thread_purge(true);
    block = pooled_try(class, zero);
    /* The window is full, or its next pages can't be committed: a mapping of its own may still be had, aligned as S2 has it. */
    if (block == NULL && hak_options.memory_limit == 0)
        block = huge_allocate(class_size(class), base_min(class_size(class) & -class_size(class), UNIT_SIZE), zero, NULL);
    return block;
}

static void *allocate(size_t size, bool *zero)
{
    void *block;

    CYCLES_CALL_IS(size > POOLED_MAX ? CYCLES_MALLOC_HUGE : class_is_span(class_of_size(size)) ? CYCLES_MALLOC_LARGE : CYCLES_MALLOC_MISS);
    if (HAK_LIKELY(size <= POOLED_MAX)) {
        block = pooled_allocate(class_of_size(size), zero);
    } else {
        debug_count_of(COUNT_EARLY_MALLOC_TOO_LARGE, CLASS_NONE, size > REQUEST_MAX);
        if (size > REQUEST_MAX || !front_process_init())
            return out_of_memory();
        thread_tick();
        block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
        sample_foreign(block, size, NULL);
    }
    return HAK_LIKELY(block != NULL) ? block : out_of_memory();
}

/* Not inlined into front_malloc_medium, which needs no frame without it. */
HAK_NOINLINE void *front_malloc_slow(size_t size)
{
    bool zero;
    return allocate(size, &zero);
}

void *front_malloc_medium(size_t size)
{
    struct thread_cache *cache = cache_current();
    unsigned class;
    size_t top;
    void *block;

    if (HAK_UNLIKELY(size > POOLED_MAX))
        return front_malloc_slow(size);
    class = class_of_size(size);
    top = cache->bins[class].top;
    block = cache->slots[top];
    if (HAK_UNLIKELY(block == NULL))
        return front_malloc_slow(size);
    cache_move_top(cache, class, top, -1);
    return block;
}

/* ---- Zeroed and aligned ---- */

/* Whether the thread's cache has a block for it. */
static bool is_cached(size_t size)
{
    const struct thread_cache *cache = cache_current();
    return size <= POOLED_MAX && cache->slots[cache->bins[class_of_size(size)].top] != NULL;
}

void *front_calloc(size_t count, size_t size)
{
    size_t bytes;
    bool zero, hit;
    void *block;

    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
        CYCLES_CALL_IS(CYCLES_MALLOC_HUGE);
        return out_of_memory();
    }
    if (HAK_LIKELY(bytes <= FAST_MAX)) {
        block = front_malloc(bytes);
        return block ? memset(block, 0, bytes) : NULL;
    }
    hit = HAK_CYCLES && is_cached(bytes);
    block = allocate(bytes, &zero);
    if (hit)
        CYCLES_CALL_IS(CYCLES_MALLOC_HIT);
    if (block && !zero)
        memset(block, 0, bytes);
    return block;
}

/* The class whose blocks are aligned so and hold size bytes (S2); CLASS_NONE if only a span at a chosen place or a mapping can be. */
static unsigned class_of_aligned(size_t alignment, size_t size)
{
    unsigned class;

    if (size > POOLED_MAX || alignment > UNIT_SIZE)
        return CLASS_NONE;
    class = class_of_size(base_max(size, alignment));
    while (class_size(class) & (alignment - 1))
        class++;
    return class;
}

void *allocate_in_heap(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    unsigned class;
    void *block = NULL;

    if (size > POOLED_MAX || alignment > POOLED_MAX)
        return huge_allocate(size, alignment, zero, heap->kind == HEAP_FIRST_CLASS ? heap : NULL);
    class = class_of_aligned(alignment, size);
    lock_acquire(&heap->lock);
    if (class != CLASS_NONE) {
        heap_take_blocks(heap, class, &block, 1, zero);
        heap->classes[class].direct++;
    } else {
        block = heap_take_aligned_span(heap, class_of_size(base_max(size, UNIT_SIZE)), (unsigned)(alignment >> UNIT_SHIFT), zero);
    }
    lock_release(&heap->lock);
    return block;
}

void *front_aligned_alloc(size_t alignment, size_t size)
{
    struct thread_cache *cache;
    unsigned class;
    void *block;
    bool zero;

    if (alignment <= BLOCK_ALIGN)
        return front_malloc(size);
    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2) {
        CYCLES_CALL_IS(CYCLES_MALLOC_HUGE);
        return out_of_memory();
    }
    class = class_of_aligned(alignment, size);
    if (class != CLASS_NONE)
        return front_malloc(class_size(class));
    CYCLES_CALL_IS(size > POOLED_MAX || alignment > POOLED_MAX ? CYCLES_MALLOC_HUGE : CYCLES_MALLOC_LARGE);
    cache = thread_cache_get();
    if (!cache && !front_process_init())
        return out_of_memory();
    thread_tick();
    block = HAK_UNLIKELY(profile_on()) ? sample_aligned(cache, alignment, size) : NULL;
    if (!block) {
        block = allocate_in_heap(cache ? cache->heap : registry.house, alignment, size, &zero);
        if (block && !window_contains(block))
            sample_foreign(block, size, NULL);
    }
    return block ? block : out_of_memory();
}

/* ---- Batches ---- */

size_t front_malloc_batch(size_t size, size_t count, void **blocks)
{
    struct thread_cache *cache = thread_cache_get();
    size_t got = 0;

    if (cache && size <= POOLED_MAX && !class_is_span(class_of_size(size))) {
        unsigned class = class_of_size(size);
        bool zero;
        while (got < count) {
            size_t taken;
            lock_acquire(&cache->heap->lock);
            taken = heap_take_blocks(cache->heap, class, blocks + got, base_min(count - got, 256), &zero);
            cache->heap->classes[class].direct++;
            lock_release(&cache->heap->lock);
            if (taken == 0)
                break;
            if (HAK_UNLIKELY(profile_on()))
                sample_batch(cache, class, blocks + got, taken);
            got += taken;
        }
        thread_tick();
    }
    for (; got < count; got++) {
        blocks[got] = front_malloc(size);
        if (!blocks[got])
            break;
    }
    return got;
}
