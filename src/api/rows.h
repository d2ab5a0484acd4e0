/* Rows of statistics for callers whose version of a struct may differ. */
#ifndef HAK_API_ROWS_H
#define HAK_API_ROWS_H

#include <errno.h>

#include "base/base.h"

/* Copies the members that the caller's version of a struct has. Members that only the caller's version has are 0. */
HAK_INLINE void row_give(void *to, size_t size, const void *from, size_t known)
{
    __builtin_memcpy(to, from, base_min(size, known));
    if (size > known)
        __builtin_memset((char *)to + known, 0, size - known);
}

/* False, with EINVAL: the caller's struct is too small. */
HAK_INLINE bool row_size_is_at_least(size_t size, size_t least)
{
    if (size >= least)
        return true;
    errno = EINVAL;
    return false;
}
HAK_INLINE bool row_size_is_good(size_t size) { return row_size_is_at_least(size, sizeof(uint64_t)); }

#endif
