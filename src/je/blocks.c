/* jemalloc's functions of blocks, as in its manual ("Non-standard API"), and the standard functions with je_ before
 * their names. They serve HAKMEM's blocks, even where another object defines free. */
#include "je/entry.h"

#include <stdlib.h>
#include <string.h>

#include "api/contracts.h"
#include "api/names.h"
#include "front/block.h"
#include "je/arenas.h"
#include "je/names.h"

/* ---- Flags ---- */

enum {
    TCACHE_SHIFT = 8,
    TCACHE_MASK = 0xfff,
    TCACHE_IS_NONE = 1, /* MALLOCX_TCACHE_NONE's number; 0 is the thread's own */
    ARENA_SHIFT = 20,
};

/* The alignment that the flags name; 1 if they name none. */
static size_t flags_alignment(int flags) { return (size_t)1 << (flags & 63); }

static bool is_uncached(int flags) { return (flags >> TCACHE_SHIFT & TCACHE_MASK) == TCACHE_IS_NONE; }

/* The heap of the arena that the flags name, or NULL. False: there is no such arena. *named: they name one, maybe 0. */
static bool flags_heap(int flags, struct heap **heap, bool *named)
{
    uint32_t number = (uint32_t)flags >> ARENA_SHIFT;

    *named = number != 0;
    *heap = number > 1 ? arenas_heap(number - 1) : NULL;
    return number <= 1 || *heap != NULL;
}

/* ---- Allocation ---- */

static void zero_from(void *block, size_t old)
{
    size_t size = front_block_size(block);

    if (size > old)
        memset((char *)block + old, 0, size - old);
}

static void *zeroed_alloc(size_t alignment, size_t size)
{
    void *block;

    if (alignment <= BLOCK_ALIGN)
        return front_calloc(1, size);
    block = front_aligned_alloc(alignment, size);
    return block ? memset(block, 0, size) : NULL;
}

static HAK_COLD void *allocate_by_flags(size_t size, int flags)
{
    size_t alignment = flags_alignment(flags);
    bool zero = flags & MALLOCX_ZERO, named;
    struct heap *heap;
    void *block;

    if (!flags_heap(flags, &heap, &named))
        return out_of_memory();
    if (!named)
        heap = counted.bound;
    if (heap)
        block = front_heap_aligned_alloc(heap, alignment, size, zero);
    else if (is_uncached(flags))
        block = counted_uncached_alloc(alignment, size, zero);
    else
        block = zero ? zeroed_alloc(alignment, size) : front_aligned_alloc(alignment, size);
    if (block && zero) /* all usable bytes, so that rallocx need not know how many were requested */
        zero_from(block, size);
    return block;
}

API_EXPORT void *mallocx(size_t size, int flags)
{
    return HAK_LIKELY(flags == 0) ? front_malloc(size) : allocate_by_flags(size, flags);
}

/* A block stays in its arena unless the flags name another one. */
static void *move(void *old, const struct block *block, size_t size, int flags, bool named)
{
    void *fresh;

    if (!named && block->heap)
        fresh = front_heap_aligned_alloc(block->heap, flags_alignment(flags), size, false);
    else
        fresh = allocate_by_flags(size, flags & ~MALLOCX_ZERO);
    if (fresh == NULL)
        return NULL;
    memcpy(fresh, old, base_min(block->size, size));
    if (is_uncached(flags))
        counted_uncached_free(old, "rallocx");
    else
        front_free_named(old, "rallocx");
    return fresh;
}

API_EXPORT void *rallocx(void *address, size_t size, int flags)
{
    struct block block = block_find(address, "rallocx");
    size_t alignment = flags_alignment(flags);
    struct heap *heap;
    bool named;
    void *result;

    if (block.size == 0 || size > REQUEST_MAX || !flags_heap(flags, &heap, &named))
        return out_of_memory();
    if (((uintptr_t)address & (alignment - 1)) == 0 && (!named || block.heap == heap)) {
        if (block_may_stay(block.size, size))
            return address;
        /* The system moves pages of large blocks without a copy. */
        if (block.slab == NULL && size > POOLED_MAX && alignment <= os_page_size()) {
            result = front_realloc(address, size, "rallocx");
            if (result && (flags & MALLOCX_ZERO))
                zero_from(result, block.size);
            return result;
        }
    }
    result = move(address, &block, size, flags, named);
    if (result && (flags & MALLOCX_ZERO))
        zero_from(result, base_min(block.size, size));
    return result;
}

API_EXPORT size_t xallocx(void *address, size_t size, size_t extra, int flags)
{
    struct block block = block_find(address, "xallocx");
    size_t most = size > REQUEST_MAX - base_min(extra, REQUEST_MAX) ? REQUEST_MAX : size + extra, got;

    if (block.size == 0 || block.slab || ((uintptr_t)address & (flags_alignment(flags) - 1)) != 0)
        return block.size;
    got = front_resize_in_place(address, most, "xallocx");
    if (got < size && extra)
        got = front_resize_in_place(address, size, "xallocx");
    if (flags & MALLOCX_ZERO)
        zero_from(address, block.size);
    return got;
}

/* ---- Sizes ---- */

API_EXPORT size_t sallocx(const void *block, int flags)
{
    (void)flags;
    return front_usable_size(block, "sallocx");
}

/* 0: there can be no such block. */
API_EXPORT size_t nallocx(size_t size, int flags)
{
    size_t alignment = flags_alignment(flags);

    if (size > REQUEST_MAX || alignment > REQUEST_MAX - size)
        return 0;
    return front_good_size(base_align_up(size, alignment));
}

/* ---- Frees ---- */

API_EXPORT void dallocx(void *block, int flags)
{
    if (HAK_UNLIKELY(block != NULL && is_uncached(flags)))
        counted_uncached_free(block, "dallocx");
    else
        front_free(block);
}

static HAK_COLD void free_sized_uncached(void *address, size_t size)
{
    struct block block = block_find(address, "sdallocx");

    if (block.size && size > block.size)
        block_misused(address, MISUSE_SIZE, "sdallocx");
    else if (block.size)
        counted_uncached_free(address, "sdallocx");
}

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    if (HAK_UNLIKELY(block != NULL && is_uncached(flags)))
        free_sized_uncached(block, size);
    else
        contract_free_sized(block, size, flags_alignment(flags), "sdallocx");
}

/* ---- The same functions with je_ before their names ---- */

JE_ALIAS(mallocx)
JE_ALIAS(rallocx)
JE_ALIAS(xallocx)
JE_ALIAS(sallocx)
JE_ALIAS(nallocx)
JE_ALIAS(dallocx)
JE_ALIAS(sdallocx)

API_EXPORT void *je_malloc(size_t size) { return front_malloc(size); }

API_EXPORT void *je_calloc(size_t count, size_t size) { return contract_calloc(count, size); }

API_EXPORT void *je_realloc(void *block, size_t size) { return contract_realloc(block, size, "je_realloc"); }

API_EXPORT void je_free(void *block) { front_free(block); }

API_EXPORT int je_posix_memalign(void **block, size_t alignment, size_t size)
{
    return contract_posix_memalign(block, alignment, size);
}

API_EXPORT void *je_aligned_alloc(size_t alignment, size_t size) { return contract_aligned_alloc(alignment, size); }

API_EXPORT void *je_memalign(size_t alignment, size_t size) { return contract_aligned_alloc(alignment, size); }

API_EXPORT void *je_valloc(size_t size) { return contract_aligned(os_page_size(), size); }

API_EXPORT size_t je_malloc_usable_size(const void *block) { return front_usable_size(block, "je_malloc_usable_size"); }
