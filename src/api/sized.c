/* jemalloc's functions of blocks.
 *
 * Programs look for nallocx and sdallocx in any allocator. A program that is linked to jemalloc, such as BIND or Redis,
 * also frees by free what mallocx gave it, and the reverse. With malloc from here and mallocx from jemalloc, each would
 * meet the other's blocks. So all functions of blocks are here. mallctl is not: a program that asks for it to find out
 * whether jemalloc serves malloc shall not find it here.
 *
 * api/place.h says what the flags of an arena and of a thread cache do. libhakmem-je has its own (je/blocks.c).
 */
#include "api/sized.h"

#include <stddef.h>
#include <string.h>

#include "api/names.h"
#include "api/place.h"
#include "front/block.h"
#include "front/fast.h"
#include "os/os.h"
#include "superslab/arrival.h"

enum { FLAG_ZERO = 0x40 }; /* MALLOCX_ZERO */

/* Zeroes the usable bytes from `old` on. */
static void zero_from(void *block, size_t old)
{
    size_t size = front_block_size(block);

    if (size > old)
        arrival_clear((char *)block + old, size - old);
}

static void *allocate_at(const struct sized_place *place, size_t size, int flags)
{
    size_t alignment = sized_flags_alignment(flags);
    bool zero = flags & FLAG_ZERO;
    void *block = sized_place_alloc(place, alignment, size, zero);

    if (zero && block != NULL) /* all usable bytes, because rallocx does not know how many were requested */
        zero_from(block, alignment <= BLOCK_ALIGN ? size : 0);
    return block;
}

static HAK_COLD void *allocate_by_flags(size_t size, int flags)
{
    struct sized_place place;

    return sized_place_of(&place, flags, NULL) ? allocate_at(&place, size, flags) : out_of_memory();
}

API_EXPORT void *mallocx(size_t size, int flags)
{
    return HAK_LIKELY(flags == 0) ? front_malloc(size) : allocate_by_flags(size, flags);
}

static void *move(void *old, size_t old_size, const struct sized_place *place, size_t size, int flags)
{
    void *fresh = allocate_at(place, size, flags & ~FLAG_ZERO);

    if (fresh != NULL) {
        memcpy(fresh, old, base_min(old_size, size));
        if (!sized_place_free(flags, old, 0, "rallocx"))
            front_free_named(old, "rallocx");
    }
    return fresh;
}

static bool is_aligned(const void *address, int flags)
{
    return ((uintptr_t)address & (sized_flags_alignment(flags) - 1)) == 0;
}

/* Whether realloc does what the flags ask. A huge block that stays one begins at a page, and comes from no cache. */
static bool realloc_suits(const struct sized_place *place, size_t old, size_t size, size_t alignment)
{
    if (!HAK_SECURE && old > POOLED_MAX && size > POOLED_MAX && alignment <= os_page_size())
        return true;
    return !place->apart && alignment <= BLOCK_ALIGN;
}

/* The hardened library knows the exact size, so a block does not stay for another one. */
static bool may_stay(size_t old, size_t size) { return HAK_SECURE ? size == old : block_may_stay(old, size); }

API_EXPORT void *rallocx(void *address, size_t size, int flags)
{
    size_t old = front_live_size(address, "rallocx");
    struct sized_place place;
    void *block;
    bool suits;

    if (address == NULL || old == 0 || size == 0 || size > REQUEST_MAX || !sized_place_of(&place, flags, address))
        return out_of_memory();
    suits = !place.elsewhere && is_aligned(address, flags);
    if (suits && realloc_suits(&place, old, size, sized_flags_alignment(flags)))
        block = front_realloc(address, size, "rallocx");
    else if (suits && may_stay(old, size))
        block = address;
    else
        block = move(address, old, &place, size, flags);
    if (block != NULL && (flags & FLAG_ZERO))
        zero_from(block, base_min(old, size));
    return block;
}

API_EXPORT size_t xallocx(void *address, size_t size, size_t extra, int flags)
{
    size_t old = front_live_size(address, "xallocx"), got;
    size_t most = size > REQUEST_MAX - base_min(extra, REQUEST_MAX) ? REQUEST_MAX : size + extra;

    if (old == 0 || !is_aligned(address, flags))
        return old;
    got = front_resize_in_place(address, most, "xallocx");
    if (got < size && extra)
        got = front_resize_in_place(address, size, "xallocx");
    if (flags & FLAG_ZERO)
        zero_from(address, old);
    return got;
}

API_EXPORT size_t sallocx(const void *block, int flags)
{
    (void)flags;
    return front_usable_size(block, "sallocx");
}

API_EXPORT size_t nallocx(size_t size, int flags) { return sized_with_flags(size, flags); }

API_EXPORT void dallocx(void *block, int flags)
{
    if (!sized_place_free(flags, block, 0, "dallocx"))
        front_free(block);
}

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    if (!sized_place_free(flags, block, size, "sdallocx"))
        sized_free(INTERPOSED_SDALLOCX, block, size, sized_flags_alignment(flags), "sdallocx");
}

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
