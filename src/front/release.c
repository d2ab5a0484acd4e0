/* Frees beyond the fast path, and what an address is. */
#include "front/block.h"
#include "front/fast.h"
#include "front/sample.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "os/cycles.h"
#include "pool/huge.h"
#include "pool/misuse.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

/* ---- What an address is ---- */

struct slab *block_active_slab(const void *address)
{
    uint32_t number = window_slot_of(address);
    struct slab *slab;

    if (number < window_slots_begin() || shared_pool.slots[number].kind != SLOT_SUPERSLAB ||
        ((uintptr_t)address & (SUPERSLAB_SIZE - 1)) < UNIT_SIZE)
        return NULL;
    slab = slab_of(address);
    return atomic_load_explicit(&slab->state, memory_order_acquire) == SLAB_ACTIVE ? slab : NULL;
}

struct block block_find(const void *address, const char *function)
{
    struct block block = { 0, NULL, NULL };

    if (window_contains(address)) {
        struct slab *slab = block_active_slab(address);
        unsigned index;
        if (slab && slab_block_index(slab, address, &index) && !slab_block_is_free(slab, index)) {
            struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
            block.size = class_size(slab->class);
            block.slab = slab;
            block.heap = owner && owner->kind == HEAP_FIRST_CLASS ? owner : NULL;
        }
    } else {
        block.size = huge_size(address, &block.heap);
    }
    if (HAK_UNLIKELY(block.size == 0))
        misuse_report(function, address, misuse_of(address));
    return block;
}

/* ---- Freeing ---- */

static void house_free(unsigned class, void *block, const char *function)
{
    size_t remote;

    if (!front_process_init())
        return;
    debug_count_of(COUNT_EARLY_FREE_HOUSE, class, 1);
    lock_acquire(&registry.house->lock);
    remote = heap_return_blocks(registry.house, class, &block, 1, function);
    lock_release(&registry.house->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, function);
}

static void pooled_free(unsigned class, void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_get();
    struct bin *bin;

    if (HAK_UNLIKELY(cache == NULL)) {
        house_free(class, block, function);
        return;
    }
    bin = &cache->bins[class];
    if (bin->top != size_classes[class].slot_base && cache->slots[bin->top] == block)
        misuse_report(function, block, MISUSE_FREED);
    else if (bin->top == bin->limit)
        cache_overflow(cache, class, block);
    else {
        cache->slots[bin->top + 1] = block;
        bin_set_top(bin, bin->top + 1u);
        debug_count_of(COUNT_FREE_TLS_SLL, class, 1);
    }
}

/* A block of a first-class heap, or a sample. */
static void uncached_free(void *block, const char *function)
{
    struct heap *owner = atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed);

    if (owner && owner->kind == HEAP_PROFILE) {
        sample_free(block, function);
        return;
    }
    sample_forget_foreign(block);
    remote_free_locked(block, function);
}

void front_free_named(void *block, const char *function)
{
    unsigned class;

    CYCLES_CALL_IS(block == NULL ? CYCLES_FREE_NULL : window_contains(block) ? CYCLES_FREE_MISS : CYCLES_FREE_HUGE);
    if (block == NULL) {
        debug_count(COUNT_EARLY_FREE_NULL);
        return;
    }
    if (!window_contains(block)) {
        sample_forget_foreign(block);
        if (HAK_UNLIKELY(!huge_free(block)))
            misuse_report(function, block, misuse_of(block));
        else
            debug_count(COUNT_FREE_HUGE);
        thread_tick();
        return;
    }
    if (CHECK_EVERY_FREE && block_find(block, function).size == 0)
        return;
    class = window_page_map()[window_unit(block)];
    CYCLES_CALL_IS(class_is_span(class) ? CYCLES_FREE_LARGE : CYCLES_FREE_MISS);
    if (HAK_LIKELY(class != CLASS_NONE))
        pooled_free(class, block, function);
    else if (block_active_slab(block))
        uncached_free(block, function);
    else
        misuse_report(function, block, misuse_of(block));
}

void front_free_slow(void *block) { front_free_named(block, "free"); }

void front_free_sized(void *address, size_t size, size_t alignment, const char *function)
{
    struct block block;

    if (address == NULL)
        return;
    CYCLES_CALL_IS(CYCLES_FREE_MISS); /* what is no such block is no hit */
    block = block_find(address, function);
    if (block.size == 0)
        return;
    /* A block may be larger than its size asks for: it was aligned, or realloc let it stay. It is never smaller. */
    if (size > block.size || ((uintptr_t)address & (alignment - 1)) != 0 ||
        (alignment == 1 && !block_may_stay(block.size, size) &&
         (block.slab ? class_size(class_of_size(size)) < block.size : block.size > 2 * POOLED_MAX))) {
        misuse_report(function, address, MISUSE_SIZE);
        return;
    }
    CYCLES_CALL_IS(CYCLES_FREE_HIT);
    front_free(address);
}

void front_free_batch(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        front_free(blocks[i]);
}
