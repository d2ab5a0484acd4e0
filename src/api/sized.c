/* jemalloc's functions of blocks. libhakmem-je.so has those of je/blocks.c instead.
 *
 * Programs look for nallocx and sdallocx in any allocator. A program that is linked to jemalloc, such as BIND or Redis,
 * also frees by free what mallocx gave it, and the reverse. With malloc from here and mallocx from jemalloc, each would
 * meet the other's blocks. So all functions of blocks are here. mallctl is not: a program that asks for it to find out
 * whether jemalloc serves malloc shall not find it here.
 */
#include "api/sized.h"

#include <stddef.h>
#include <string.h>

#include "api/names.h"
#include "front/block.h"
#include "front/fast.h"

/* MALLOCX_ZERO. Higher flags name an arena or a thread cache, which a program got from jemalloc's mallctl: the calling
 * thread's own serve instead. */
#define FLAG_ZERO 0x40

/* Zeroes the usable bytes from `old` on. */
static void zero_from(void *block, size_t old)
{
    size_t size = front_block_size(block);

    if (size > old)
        memset((char *)block + old, 0, size - old);
}

API_EXPORT void *mallocx(size_t size, int flags)
{
    size_t alignment = sized_flags_alignment(flags);
    bool zero = flags & FLAG_ZERO;
    void *block = zero && alignment <= BLOCK_ALIGN ? front_calloc(1, size) : front_aligned_alloc(alignment, size);

    if (zero && block != NULL) /* all usable bytes, because rallocx does not know how many were requested */
        zero_from(block, alignment <= BLOCK_ALIGN ? size : 0);
    return block;
}

static void *move(void *old, size_t old_size, size_t size, int flags)
{
    void *fresh = mallocx(size, flags & ~FLAG_ZERO);

    if (fresh != NULL) {
        memcpy(fresh, old, base_min(old_size, size));
        front_free_named(old, "rallocx");
    }
    return fresh;
}

API_EXPORT void *rallocx(void *address, size_t size, int flags)
{
    size_t alignment = sized_flags_alignment(flags), old = front_usable_size(address, "rallocx");
    void *block;

    if (old == 0 || size == 0 || size > REQUEST_MAX)
        return out_of_memory();
    if (alignment <= BLOCK_ALIGN)
        block = front_realloc(address, size, "rallocx");
    else if (((uintptr_t)address & (alignment - 1)) == 0 && block_may_stay(old, size))
        block = address;
    else
        block = move(address, old, size, flags);
    if (block != NULL && (flags & FLAG_ZERO))
        zero_from(block, base_min(old, size));
    return block;
}

/* Grows the block in place if it can, to between `size` and size + extra bytes. It does not shrink. */
API_EXPORT size_t xallocx(void *address, size_t size, size_t extra, int flags)
{
    size_t old = front_usable_size(address, "xallocx"), got;
    size_t most = size > REQUEST_MAX - base_min(extra, REQUEST_MAX) ? REQUEST_MAX : size + extra;

    if (old == 0 || most <= old || ((uintptr_t)address & (sized_flags_alignment(flags) - 1)) != 0)
        return old;
    got = front_expand(address, most);
    if (got == 0 && extra && size > old)
        got = front_expand(address, size);
    if (got && (flags & FLAG_ZERO))
        zero_from(address, old);
    return got ? got : old;
}

API_EXPORT size_t sallocx(const void *block, int flags)
{
    (void)flags;
    return front_usable_size(block, "sallocx");
}

API_EXPORT size_t nallocx(size_t size, int flags) { return sized_with_flags(size, flags); }

API_EXPORT void dallocx(void *block, int flags)
{
    (void)flags;
    front_free(block);
}

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    sized_free(INTERPOSED_SDALLOCX, block, size, sized_flags_alignment(flags), "sdallocx");
}

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
