/* Heaps in tests: blocks in and out of them without a thread cache, and their invariants. */
#ifndef HAK_TESTS_UNIT_HEAPS_H
#define HAK_TESTS_UNIT_HEAPS_H

#include "core.h"

#include "pool/heap.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"

/* core_begin, and a heap. */
struct heap *heaps_begin(void);

/* heap_take_blocks under the lock; heaps_take_all: exactly so many, by as many refills as it needs. */
size_t heaps_take(struct heap *heap, unsigned class, void **out, size_t want);
void heaps_take_all(struct heap *heap, unsigned class, void **out, size_t count);

/* heap_return_blocks under the lock; all of them must be the heap's. */
void heaps_return(struct heap *heap, unsigned class, void **blocks, size_t count);

/* H1, H2, H5, H6 and W2 of a heap's slabs, and its warm pool. Returns the units it holds. */
size_t heaps_check_one(struct heap *heap);

/* The same of all heaps; every unit taken from the pool is in one; and core_check_pool. */
void heaps_check(void);

#endif
