/* Heap-profile samples on the slow paths: calls that a cache counted, calls that no cache serves, frees of samples. */
#ifndef HAK_FRONT_SAMPLE_H
#define HAK_FRONT_SAMPLE_H

#include "front/thread_cache.h"
#include "profile/profile.h"

/* Serves a counted call (T8) that missed: with a guarded block of `wanted` bytes, a sampled block of the class, or as
 * without a profile. NULL when memory is out. */
HAK_HIDDEN void *sample_count(struct thread_cache *cache, unsigned class, size_t alignment, size_t wanted, bool *zero);

/* A sampled block for a call that was drawn with the weight. cache may be NULL. */
HAK_HIDDEN void *sample_block(struct thread_cache *cache, unsigned class, uint64_t weight, bool *zero);

/* A sampled block with an alignment that no class has, if the call is drawn; else NULL. */
HAK_HIDDEN void *sample_aligned(struct thread_cache *cache, size_t alignment, size_t size);

/* Draws for each block of a batch, and replaces those that are drawn by sampled blocks. */
HAK_HIDDEN void sample_batch(struct thread_cache *cache, unsigned class, void **blocks, size_t count);

/* Draws for a block of a first-class heap, or a huge one (heap NULL), and records it in place. Ignores NULL. */
HAK_HIDDEN void sample_note_foreign(void *block, size_t size, struct heap *heap);
HAK_INLINE void sample_foreign(void *block, size_t size, struct heap *heap)
{
    if (HAK_UNLIKELY(profile_on()) && block &&
        !profile_draw_passes(&cache_own()->draw, size, 1))
        sample_note_foreign(block, size, heap);
}

/* Frees a block of the profile's heap; `function` is for reports. */
HAK_HIDDEN void sample_free(void *block, const char *function);

/* Call before the free of a block that may have been recorded in place. sample_forget: true if there was a record. */
HAK_HIDDEN bool sample_forget(const void *block);
HAK_INLINE void sample_forget_foreign(const void *block)
{
    if (HAK_UNLIKELY(table_foreign()))
        (void)sample_forget(block);
}

/* The same for a span of a thread's heap at whose unit the page map has 0. If it was a sample (Z9), it is an ordinary
 * block from now on: returns its class, and the caller frees it. Else CLASS_NONE. */
HAK_HIDDEN unsigned sample_end_span(const void *block);

HAK_INLINE void sample_forget_heap(struct heap *heap) { profile_forget_heap(heap); }

/* As huge_resize. If the block's size changes, the profile counts a free and a new allocation. */
HAK_HIDDEN void *sample_huge_resize(void *block, size_t size, bool may_move);

/* Turns the profile on with the mean (bytes), or off (0). Returns 0 or ENOMEM. */
HAK_HIDDEN int front_profile_set(uint64_t mean);

/* As front_profile_set, at the exit of a slow call: waits for no thread and loads no library. EBUSY: another thread
 * starts, stops or writes a profile. */
HAK_HIDDEN int front_profile_try(uint64_t mean);

/* Do what the options ask for when the process starts and ends. */
HAK_HIDDEN void front_profile_at_start(void);
HAK_HIDDEN void front_profile_at_exit(void);

#endif
