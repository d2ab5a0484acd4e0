/* jemalloc's functions of blocks, as in its manual ("Non-standard API"), and the standard functions with je_ before
 * their names. They serve HAKMEM's blocks, even where another object defines free. */
#include "je/entry.h"

#include <stdlib.h>

#include "api/interposed.h"
#include "api/place.h"
#include "front/block.h"
#include "je/arenas.h"
#include "je/names.h"

/* ---- Where the flags want a block (api/place.h) ---- */

enum {
    TCACHE_SHIFT = 8,
    TCACHE_MASK = 0xfff,
    TCACHE_IS_NONE = 1, /* MALLOCX_TCACHE_NONE's number; 0 is the thread's own */
    ARENA_SHIFT = 20,
    ARENA_IS_0 = 1, /* MALLOCX_ARENA(0)'s number; 0 names no arena */
};

static bool is_uncached(int flags) { return (flags >> TCACHE_SHIFT & TCACHE_MASK) == TCACHE_IS_NONE; }

/* Without an arena's name a block stays in its arena. A new block, or one of arena 0, goes to the thread's arena. */
static bool je_place_of(struct sized_place *place, int flags, const void *old)
{
    uint32_t number = (uint32_t)flags >> ARENA_SHIFT;
    struct heap *heap = old ? block_look(old).heap : NULL;

    place->uncached = place->apart = is_uncached(flags);
    place->elsewhere = false;
    place->heap = heap ? heap : counted.bound;
    if (number == 0)
        return true;
    place->heap = number == ARENA_IS_0 ? NULL : arenas_heap(number - 1);
    place->elsewhere = old != NULL && heap != place->heap;
    place->apart |= counted.bound != NULL;
    return number == ARENA_IS_0 || place->heap != NULL;
}

static void *je_place_alloc(const struct sized_place *place, size_t alignment, size_t size, bool zeroed)
{
    return place->uncached && place->heap == NULL ? counted_uncached_alloc(alignment, size, zeroed)
                                                  : counted_alloc_in(place->heap, alignment, size, zeroed);
}

static HAK_COLD void free_uncached(void *address, size_t size, const char *function)
{
    struct block block = block_find(address, function);

    if (block.size && size > block.size)
        block_misused(address, MISUSE_SIZE, function);
    else if (block.size)
        counted_uncached_free(address, function);
}

HAK_INLINE bool je_place_free(int flags, void *block, size_t size, const char *function)
{
    if (HAK_LIKELY(block == NULL || !is_uncached(flags)))
        return false;
    free_uncached(block, size, function);
    return true;
}

#define sized_place_of je_place_of
#define sized_place_alloc je_place_alloc
#define sized_place_free je_place_free
#define interposed_is(name) ((void)(name), false)

#include "api/sized.c"

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
