/* Finds the live block that starts at an address, as far as that can be told. */
#ifndef HAK_FRONT_BLOCK_H
#define HAK_FRONT_BLOCK_H

#include <errno.h>

#include "pool/heap.h"
#include "pool/misuse.h"
#include "pool/slab.h"

struct block {
    size_t size;       /* usable bytes; 0: no block. Hardened: the requested bytes, or 1 if those are 0 */
    struct slab *slab; /* NULL: huge. A guarded block has an empty stand-in */
    struct heap *heap; /* its first-class heap, or NULL */
    bool guarded;      /* a guarded block (profile/guard.h); `size` is the requested size */
};

/* The live block that starts at the address, or one of size 0. */
HAK_HIDDEN struct block block_look(const void *address);

/* The class of the usual live block: one whose unit the page map knows (W2). CLASS_NONE: block_look tells more. */
HAK_INLINE unsigned block_class(const void *address)
{
    char *window = window_base();
    size_t unit = (size_t)((const char *)address - window) >> UNIT_SHIFT;
    const struct slab *slab;
    unsigned class, index;

    if (HAK_UNLIKELY(HAK_SECURE || window_is_beyond(unit)))
        return CLASS_NONE;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(class == CLASS_NONE))
        return CLASS_NONE;
    slab = slab_of(address);
    /* slab_block_index would wait for slab->class. */
    if (HAK_UNLIKELY(!class_block_starts(class, (size_t)((const char *)address - slab->start), &index) ||
                     slab_block_is_free(slab, index)))
        return CLASS_NONE;
    return class;
}

/* Finds the live block at the address, or reports misuse of `function`. A block in a thread's cache looks alive. */
HAK_HIDDEN struct block block_find(const void *address, const char *function);

/* Reports misuse of `function` at once. The thread holds no lock. */
HAK_HIDDEN HAK_COLD void block_misused(const void *address, enum misuse misuse, const char *function);

/* Whether a block of `old` usable bytes should stay where it is for `size` bytes: they fit, and little is wasted. */
HAK_INLINE bool block_may_stay(size_t old, size_t size)
{
    return size <= old && (size >= old / 2 || old <= 64);
}

HAK_INLINE void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

#endif
