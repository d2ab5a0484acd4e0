#include "front/seats.h"

#include "front/block.h"
#include "front/direct.h"
#include "front/heaps.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/scope.h"
#include "front/thread.h"
#include "options/options.h"
#include "pool/dense.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/arrival.h"

/* ---- Past the cache ---- */

/* The slab of each class that the thread fills. The pointer is only compared (pool/dense.h). */
static _Thread_local const struct slab *chosen[CLASS_COUNT] __attribute__((tls_model("initial-exec")));

static struct heap *heap_of_thread(struct thread_cache **cache)
{
    *cache = thread_cache_get();
    if (*cache == NULL && !process_init())
        return NULL;
    return *cache ? (*cache)->heap : registry.house;
}

void *front_uncached_alloc(size_t alignment, size_t size, bool zeroed)
{
    struct thread_cache *cache;
    struct heap *heap;
    unsigned class;
    void *block = NULL;
    bool zero = false, sampled = false;

    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2)
        return out_of_memory();
    alignment = base_max(alignment, BLOCK_ALIGN);
    if (HAK_UNLIKELY(cache_scope() != NULL)) {
        block = scope_allocate(alignment, size, &zero);
        if (block && zeroed && !zero)
            arrival_clear(block, front_block_size(block));
        return block;
    }
    housekeep();
    heap = heap_of_thread(&cache);
    if (heap == NULL)
        return out_of_memory();
    class = direct_class(alignment, size);
    if (HAK_UNLIKELY(profile_on()))
        block = sample_aligned(cache, alignment, size);
    sampled = block != NULL;
    if (block == NULL && class != CLASS_NONE && !class_is_span(class)) {
        lock_acquire(&heap->lock);
        heap_prefer_dense(heap, class, &chosen[class]);
        heap_take_blocks(heap, class, &block, 1, &zero);
        heap->classes[class].direct++;
        lock_release(&heap->lock);
    }
    if (block == NULL)
        block = allocate_direct(heap, alignment, size, &zero);
    if (block && !sampled && !window_contains(block))
        sample_foreign(block, size, NULL);
    housekeep_exit();
    if (block == NULL)
        return out_of_memory();
    if (zeroed && !zero)
        arrival_clear(block, front_block_size(block));
    return block;
}

static void pooled_uncached_free(unsigned class, void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_own();

    if (cache == NULL)
        direct_house_free(class, block, function);
    else
        direct_free(cache->heap, class, block, function);
}

/* A block that no thread's cache could hold takes the usual way. */
void front_uncached_free(void *block, const char *function)
{
    unsigned class = CLASS_NONE;

    if (window_contains(block))
        class = __atomic_load_n(window_page_map() + window_unit(block), __ATOMIC_RELAXED);
    if (class == CLASS_NONE) {
        front_free_named(block, function);
        return;
    }
    housekeep();
    pooled_uncached_free(class, block, function);
    housekeep_exit();
}

/* ---- Threads and heaps ---- */

/* The thread's cache is the retired one, as after the thread's end: all calls miss (T1), and none makes a cache. */
static _Thread_local bool gave_up __attribute__((tls_model("initial-exec")));

void front_set_thread_cached(bool cached)
{
    if (!process_init() || cached != gave_up || (!gave_up && cache_own_offset() == WINDOW_RETIRED_CACHE))
        return;
    thread_release();
    cache_set_current(cached ? 0 : WINDOW_RETIRED_CACHE);
    gave_up = !cached;
}

void front_heap_collect(struct heap *heap)
{
    lock_acquire(&heap->lock);
    remote_drain(heap);
    heap_release_warm(heap);
    lock_release(&heap->lock);
}

void front_decay(void)
{
    if (!process_init())
        return;
    housekeep_purge(false);
    housekeep_exit();
}

uint64_t front_purge_delay(void) { return __atomic_load_n(&hak_options.purge_delay, __ATOMIC_RELAXED); }

void front_set_purge_delay(uint64_t milliseconds)
{
    __atomic_store_n(&hak_options.purge_delay, milliseconds, __ATOMIC_RELAXED);
}
