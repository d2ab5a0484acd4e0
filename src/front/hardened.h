/*
 * The operations of front.h in libhakmem-secure (harden/harden.h): each call checks the block that it takes, and the
 * block that it gives.
 */
#ifndef HAK_FRONT_HARDENED_H
#define HAK_FRONT_HARDENED_H

#include "harden/seal.h"

struct heap;

/* What a caller of free knows of the block. */
struct hardened_claim {
    size_t size;      /* SIZE_MAX: nothing */
    size_t alignment; /* 1: nothing */
    unsigned kind;    /* enum seal_kind that the function frees */
};
#define HARDENED_NO_CLAIM ((struct hardened_claim){ SIZE_MAX, 1, SEAL_MALLOC })

/* heap: first-class, or NULL for the thread's. The block is zero. Returns NULL with ENOMEM when memory is
 * out. */
HAK_HIDDEN void *hardened_allocate(struct heap *heap, size_t alignment, size_t size);
HAK_HIDDEN void hardened_free(void *block, struct hardened_claim claim, const char *function);
/* Notes that an operator new gave the live block. Ignores NULL. */
HAK_HIDDEN void hardened_mark(void *block, enum seal_kind kind);
/* As front_realloc. heap NULL: the block's own. */
HAK_HIDDEN void *hardened_realloc(struct heap *heap, void *block, size_t size, const char *function);

/* The bytes that the program asked for. *found tells whether a live block starts there; `found` may be NULL. */
HAK_HIDDEN size_t hardened_size(const void *address, bool *found, struct heap **heap);
HAK_HIDDEN size_t hardened_usable_size(const void *block, const char *function);

/* Grows the block in place to `size` bytes. Returns its size, changed or not; 0 if it did not grow. */
HAK_HIDDEN size_t hardened_expand(void *block, size_t size, const char *function);

/* At the process's end: checks the free blocks that the thread holds, as no malloc will. */
HAK_HIDDEN void hardened_look_at_exit(void);

/* Reports that byte `at` of a free block was written. `function` is the public name, `found` says when it was seen. */
HAK_HIDDEN void hardened_report_freed(const char *block, size_t at, const char *function, const char *found);

/* Zeroes the blocks of a first-class heap that is about to give all of them back (V7). Under its lock. */
HAK_HIDDEN void hardened_clear_heap(struct heap *heap);

#endif
