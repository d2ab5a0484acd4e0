/* Blocks of scopes (pool/scope.h). */
#ifndef HAK_FRONT_SCOPE_H
#define HAK_FRONT_SCOPE_H

#include "front/block.h"
#include "front/within.h"

/* Calls the callbacks of soft caps that were passed, those of the scope that the calling thread is in and of scopes
 * above it. Call it at the end of an operation that may have charged bytes. Any thread that holds no lock. */
HAK_HIDDEN void scope_tell(void);

/* A block in the scope that the calling thread is in. *zero: it reads as zero. NULL with ENOMEM. Tells. */
HAK_HIDDEN void *scope_allocate(size_t alignment, size_t size, bool *zero);

/* The operations of hakmem/scope.h, which tells their results. The scope is open. */
HAK_HIDDEN struct scope *front_scope_new(const char *name, struct scope *parent, size_t cap);
HAK_HIDDEN int front_scope_enter(struct scope *scope);
HAK_HIDDEN int front_scope_destroy(struct scope *scope, bool free_blocks);

/* A block of the first-class heap, which may be a scope's. Does not tell. */
HAK_HIDDEN void *scope_allocate_in(struct heap *heap, size_t size);

/* sample_huge_resize, for a block of a heap (NULL: of none) that may be a scope's. Does not tell. */
HAK_HIDDEN void *scope_huge_resize(struct heap *heap, void *address, size_t size, bool may_move);

#endif
