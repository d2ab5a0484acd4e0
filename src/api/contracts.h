/* Shared by the C library's names and the hak_* names: the checks that their contracts demand before front/. */
#ifndef HAK_API_CONTRACTS_H
#define HAK_API_CONTRACTS_H

#include <errno.h>

#include "front/fast.h"
#include "os/cycles.h"

/* ---- Calls that the cycle profile times beside malloc and free. It does not see calls refused before them. ---- */

HAK_INLINE void *contract_calloc(size_t count, size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_calloc(count, size));
}

/* The alignment is a power of two. */
HAK_INLINE void *contract_aligned(size_t alignment, size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_aligned_alloc(alignment, size));
}

/* alignment 1: the program gave none. */
HAK_INLINE void contract_free_sized(void *block, size_t size, size_t alignment, const char *function)
{
    CYCLES_CALL(CYCLES_FREE_HIT, if (!front_free_sized_hit(block, size, alignment))
                                     front_free_sized(block, size, alignment, function); return);
}

/* realloc of NULL is timed as malloc, and realloc to size 0 as free. */
HAK_INLINE enum cycles_kind contract_realloc_kind(const void *block, size_t size)
{
    return block == NULL ? CYCLES_MALLOC_HIT : size == 0 ? CYCLES_FREE_HIT : CYCLES_REALLOC_STAY;
}

HAK_INLINE void contract_realloc_done(uintptr_t before, const void *block, size_t size)
{
    if (HAK_CYCLES && before != 0 && size != 0)
        CYCLES_CALL_IS(block == NULL || (uintptr_t)block == before ? CYCLES_REALLOC_STAY : CYCLES_REALLOC_MOVE);
    (void)block;
}

HAK_INLINE void *contract_realloc(void *block, size_t size, const char *function)
{
    CYCLES_CALL(contract_realloc_kind(block, size), uintptr_t before = (uintptr_t)block;
                block = front_realloc(block, size, function); contract_realloc_done(before, block, size); return block);
}

/* ---- Calls that check their arguments first ---- */

/* C17 7.22.3.1: a call with an unsupported alignment fails. */
HAK_INLINE void *contract_aligned_alloc(size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return contract_aligned(alignment, size);
}

/* POSIX: the error is returned. Programs expect an unchanged errno, because glibc leaves it. */
HAK_INLINE int contract_posix_memalign(void **block, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment) || alignment % sizeof(void *) != 0))
        return EINVAL;
    int saved_errno = errno;
    void *got = contract_aligned(alignment, size);
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
    return contract_realloc(block, total, "reallocarray");
}

#endif
