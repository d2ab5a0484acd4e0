/* Allocation beyond the fast path: misses, larger sizes, zeroed and aligned blocks, batches. */
#include <string.h>

#include "front/allocate.h"
#include "front/block.h"
#include "front/direct.h"
#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/limits.h"
#include "superslab/shared_pool.h"

/* One block of the class for a thread without a cache. */
static void *house_allocate(unsigned class, bool *zero)
{
    uint64_t weight;

    if (!process_init())
        return NULL;
    weight = HAK_UNLIKELY(profile_on()) ? profile_draw_call(NULL, class_size(class)) : 0;
    return weight ? sample_block(NULL, class, weight, zero) : direct_house_allocate(class, zero);
}

/* A block of a class. *zero: it reads as zero. */
static void *pooled_allocate(unsigned class, bool *zero)
{
    struct thread_cache *cache = thread_cache_get();
    bool token = true;
    void *block;

    if (HAK_UNLIKELY(cache == NULL))
        return house_allocate(class, zero);
    *zero = false;
    if (cache_count(cache, class)) {
        block = cache_pop(cache, class);
        debug_count_of(COUNT_EARLY_MALLOC_CACHED, class, 1);
    } else {
        block = cache_refill(cache, class, zero, &token);
    }
    return HAK_UNLIKELY(block == NULL && token) ? sample_entry(cache, class, zero) : block;
}

void *allocate_direct(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    void *block = direct_allocate(heap, alignment, size, zero);

    if (HAK_LIKELY(block != NULL))
        return block;
    housekeep_make_room();
    block = direct_allocate(heap, alignment, size, zero);
    return block ? block : direct_map(heap, alignment, size, zero);
}

/* With all that can be done when memory is short. */
static void *allocate(size_t size, bool *zero)
{
    void *block;

    CYCLES_CALL_IS(size > POOLED_MAX ? CYCLES_MALLOC_HUGE : class_is_span(class_of_size(size)) ? CYCLES_MALLOC_LARGE : CYCLES_MALLOC_MISS);
    housekeep();
    if (HAK_LIKELY(size <= POOLED_MAX)) {
        unsigned class = class_of_size(size);
        block = pooled_allocate(class, zero);
        if (HAK_UNLIKELY(block == NULL)) {
            housekeep_make_room();
            block = pooled_allocate(class, zero);
        }
        if (HAK_UNLIKELY(block == NULL)) /* aligned as S2 has it */
            block = direct_map(NULL, base_min(class_size(class) & -class_size(class), UNIT_SIZE), class_size(class), zero);
    } else {
        debug_count_of(COUNT_EARLY_MALLOC_TOO_LARGE, CLASS_NONE, size > REQUEST_MAX);
        if (size > REQUEST_MAX || !process_init())
            return out_of_memory();
        block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
        if (HAK_UNLIKELY(block == NULL)) {
            housekeep_make_room();
            block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
        }
        sample_foreign(block, size, NULL);
    }
    housekeep_exit();
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

void *front_malloc_at(size_t size, const void *site)
{
    void *block;

    profile_site = site;
    block = front_malloc_medium(size);
    profile_site = NULL;
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

/* A block that no class is aligned for. */
static void *aligned_slow(size_t alignment, size_t size)
{
    struct thread_cache *cache = thread_cache_get();
    void *block;
    bool zero;

    if (!cache && !process_init())
        return NULL;
    block = HAK_UNLIKELY(profile_on()) ? sample_aligned(cache, alignment, size) : NULL;
    if (block)
        return block;
    block = allocate_direct(cache ? cache->heap : registry.house, alignment, size, &zero);
    if (block && !window_contains(block))
        sample_foreign(block, size, NULL);
    return block;
}

/* malloc of a size of the class, which is known. */
HAK_INLINE void *malloc_of_class(unsigned class)
{
    struct thread_cache *cache = cache_current();
    size_t top = cache->bins[class].top;
    void *block = cache->slots[top];

    if (HAK_UNLIKELY(block == NULL)) /* T1, T2 */
        return front_malloc_slow(class_size(class));
    cache_move_top(cache, class, top, -1);
    return block;
}

void *front_aligned_alloc(size_t alignment, size_t size)
{
    unsigned class;
    void *block;

    if (alignment <= BLOCK_ALIGN)
        return front_malloc(size);
    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2) {
        CYCLES_CALL_IS(CYCLES_MALLOC_HUGE);
        return out_of_memory();
    }
    class = direct_class(alignment, size);
    if (class != CLASS_NONE)
        return malloc_of_class(class);
    CYCLES_CALL_IS(size > POOLED_MAX || alignment > POOLED_MAX ? CYCLES_MALLOC_HUGE : CYCLES_MALLOC_LARGE);
    housekeep();
    block = aligned_slow(alignment, size);
    housekeep_exit();
    return block ? block : out_of_memory();
}

/* ---- Batches ---- */

/* Blocks of a class past the thread's cache. */
static size_t batch_from_heap(struct thread_cache *cache, unsigned class, size_t count, void **blocks)
{
    size_t got = 0, taken;
    bool zero;

    do {
        lock_acquire(&cache->heap->lock);
        taken = heap_take_blocks(cache->heap, class, blocks + got, base_min(count - got, 256), &zero);
        cache->heap->classes[class].direct++;
        lock_release(&cache->heap->lock);
        if (HAK_UNLIKELY(profile_on()))
            sample_batch(cache, class, blocks + got, taken);
        got += taken;
    } while (taken && got < count);
    return got;
}

size_t front_malloc_batch(size_t size, size_t count, void **blocks)
{
    size_t got = 0;

    if (count && size <= POOLED_MAX && !class_is_span(class_of_size(size))) {
        struct thread_cache *cache;
        housekeep();
        cache = thread_cache_get();
        if (cache)
            got = batch_from_heap(cache, class_of_size(size), count, blocks);
        housekeep_exit();
    }
    for (; got < count; got++) {
        blocks[got] = front_malloc(size);
        if (!blocks[got])
            break;
    }
    return got;
}
