/* Operations that only other allocators' interfaces (je/, tc/) have. Conditions as in front.h. */
#ifndef HAK_FRONT_SEATS_H
#define HAK_FRONT_SEATS_H

#include "front/front.h"

/* Allocates past the thread's cache, from a slab that is already well filled (pool/dense.h). With `zeroed` all usable
 * bytes of the block are zero. */
HAK_HIDDEN void *front_uncached_alloc(size_t alignment, size_t size, bool zeroed);

/* Frees past the thread's cache, into the slab at once. If another thread's heap owns it, the owner has it later. */
HAK_HIDDEN void front_uncached_free(void *block, const char *function);

/* Resizes a block above 1 MiB in place, to above 1 MiB, if the system can. Returns its usable size, changed or not. */
HAK_HIDDEN size_t front_resize_in_place(void *block, size_t size, const char *function);

/* Makes the calling thread's malloc allocate in the first-class heap, or with NULL as usual (front/counted.h, Q1). */
HAK_HIDDEN void front_bind_thread(struct heap *heap);

/* Gives the calling thread a cache, or none. A thread that is bound has none either way. */
HAK_HIDDEN void front_set_thread_cached(bool cached);

/* Collects the heap's remote frees and gives back its warm slabs. The memory leaves with the next purge. */
HAK_HIDDEN void front_heap_collect(struct heap *heap);

/* Purges memory that has waited out its delay. */
HAK_HIDDEN void front_decay(void);

/* HAKMEM_PURGE_DELAY in milliseconds. A change takes effect at the next purge, whose time stays. */
HAK_HIDDEN uint64_t front_purge_delay(void);
HAK_HIDDEN void front_set_purge_delay(uint64_t milliseconds);

#endif
