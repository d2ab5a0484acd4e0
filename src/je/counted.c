#include "je/counted.h"

#include "front/block.h"
#include "front/cohort.h"
#include "front/front.h"
#include "front/seats.h"
#include "profile/profile.h"

HAK_DATA_HERE _Thread_local struct counted counted __attribute__((tls_model("initial-exec")));

/* ---- malloc ---- */

static void *count_allocated(void *block)
{
    if (HAK_LIKELY(block != NULL))
        counted.allocated += counted_size(block);
    return block;
}

void *counted_alloc_in(struct heap *heap, size_t alignment, size_t size, bool zeroed)
{
    if (HAK_UNLIKELY(heap != NULL))
        return counted_heap_aligned_alloc(heap, alignment, size, zeroed);
    if (zeroed && alignment <= BLOCK_ALIGN)
        return count_allocated(front_calloc(1, size));
    return count_allocated(front_aligned_alloc(alignment, size));
}

void *counted_malloc_miss(size_t size)
{
    if (HAK_UNLIKELY(counted.bound != NULL)) /* Q1 */
        return counted_heap_aligned_alloc(counted.bound, BLOCK_ALIGN, size, false);
    return count_allocated(size > FAST_MAX ? front_malloc_medium(size) : front_malloc_slow(size));
}

void *counted_malloc_at(size_t size, const void *site)
{
    void *block;

    profile_site = site;
    block = counted_malloc_miss(size);
    profile_site = NULL;
    return block;
}

void *counted_malloc_cohort(size_t size, uint32_t key, const void *site)
{
    return counted.bound ? NULL : count_allocated(front_malloc_cohort(size, key, site)); /* Q1 */
}

void *counted_uncached_alloc(size_t alignment, size_t size, bool zeroed)
{
    return count_allocated(front_uncached_alloc(alignment, size, zeroed));
}

void *counted_heap_aligned_alloc(struct heap *heap, size_t alignment, size_t size, bool zeroed)
{
    return count_allocated(front_heap_aligned_alloc(heap, alignment, size, zeroed));
}

size_t counted_malloc_batch(size_t size, size_t count, void **blocks)
{
    size_t got = 0;

    if (counted.bound == NULL) {
        got = front_malloc_batch(size, count, blocks);
        for (size_t i = 0; i < got; i++)
            (void)count_allocated(blocks[i]);
        return got;
    }
    while (got < count && (blocks[got] = counted_malloc_miss(size)) != NULL)
        got++;
    return got;
}

/* ---- free: the size is read while the block lives ---- */

void counted_free_named(void *block, const char *function)
{
    counted.freed += block ? front_block_size(block) : 0;
    front_free_named(block, function);
}

void counted_free_slow(void *block) { counted_free_named(block, "free"); }

void counted_free_sized(void *block, size_t size, size_t alignment, const char *function)
{
    counted.freed += block ? front_block_size(block) : 0;
    front_free_sized(block, size, alignment, function);
}

void counted_uncached_free(void *block, const char *function)
{
    counted.freed += front_block_size(block);
    front_uncached_free(block, function);
}

void counted_free_batch(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        counted_free(blocks[i]);
}

/* ---- Other sizes ---- */

/* Counts a block that is `size` bytes now, and was `old` bytes. */
static size_t count_resized(size_t old, size_t size)
{
    counted.freed += old;
    counted.allocated += size;
    return size;
}

/* What became of a block by realloc. `size`: as the caller asked. NULL: the old block is gone only if that is 0. */
static void *count_reallocated(uintptr_t before, size_t old, void *block, size_t size)
{
    size_t now = block ? counted_size(block) : 0;

    if (block ? (uintptr_t)block != before || now != old : size == 0)
        (void)count_resized(old, now);
    return block;
}

/* For a bound thread: a block of arena 0 that moves comes into the thread's arena. The system moves a huge block's
 * pages without a copy, so that block stays in its arena. */
static void *realloc_bound(void *address, size_t size, const char *function)
{
    struct block block = block_look(address);

    if (block.size == 0 || size == 0 || block.heap != NULL || (block.slab == NULL && size > POOLED_MAX))
        return front_realloc(address, size, function);
    return front_heap_realloc(counted.bound, address, size);
}

void *counted_realloc(void *block, size_t size, const char *function)
{
    uintptr_t before = (uintptr_t)block;
    size_t old;

    if (block == NULL)
        return counted_malloc(size);
    old = counted_size(block);
    block = counted.bound ? realloc_bound(block, size, function) : front_realloc(block, size, function);
    return count_reallocated(before, old, block, size);
}

void *counted_heap_realloc(struct heap *heap, void *block, size_t size)
{
    uintptr_t before = (uintptr_t)block;
    size_t old = counted_size(block);

    return count_reallocated(before, old, front_heap_realloc(heap, block, size), size);
}

size_t counted_expand(void *block, size_t size)
{
    size_t old = front_block_size(block), got = front_expand(block, size);

    return got && got != old ? count_resized(old, got) : got;
}

size_t counted_resize_in_place(void *block, size_t size, const char *function)
{
    size_t old = front_block_size(block), got = front_resize_in_place(block, size, function);

    return got != old ? count_resized(old, got) : got;
}
