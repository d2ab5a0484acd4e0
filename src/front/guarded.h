/* Guarded blocks (profile/guard.h) on the slow paths: for samples and calls of first-class heaps; frees; on and off. */
#ifndef HAK_FRONT_GUARDED_H
#define HAK_FRONT_GUARDED_H

#include "front/thread_cache.h"
#include "profile/guard.h"

/* A guarded block of `wanted` bytes for a sampled call. NULL: this sample is not to be guarded, or cannot be. */
HAK_HIDDEN void *guarded_sample(struct thread_cache *cache, unsigned class, size_t alignment, size_t wanted);

/* As guarded_sample, for a call of a first-class heap. Draws whether the call is a sample. */
HAK_HIDDEN void *guarded_in_heap(struct heap *heap, size_t alignment, size_t wanted);

/* Frees an address in the guards' range; `function` is for reports. */
HAK_HIDDEN void guarded_free(void *block, const char *function);

/* Turns guards on with the mean (bytes), or off (0). Guarded blocks stay guarded. Returns 0 or an errno. */
HAK_HIDDEN int front_guard_set(uint64_t mean);

/* As front_guard_set, at the exit of a slow call; see front_profile_try. */
HAK_HIDDEN int front_guard_try(uint64_t mean);

/* Does what the options ask for when the process starts. */
HAK_HIDDEN void front_guard_at_start(void);

#endif
