/* What the C library's names and the hak_* names have in common: the checks that their contracts ask for before front/. */
#ifndef HAK_API_CONTRACTS_H
#define HAK_API_CONTRACTS_H

#include <errno.h>

#include "front/front.h"

#define API_EXPORT __attribute__((visibility("default")))

/* C17 7.22.3.1: an alignment that is not supported fails. */
HAK_INLINE void *contract_aligned_alloc(size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return front_aligned_alloc(alignment, size);
}

/* POSIX: the error is returned; glibc leaves errno alone then, which programs have come to expect. */
HAK_INLINE int contract_posix_memalign(void **block, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment) || alignment % sizeof(void *) != 0))
        return EINVAL;
    int saved_errno = errno;
    void *got = front_aligned_alloc(alignment, size);
    if (HAK_UNLIKELY(got == NULL)) {
        errno = saved_errno;
        return ENOMEM;
    }
    *block = got;
    return 0;
}

HAK_INLINE void *contract_reallocarray(void *block, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return front_realloc(block, total, "reallocarray");
}

#endif
