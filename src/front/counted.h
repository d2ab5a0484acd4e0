/*
 * What front/ and api/ do in libhakmem-je.so alone: count the bytes that each thread allocates and frees, and let a
 * thread's malloc allocate in a first-class heap. Elsewhere COUNTED is 0, and none of it is compiled.
 *
 * Q1: a thread that is bound to a heap or wants no cache has none, so all its calls miss and take a slow path (T1).
 */
#ifndef HAK_FRONT_COUNTED_H
#define HAK_FRONT_COUNTED_H

#include "front/front.h"

#if defined(HAKMEM_BUILD_COUNTED) && HAKMEM_BUILD_COUNTED
enum { COUNTED = 1 };
#else
enum { COUNTED = 0 };
#endif

struct counted {
    uint64_t allocated, freed; /* bytes by the thread since its start, rounded up to the blocks' sizes */
    struct heap *bound;        /* the first-class heap of its malloc, or NULL */
    bool uncached;             /* it wants no cache: the house heap serves it */
};
HAK_DATA _Thread_local struct counted counted __attribute__((tls_model("initial-exec")));

HAK_INLINE void counted_allocated(size_t bytes)
{
    if (COUNTED)
        counted.allocated += bytes;
}

HAK_INLINE void counted_freed(size_t bytes)
{
    if (COUNTED)
        counted.freed += bytes;
}

/* For a block, or NULL, whose size is not known here. */
HAK_INLINE void counted_allocated_block(const void *block)
{
    if (COUNTED && block)
        counted.allocated += front_block_size(block);
}

HAK_INLINE void counted_freed_block(const void *block)
{
    if (COUNTED)
        counted.freed += front_block_size(block);
}

/* The heap that the thread is bound to, or `other`. */
HAK_INLINE struct heap *counted_bound_or(struct heap *other)
{
    return COUNTED && HAK_UNLIKELY(counted.bound != NULL) ? counted.bound : other;
}

#endif
