/* Blocks of slabs, from and to the thread's cache. */
#include "front/pooled.h"

#include "front/direct.h"
#include "front/entries.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/thread.h"
#include "observe/counters.h"
#include "pool/misuse.h"
#include "pool/registry.h"

/* One block of the class for a thread without a cache. NULL for one in a scope. */
static void *house_allocate(unsigned class, bool *zero)
{
    uint64_t weight;

    if (cache_scope() || !process_init())
        return NULL;
    weight = HAK_UNLIKELY(profile_on()) ? profile_draw_call(NULL, class_size(class)) : 0;
    return weight ? sample_block(NULL, class, weight, zero) : direct_house_allocate(class, zero);
}

/* A block of libhakmem-secure's slots. */
static void *swap_allocate(struct thread_cache *cache, unsigned class, bool *zero)
{
    uint64_t weight = HAK_UNLIKELY(profile_on()) ? profile_draw_call(&cache->draw, class_size(class)) : 0;
    void *block = weight ? sample_block(cache, class, weight, zero) : NULL;

    if (block)
        return block;
    return cache_run_left(cache, class) ? cache_pop(cache, &cache->runs[class]) : cache_refill(cache, class, zero);
}

void *pooled_allocate(unsigned class, size_t alignment, size_t wanted, bool *zero)
{
    struct thread_cache *cache = thread_cache_get();
    void *block;

    if (HAK_UNLIKELY(cache == NULL))
        return house_allocate(class, zero);
    *zero = false;
    if (HAK_SECURE)
        return swap_allocate(cache, class, zero);
    if (HAK_UNLIKELY(cache_counts(cache)))
        return sample_count(cache, class, alignment, wanted, zero);
    block = cache_pop_block(cache, &cache->bins[class], class);
    if (block == NULL)
        return cache_refill(cache, class, zero);
    debug_count_of(COUNT_EARLY_MALLOC_CACHED, class, 1);
    return block;
}

/* Whether the block is one of the two entries below the top: it was freed already, before one or two other blocks. The
 * caller has compared the top. Only for full stacks: few large blocks fill one. */
static bool newest_hold(const struct thread_cache *cache, unsigned class, const void *block)
{
    unsigned count = cache_count(cache, class);
    void *const *top = &cache->slots[cache->bins[class].top];

    return (count > 1 && top[-1] == block) || (count > 2 && top[-2] == block);
}

void pooled_free(unsigned class, void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_own();
    struct bin *bin;

    if (HAK_UNLIKELY(cache == NULL)) {
        direct_house_free(class, block, function);
        return;
    }
    bin = &cache->bins[class];
    if (HAK_UNLIKELY(!cache_entry_is_block(class, block)))
        misuse_report(function, block, misuse_of(block));
    else if ((cache_count(cache, class) && cache->slots[bin->top] == block) ||
             (bin->top == bin->limit && newest_hold(cache, class, block)))
        misuse_report(function, block, MISUSE_FREED);
    else if (bin->top == bin->limit)
        cache_overflow(cache, class, block);
    else {
        heap_count_free(cache->heap, block, class, true);
        cache->slots[bin->top + 1] = block;
        bin_set_top(bin, bin->top + 1u);
    }
}
