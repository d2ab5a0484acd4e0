/* Heaps in tests: take and return blocks without a thread cache, and check the invariants. */
#ifndef HAK_TESTS_UNIT_HEAPS_H
#define HAK_TESTS_UNIT_HEAPS_H

#include "core.h"

#include "pool/heap.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"

/* core_begin, then makes a heap. */
struct heap *heaps_begin(void);

/* heaps_take: heap_take_blocks under the lock. heaps_take_all takes exactly `count`, by as many refills as it needs. */
size_t heaps_take(struct heap *heap, unsigned class, void **out, size_t want);
void heaps_take_all(struct heap *heap, unsigned class, void **out, size_t count);

/* heap_return_blocks under the lock. All blocks must be the heap's. */
void heaps_return(struct heap *heap, unsigned class, void **blocks, size_t count);

/* heap_release_warm under the lock. */
void heaps_release_warm(struct heap *heap);

/* Checks H1, H2, H5, H6, O6 and W2 of a heap's slabs, and its warm pool. Returns the units that the heap holds. */
size_t heaps_check_one(struct heap *heap);

/* heaps_check_one for all heaps, then core_check_pool. Some heap must hold every unit taken from the pool. */
void heaps_check(void);

#endif
