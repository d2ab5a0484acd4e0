/* Frees with a size, and sizes of blocks, where another object's functions may come before ours (interposed.h). */
#ifndef HAK_API_SIZED_H
#define HAK_API_SIZED_H

#include "api/contracts.h"
#include "api/interposed.h"
#include "config/limits.h"

/* name: the public function. function: its name in a report of misuse. */
HAK_INLINE void sized_free(enum interposed_name name, void *block, size_t size, size_t alignment, const char *function)
{
    if (interposed_is(name))
        interposed_free(block, alignment > BLOCK_ALIGN, function);
    else
        contract_free_sized(block, size, alignment, function);
}

/* Another object's malloc is taken to give no more than was requested. */
HAK_INLINE size_t sized_good(size_t size) { return interposed_is(INTERPOSED_SIZES) ? size : front_good_size(size); }

/* ---- jemalloc's flags in nallocx and sdallocx: the lowest 6 bits are the alignment's logarithm, or 0 ---- */

HAK_INLINE size_t sized_flags_alignment(int flags)
{
    return (size_t)1 << (flags & 63);
}

/* The usable size of a block of the size and alignment; 0: there can be no such block. */
HAK_INLINE size_t sized_with_flags(size_t size, int flags)
{
    size_t own = front_aligned_size(sized_flags_alignment(flags), size);
    return own != 0 && interposed_is(INTERPOSED_SIZES) ? size : own;
}

#endif
