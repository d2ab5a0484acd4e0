/* Samples of the heap profile on the slow paths: tokens that were drawn, calls that no cache serves, frees of samples. */
#ifndef HAK_FRONT_SAMPLE_H
#define HAK_FRONT_SAMPLE_H

#include "front/thread_cache.h"
#include "profile/profile.h"

/* Serves a call that drew a token: with a sampled block of the class, or as it would be without a profile. NULL when memory is out. */
HAK_HIDDEN void *sample_entry(struct thread_cache *cache, unsigned class, bool *zero);

/* A sampled block for a call that was drawn, with the weight; cache may be NULL. */
HAK_HIDDEN void *sample_block(struct thread_cache *cache, unsigned class, uint64_t weight, bool *zero);

/* An aligned block that no class has, if the call is drawn; else NULL. */
HAK_HIDDEN void *sample_aligned(struct thread_cache *cache, size_t alignment, size_t size);

/* Draws for each block of a batch, and puts sampled blocks in the place of those that are drawn. */
HAK_HIDDEN void sample_batch(struct thread_cache *cache, unsigned class, void **blocks, size_t count);

/* Draws for a block of so many bytes of a first-class heap, or a huge one (heap NULL), and records it where it is. NULL is none. */
HAK_HIDDEN void sample_note_foreign(void *block, size_t size, struct heap *heap);
HAK_INLINE void sample_foreign(void *block, size_t size, struct heap *heap)
{
    if (HAK_UNLIKELY(profile_on()) && block && !profile_draw_passes(&cache_current()->draw, size, govern_shift(CLASS_NONE), 1))
        sample_note_foreign(block, size, heap);
}

/* Frees a block of the profile's heap, for the function, and gives its token to the calling thread's cache. */
HAK_HIDDEN void sample_free(void *block, const char *function);

/* A block that may be a sample by its address is about to be freed. */
HAK_INLINE void sample_forget_foreign(const void *block)
{
    struct record record;

    if (HAK_UNLIKELY(table_foreign()))
        (void)profile_forget(block, &record);
}
HAK_INLINE void sample_forget_heap(struct heap *heap) { profile_forget_heap(heap); }

/* huge_resize. For the profile a huge block that changes its size is freed and allocated anew. */
HAK_HIDDEN void *sample_huge_resize(void *block, size_t size, bool may_move);

/* Turns the profile on with the mean (bytes), or off (0). 0, or ENOMEM. */
HAK_HIDDEN int front_profile_set(uint64_t mean);

/* What the options ask for, when the process starts and ends. */
HAK_HIDDEN void front_profile_at_start(void);
HAK_HIDDEN void front_profile_at_exit(void);

#endif
