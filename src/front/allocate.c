/* Allocation beyond the fast path: misses, larger sizes, zeroed and aligned blocks, batches. */
#include <string.h>

#include "front/block.h"
#include "front/direct.h"
#include "front/entries.h"
#include "front/fast.h"
#include "front/heaps.h"
#include "front/housekeeping.h"
#include "front/pooled.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/scope.h"
#include "front/sealed.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/arrival.h"
#include "superslab/limits.h"
#include "superslab/purge.h"
#include "superslab/shared_pool.h"

/* As pooled_allocate, which found no memory, or is no help because the thread is in a scope. */
static HAK_NOINLINE void *pooled_make_room(unsigned class, size_t alignment, size_t wanted, bool *zero)
{
    void *block;

    if (cache_scope())
        return scope_allocate(alignment, wanted, zero);
    housekeep_make_room();
    block = pooled_allocate(class, alignment, wanted, zero);
    if (block) /* else aligned as S2 promises */
        return block;
    return direct_map(NULL, base_min(class_size(class) & -class_size(class), UNIT_SIZE), class_size(class), zero);
}

/* Makes room when memory is short. Blocks of the class of `size` have the alignment; the call wants `wanted` bytes.
 * *zero: it reads as zero. In line, because in nearly all calls `wanted` is `size`. */
HAK_INLINE void *allocate(size_t size, size_t alignment, size_t wanted, bool *zero)
{
    void *block;

    if (HAK_SECURE)
        return HAK_UNLIKELY(cache_scope() != NULL) ? scope_allocate(alignment, wanted, zero)
                                                   : sealed_allocate(NULL, alignment, wanted, zero);
    CYCLES_CALL_IS(size > POOLED_MAX                    ? CYCLES_MALLOC_HUGE
                   : class_is_span(class_of_size(size)) ? CYCLES_MALLOC_LARGE
                                                        : CYCLES_MALLOC_MISS);
    housekeep();
    if (HAK_LIKELY(size <= POOLED_MAX)) {
        unsigned class = class_of_size(size);
        block = pooled_allocate(class, alignment, wanted, zero);
        if (HAK_UNLIKELY(block == NULL))
            block = pooled_make_room(class, alignment, wanted, zero);
    } else if (HAK_UNLIKELY(cache_scope() != NULL)) {
        block = scope_allocate(alignment, wanted, zero);
    } else {
        debug_count_of(COUNT_EARLY_MALLOC_TOO_LARGE, CLASS_NONE, size > REQUEST_MAX);
        if (size > REQUEST_MAX || !process_init())
            return out_of_memory();
        housekeep_before_huge(size);
        block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
        if (HAK_UNLIKELY(block == NULL) && purge_could_serve(size)) {
            housekeep_make_room();
            block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
        }
        sample_foreign(block, size, NULL);
    }
    housekeep_exit();
    return HAK_LIKELY(block != NULL) ? block : out_of_memory();
}

/* A block of the class of `size`, for a call that wants `wanted` bytes at this alignment. */
static HAK_NOINLINE void *allocate_aligned(size_t size, size_t alignment, size_t wanted)
{
    bool zero;
    return allocate(size, alignment, wanted, &zero);
}

/* As allocate_aligned. Reports an entry of the cache that is no block. */
static HAK_COLD void *allocate_past(const void *entry, size_t size, size_t alignment, size_t wanted)
{
    misuse_report("free", entry, misuse_of(entry));
    return allocate_aligned(size, alignment, wanted);
}

/* As allocate_aligned, where calls for the class are counted (T8) and the usual case did not serve this one. */
static HAK_NOINLINE void *allocate_unsteady(size_t size, size_t alignment, size_t wanted, struct thread_cache *cache,
                                            unsigned class)
{
    void *block = cache_count(cache, class) ? cache_serve_counted(cache, class) : NULL;

    if (HAK_UNLIKELY(block == NULL))
        return allocate_aligned(size, alignment, wanted);
    if (HAK_UNLIKELY(!cache_entry_is_block(class, block)))
        return allocate_past(block, size, alignment, wanted);
    CYCLES_CALL_IS(class_is_span(class) ? CYCLES_MALLOC_LARGE : CYCLES_MALLOC_MISS);
    return block;
}

/* malloc where calls for the class are counted. */
static HAK_NOINLINE void *malloc_counted(size_t size, struct thread_cache *cache, unsigned class)
{
    void *block = cache->run_want[class] == RUN_STEADY ? cache_serve_runless(cache, class)
                                                       : cache_serve_steady(cache, class);

    if (HAK_UNLIKELY(block == NULL))
        return allocate_unsteady(size, BLOCK_ALIGN, size, cache, class);
    if (HAK_UNLIKELY(!cache_entry_is_block(class, block)))
        return allocate_past(block, size, BLOCK_ALIGN, size);
    CYCLES_CALL_IS(class_is_span(class) ? CYCLES_MALLOC_LARGE : CYCLES_MALLOC_MISS);
    return block;
}

/* Not inlined: front_malloc_medium needs no frame without it. */
HAK_NOINLINE void *front_malloc_slow(size_t size)
{
    struct thread_cache *cache = cache_current();
    bool zero;

    if (!HAK_SECURE && size <= FAST_MAX) {
        unsigned place = cache->class_of[(size + BLOCK_ALIGN - 1) / BLOCK_ALIGN]; /* 0: T1 */
        if (place > RUN_BINS)
            return malloc_counted(size, cache, place - RUN_BINS);
    }
    if (!HAK_DEBUG) /* here the call is a jump, which takes no stack */
        return allocate_aligned(size, BLOCK_ALIGN, size);
    return allocate(size, BLOCK_ALIGN, size, &zero);
}

