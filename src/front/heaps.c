/* First-class heaps, and giving memory back on request. */
#include "front/heaps.h"

#include "front/block.h"
#include "front/direct.h"
#include "front/front.h"
#include "front/guarded.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/sealed.h"
#include "front/thread.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "superslab/arrival.h"

/* ---- Giving back ---- */

size_t front_collect(bool purge)
{
    struct thread_cache *cache;
    size_t purged;

    if (!process_init())
        return 0;
    housekeep();
    cache = cache_own();
    if (cache->heap) {
        cache_flush_all(cache, true);
        lock_acquire(&cache->heap->lock);
        remote_drain(cache->heap);
        if (purge)
            heap_release_warm(cache->heap);
        lock_release(&cache->heap->lock);
    }
    purged = purge ? housekeep_purge(true) : 0;
    housekeep_exit();
    return purged;
}

void front_thread_idle(void)
{
    thread_release();
    housekeep();
    housekeep_exit();
}

/* ---- First-class heaps ---- */

struct heap *front_heap_new(void)
{
    struct heap *heap = process_init() ? registry_new_first_class() : NULL;

    return heap ? heap : out_of_memory();
}

void *allocate_direct(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    void *block;

    if (size > POOLED_MAX)
        housekeep_before_huge(size);
    block = direct_allocate(heap, alignment, size, zero);
    if (HAK_LIKELY(block != NULL))
        return block;
    housekeep_make_room();
    block = direct_allocate(heap, alignment, size, zero);
    return block ? block : direct_map(heap, alignment, size, zero);
}

void *front_heap_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    void *block;

    *zero = false;
    if (HAK_SECURE)
        return sealed_allocate(heap, alignment, size, zero);
    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2)
        return out_of_memory();
    housekeep();
    block = guard_on() ? guarded_in_heap(heap, base_max(alignment, BLOCK_ALIGN), size) : NULL;
    if (HAK_LIKELY(block == NULL))
        block = allocate_direct(heap, base_max(alignment, BLOCK_ALIGN), size, zero);
    if (block)
        sample_foreign(block, size <= POOLED_MAX ? class_size(class_of_size(size)) : size, heap);
    housekeep_exit();
    return block ? block : out_of_memory();
}

void *front_heap_aligned_alloc(struct heap *heap, size_t alignment, size_t size, bool zeroed)
{
    bool zero;
    void *block = front_heap_allocate(heap, alignment, size, &zero);

    if (block && zeroed && !zero)
        arrival_clear(block, size);
    return block;
}

struct heap *front_heap_of(const void *block)
{
    struct heap *heap;

    if (block == NULL)
        return NULL;
    if (!HAK_SECURE)
        return block_find(block, "hak_heap_of").heap;
    (void)sealed_usable_size(block, "hak_heap_of"); /* reports an address that is no block */
    (void)sealed_size(block, NULL, &heap);
    return heap;
}

void front_heap_reset(struct heap *heap)
{
    sample_forget_heap(heap);
    huge_free_heap(heap);
    guard_free_heap(heap);
    lock_acquire(&heap->lock);
    if (HAK_SECURE)
        sealed_clear_heap(heap);
    heap_release_all(heap);
    lock_release(&heap->lock);
}

void front_heap_destroy(struct heap *heap)
{
    if (heap == NULL)
        return;
    front_heap_reset(heap);
    registry_drop_first_class(heap);
    housekeep_exit();
}
