/*
 * What jemalloc's flags of an arena and of a thread cache do: nothing. A program has their numbers from jemalloc's
 * mallctl, which has no counterpart here. je/blocks.c has other functions for libhakmem-je.
 */
#ifndef HAK_API_PLACE_H
#define HAK_API_PLACE_H

#include "front/front.h"

/* Where a call wants its block. */
struct sized_place {
    struct heap *heap; /* first-class, or NULL */
    bool elsewhere;    /* not where the old block is: it has to move */
    bool uncached;     /* past the thread's cache */
    bool apart;        /* not where realloc would allocate */
};

/* old: the block that the call resizes, or NULL. False: there is no such place. */
HAK_INLINE bool sized_place_of(struct sized_place *place, int flags, const void *old)
{
    (void)flags, (void)old;
    *place = (struct sized_place){ 0 };
    return true;
}

/* A block whose first `size` bytes are zero if `zeroed` and the alignment is at most BLOCK_ALIGN. */
HAK_INLINE void *sized_place_alloc(const struct sized_place *place, size_t alignment, size_t size, bool zeroed)
{
    (void)place;
    return zeroed && alignment <= BLOCK_ALIGN ? front_calloc(1, size) : front_aligned_alloc(alignment, size);
}

/* Frees the block in the way that the flags name. False: they name none, and nothing is freed. size 0: not known. */
HAK_INLINE bool sized_place_free(int flags, void *block, size_t size, const char *function)
{
    (void)flags, (void)block, (void)size, (void)function;
    return false;
}

#endif