/* front_malloc_medium jumps here if class_starts_at does not tell that the stack's top entry is a block. */
static HAK_NOINLINE void *malloc_looked_at(size_t size, struct thread_cache *cache, size_t place)
{
    size_t top = cache->places[place].top;
    void *block = cache->slots[top];

    if (HAK_UNLIKELY(!cache_entry_is_block((unsigned)(place % RUN_BINS), block)))
        return front_malloc_slow(size);
    cache_move_top(cache, place, top, -1);
    return block;
}

/* Hands out only what starts a block of the class: front_free may have pushed an address inside one. */
void *front_malloc_medium(size_t size)
{
    struct thread_cache *cache;
    size_t class, place, top;
    void *block;

    if (size <= UNIT_SIZE - SEAL_ROOM)
        class = class_of_medium(size + SEAL_ROOM);
    else if (HAK_LIKELY(size <= POOLED_MAX - SEAL_ROOM))
        class = class_of_size(size + SEAL_ROOM);
    else
        return front_malloc_slow(size);
    if (HAK_SECURE && HAK_UNLIKELY(profile_on())) /* V8 */
        return front_malloc_slow(size);
    cache = cache_current();
    place = class + cache->counted;
    top = cache->places[place].top;
    block = cache->slots[top];
    if (HAK_UNLIKELY(block == NULL))
        return !HAK_SECURE && place > class ? malloc_counted(size, cache, (unsigned)class) : front_malloc_slow(size);
    if (!HAK_SECURE && HAK_UNLIKELY(!class_starts_at(class, block)))
        return malloc_looked_at(size, cache, place);
    cache_move_top(cache, place, top, -1);
    if (HAK_SECURE && class_is_span(class))
        return sealed_give_span(block, size, SEAL_MALLOC);
    return seal_give(block, class, size, SEAL_MALLOC);
}

void *front_malloc_at(size_t size, const void *site)
{
    void *block;

    profile_site = site;
    block = size <= FAST_MAX ? front_malloc_slow(size) : front_malloc_medium(size);
    profile_site = NULL;
    return block;
}

/* ---- Zeroed and aligned ---- */

/* Whether the thread's cache has a block of that size. */
static bool is_cached(size_t size)
{
    const struct thread_cache *cache = cache_current();
    return size <= POOLED_MAX && cache->slots[cache->places[class_of_size(size) + cache->counted].top] != NULL;
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
    if (HAK_LIKELY(bytes <= FAST_MAX) || (HAK_SECURE && bytes <= SEALED_MOST)) {
        block = front_malloc(bytes);
        return block ? memset(block, 0, bytes) : NULL;
    }
    hit = HAK_CYCLES && is_cached(bytes);
    block = allocate(bytes, BLOCK_ALIGN, bytes, &zero);
    if (hit)
        CYCLES_CALL_IS(CYCLES_MALLOC_HIT);
    if (block && !zero)
        arrival_clear(block, bytes);
    return block;
}

/* A block whose alignment no class has. */
static void *aligned_slow(size_t alignment, size_t size)
{
    struct thread_cache *cache = thread_cache_get();
    void *block;
    bool zero;

    if (!cache && cache_scope())
        return scope_allocate(alignment, size, &zero);
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

/* A block of the class, whose blocks have the alignment. */
HAK_INLINE void *malloc_of_class(unsigned class, size_t alignment, size_t size)
{
    struct thread_cache *cache = cache_current();
    size_t place = class + cache->counted, top = cache->places[place].top;
    void *block = cache->slots[top];

    if (HAK_UNLIKELY(block == NULL)) /* T1, T2 */
        return place > class ? allocate_unsteady(class_size(class), alignment, size, cache, class)
                             : allocate_aligned(class_size(class), alignment, size);
    if (HAK_UNLIKELY(!cache_entry_is_block(class, block)))
        return allocate_aligned(class_size(class), alignment, size);
    cache_move_top(cache, place, top, -1);
    return block;
}

/* As front_aligned_alloc, for what no class holds, and for libhakmem-secure. */
static HAK_NOINLINE void *aligned_beyond(size_t alignment, size_t size)
{
    void *block;
    bool zero;

    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2) {
        CYCLES_CALL_IS(CYCLES_MALLOC_HUGE);
        return out_of_memory();
    }
    if (HAK_SECURE)
        return HAK_UNLIKELY(cache_scope() != NULL) ? scope_allocate(alignment, size, &zero)
                                                   : sealed_allocate(NULL, alignment, size, &zero);
    CYCLES_CALL_IS(size > POOLED_MAX || alignment > POOLED_MAX ? CYCLES_MALLOC_HUGE : CYCLES_MALLOC_LARGE);
    housekeep();
    block = aligned_slow(alignment, size);
    housekeep_exit();
    return block ? block : out_of_memory();
}

void *front_aligned_alloc(size_t alignment, size_t size)
{
    unsigned class = HAK_SECURE ? CLASS_NONE : direct_class(alignment, size);

    if (alignment <= BLOCK_ALIGN)
        return front_malloc(size);
    if (HAK_UNLIKELY(class == CLASS_NONE))
        return aligned_beyond(alignment, size);
    return malloc_of_class(class, alignment, size);
}

/* ---- Batches ---- */

/* Takes blocks of the class from the thread's heap, past its cache. */
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

    if (count && size <= POOLED_MAX && !HAK_SECURE && !class_is_span(class_of_size(size))) {
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
