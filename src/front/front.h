/* The operations of the allocator on blocks, for the layers above. fast.h holds malloc and free. */
#ifndef HAK_FRONT_FRONT_H
#define HAK_FRONT_FRONT_H

#include "base/base.h"

struct heap;

/* Any thread may call these functions at any time. They initialise the process and the thread on first use. A function
 * that returns a block returns NULL with errno ENOMEM on failure. A function that takes a block calls misuse_report if
 * it is none; `function` is the public name that the user called, for that report. */

HAK_HIDDEN void *front_malloc_slow(size_t size);
/* malloc; if the call is a sample, its stack has the site as its leaf. */
HAK_HIDDEN void *front_malloc_at(size_t size, const void *site);
HAK_HIDDEN void front_free_slow(void *block);
HAK_HIDDEN void front_free_named(void *block, const char *function);
HAK_HIDDEN void *front_calloc(size_t count, size_t size);
/* alignment: any power of two, checked by the caller. */
HAK_HIDDEN void *front_aligned_alloc(size_t alignment, size_t size);
/* block NULL: malloc. size 0 with a block: frees it, returns NULL. */
HAK_HIDDEN void *front_realloc(void *block, size_t size, const char *function);
HAK_HIDDEN size_t front_usable_size(const void *block, const char *function);
/* The same for calls that go on to use the block: also reports one that is free in its slab. */
HAK_HIDDEN size_t front_live_size(const void *block, const char *function);
/* As front_usable_size, for any address: 0 if no live block of HAKMEM starts there. */
HAK_HIDDEN size_t front_block_size(const void *address);
/* Usable bytes of a block for a request of the size; the size itself if there can be no such block. */
HAK_HIDDEN size_t front_good_size(size_t size);
/* As front_good_size, for a block of that alignment; 0 if there can be none. */
HAK_HIDDEN size_t front_aligned_size(size_t alignment, size_t size);
HAK_HIDDEN size_t front_expand(void *block, size_t size);
/* Resizes a block above 1 MiB in place, to above 1 MiB, if the system can. Returns its usable size, changed or not. */
HAK_HIDDEN size_t front_resize_in_place(void *block, size_t size, const char *function);
/* Checks that the block can be of that size (and alignment; 1 if none is known), then frees it. */
HAK_HIDDEN void front_free_sized(void *block, size_t size, size_t alignment, const char *function);
HAK_HIDDEN size_t front_malloc_batch(size_t size, size_t count, void **blocks);
HAK_HIDDEN void front_free_batch(void *const *blocks, size_t count);
HAK_HIDDEN size_t front_collect(bool purge);
HAK_HIDDEN void front_thread_idle(void);

/* First-class heaps. */
HAK_HIDDEN struct heap *front_heap_new(void);
/* size: any, alignment: a power of two. *zero: the block reads as zero. Charges no scope (front/scope.h). */
HAK_HIDDEN void *front_heap_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero);
HAK_HIDDEN void *front_heap_aligned_alloc(struct heap *heap, size_t alignment, size_t size, bool zeroed);
HAK_HIDDEN void *front_heap_realloc(struct heap *heap, void *block, size_t size); /* block is not NULL */
HAK_HIDDEN struct heap *front_heap_of(const void *block);
/* Frees every block of the heap. The heap stays. */
HAK_HIDDEN void front_heap_reset(struct heap *heap);
HAK_HIDDEN void front_heap_destroy(struct heap *heap);

#endif
