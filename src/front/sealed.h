/*
 * The operations of front.h in libhakmem-secure (harden/harden.h), beyond the fast path (front/seal.h): each call
 * checks the block that it takes, and the block that it gives.
 */
#ifndef HAK_FRONT_SEALED_H
#define HAK_FRONT_SEALED_H

#include "harden/seal.h"

struct heap;

/* The largest request of a slot in a slab. */
#define SEALED_MOST (57344 - SEAL_BYTES)

/* Whether a slab has the block; else it is huge. */
HAK_INLINE bool sealed_is_pooled(size_t alignment, size_t size)
{
    return size + SEAL_BYTES <= POOLED_MAX && alignment < POOLED_MAX;
}

/* Bytes of a slot by class; 0 for spans. */
HAK_DATA const uint16_t sealed_slots[CLASS_COUNT];
/* The same for the classes whose blocks the fast path frees. For others, too much for a unit. */
HAK_DATA const uint32_t sealed_fast_slots[CLASS_COUNT];

/* What a caller of free knows of the block. */
struct sealed_claim {
    size_t size;      /* SIZE_MAX: nothing */
    size_t alignment; /* 1: nothing */
    unsigned kind;    /* enum seal_kind that the function frees */
};
#define SEALED_NO_CLAIM ((struct sealed_claim){ SIZE_MAX, 1, SEAL_MALLOC })

/* heap: first-class, or NULL for the thread's. *zero: it reads as zero. Returns NULL with ENOMEM when memory is out. */
HAK_HIDDEN void *sealed_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero);
HAK_HIDDEN void sealed_free(void *block, struct sealed_claim claim, const char *function);
/* seal_give for a span. */
HAK_HIDDEN void *sealed_give_span(char *block, size_t size, enum seal_kind kind);
/* seal_give of a free block that was written: reports that first. */
HAK_HIDDEN HAK_COLD void *sealed_give_written(char *block, size_t class, size_t size, enum seal_kind kind);
/* Notes that an operator new gave the live block. Ignores NULL. */
HAK_HIDDEN void sealed_mark(void *block, enum seal_kind kind);
/* As front_realloc. heap NULL: the block's own. */
HAK_HIDDEN void *sealed_realloc(struct heap *heap, void *block, size_t size, const char *function);

/* The bytes that the program asked for. *found tells whether a live block starts there; `found` may be NULL. */
HAK_HIDDEN size_t sealed_size(const void *address, bool *found, struct heap **heap);
HAK_HIDDEN size_t sealed_usable_size(const void *block, const char *function);

/* Grows the block in place to `size` bytes. Returns its size, changed or not; 0 if it did not grow. */
HAK_HIDDEN size_t sealed_expand(void *block, size_t size, const char *function);

/* At the process's end: checks the free blocks that the thread holds, as no malloc will. */
HAK_HIDDEN void sealed_look_at_exit(void);

/* Forgets the blocks of a first-class heap that is about to give all of them back (V6, V7). Under its lock. */
HAK_HIDDEN void sealed_clear_heap(struct heap *heap);

#endif
