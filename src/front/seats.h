/* Operations that only other allocators' interfaces (je/, tc/) have. Conditions as in front.h. */
#ifndef HAK_FRONT_SEATS_H
#define HAK_FRONT_SEATS_H

#include "front/front.h"

/* Allocates past the thread's cache, from a slab that is already well filled (pool/dense.h). With `zeroed` all usable
 * bytes of the block are zero. */
HAK_HIDDEN void *front_uncached_alloc(size_t alignment, size_t size, bool zeroed);

/* Frees past the thread's cache, into the slab at once. If another thread's heap owns it, the owner has it later. */
HAK_HIDDEN void front_uncached_free(void *block, const char *function);

/* Takes the calling thread's cache away, so that the house heap serves its calls, or lets it have one again. */
HAK_HIDDEN void front_set_thread_cached(bool cached);

/* Collects the heap's remote frees and gives back its warm slabs. The memory leaves with the next purge. */
HAK_HIDDEN void front_heap_collect(struct heap *heap);

/* Purges memory that has waited out its delay. */
HAK_HIDDEN void front_decay(void);

/* HAKMEM_PURGE_DELAY in milliseconds. A change takes effect at the next purge, whose time stays. */
HAK_HIDDEN uint64_t front_purge_delay(void);
HAK_HIDDEN void front_set_purge_delay(uint64_t milliseconds);

#endif
