/* Frees beyond the fast path. */
#include "front/block.h"
#include "front/cohort.h"
#include "front/direct.h"
#include "front/entries.h"
#include "front/fast.h"
#include "front/guarded.h"
#include "front/housekeeping.h"
#include "front/pooled.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/sealed.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "os/cycles.h"
#include "pool/huge.h"
#include "pool/misuse.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/scope.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

/* Frees a block of a first-class heap, a long-lived one, or a sample. */
static void uncached_free(void *block, const char *function)
{
    struct heap *owner = atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed);
    size_t size = class_size(slab_of(block)->class);

    heap_count_free(NULL, block, slab_of(block)->class, false);
    if (owner && owner->kind == HEAP_PROFILE) {
        sample_free(block, function);
        return;
    }
    if (owner && owner->kind == HEAP_LONG)
        cohort_note_free(block);
    sample_forget_foreign(block);
    if (!remote_free_locked(block, function) || owner == NULL)
        return;
    heap_note_slow_path(owner); /* a hint for the tick, which scrubs quiet heaps */
    scope_note_free(owner, size);
}

/* The class of a span that was a sample until now (Z9), or CLASS_NONE. The page map has 0 for the block's unit. */
static HAK_NOINLINE unsigned sampled_span_class(const void *block)
{
    const struct slab *slab = slab_in_use_at(block);
    const struct heap *owner = slab ? atomic_load_explicit(&slab->owner, memory_order_relaxed) : NULL;

    return owner && class_is_span(slab->class) && heap_is_cached(owner) ? sample_end_span(block) : CLASS_NONE;
}

static void huge_block_free(void *block, const char *function)
{
    struct heap *heap = NULL;
    size_t size;

    if (guard_covers(block)) {
        guarded_free(block, function);
        return;
    }
    sample_forget_foreign(block);
    size = huge_free(block, &heap);
    if (heap)
        scope_note_free(heap, size);
    if (HAK_UNLIKELY(size == 0))
        misuse_report(function, block, misuse_of(block));
    else
        debug_count(COUNT_FREE_HUGE);
}

static void window_block_free(void *block, const char *function)
{
    unsigned class = window_page_map()[window_unit(block)];
    bool aligned = ((uintptr_t)block & (BLOCK_ALIGN - 1)) == 0;

    CYCLES_CALL_IS(class_is_span(class) ? CYCLES_FREE_LARGE : CYCLES_FREE_MISS);
    if (HAK_UNLIKELY(class == CLASS_NONE && table_foreign()) && aligned)
        class = sampled_span_class(block);
    if (HAK_LIKELY(aligned && class != CLASS_NONE))
        pooled_free(class, block, function);
    else if (aligned && slab_in_use_at(block))
        uncached_free(block, function);
    else
        misuse_report(function, block, misuse_of(block));
}

void front_free_named(void *block, const char *function)
{
    CYCLES_CALL_IS(block == NULL ? CYCLES_FREE_NULL : window_contains(block) ? CYCLES_FREE_MISS : CYCLES_FREE_HUGE);
    if (block == NULL) {
        debug_count(COUNT_EARLY_FREE_NULL);
        return;
    }
    if (HAK_SECURE) {
        sealed_free(block, SEALED_NO_CLAIM, function);
        return;
    }
    housekeep();
    if (!window_contains(block))
        huge_block_free(block, function);
    else if (!CHECK_EVERY_FREE || block_find(block, function).size != 0)
        window_block_free(block, function);
    housekeep_exit();
}

void front_free_slow(void *block) { front_free_named(block, "free"); }

void front_free_sized(void *address, size_t size, size_t alignment, const char *function)
{
    struct block block;

    if (HAK_SECURE) {
        sealed_free(address, (struct sealed_claim){ size, alignment, SEAL_MALLOC }, function);
        return;
    }
    /* The usual miss is a full stack. */
    if (HAK_LIKELY(window_contains(address) && !CHECK_EVERY_FREE &&
                   class_fits(window_page_map()[window_unit(address)], address, size, alignment))) {
        if (!front_free_hit(&hak_cache_offset, address, SEAL_MALLOC))
            front_free_named(address, function);
        return;
    }
    if (address == NULL) {
        CYCLES_CALL_IS(CYCLES_FREE_NULL);
        return;
    }
    CYCLES_CALL_IS(CYCLES_FREE_MISS); /* no hit until the block proves right */
    block = block_find(address, function);
    if (block.size == 0)
        return;
    /* A block may be larger than `size` needs: it was aligned, or realloc let it stay. It is never smaller. */
    if (size > block.size || ((uintptr_t)address & (alignment - 1)) != 0 ||
        (alignment == 1 && !block_may_stay(block.size, size) &&
         (block.slab ? class_size(class_of_size(size)) < block.size : block.size > 2 * POOLED_MAX))) {
        block_misused(address, MISUSE_SIZE, function);
        return;
    }
    CYCLES_CALL_IS(CYCLES_FREE_HIT);
    if (!front_free_hit(&hak_cache_offset, address, SEAL_MALLOC))
        front_free_named(address, function);
}

void front_free_batch(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        front_free(blocks[i]);
}
