/*
 * The bytes in use, counted exactly: what heaps have handed out, without what caches keep. The heap profile takes the
 * moment of the peak from them.
 *
 * Z10: slow calls add up how the bytes in use change, by the counters of the thread's heap: for the class at hand, and
 *      at samples for all classes. A look at all heaps comes when so much more is in use that there is a new peak, by
 *      1/64 or, if that is more, LIVE_STEP for each thread.
 *      So the true peak is higher by no more than that, by one run of each thread (T8), and by what caches keep.
 */
#ifndef HAK_FRONT_LIVE_H
#define HAK_FRONT_LIVE_H

#include "front/thread_cache.h"

/* The bytes in use. Exact while no other thread is inside the allocator; blocks on their way between the parts of
 * another thread's cache count, too. Holding no lock. */
HAK_HIDDEN size_t live_total(void);

/* While the profile is on: `bytes` more are in use. Looks at the total if the peak may have risen. live_look does so in
 * any case. Holding no lock. */
HAK_HIDDEN void live_note_some(int64_t bytes);
HAK_INLINE void live_note(int64_t bytes)
{
    if (bytes)
        live_note_some(bytes);
}
HAK_HIDDEN void live_look(void);

/* Bytes of the class that the thread took, less those that it freed, beyond those of the last call. Only the thread
 * changes these counters. 0 for shared heaps (O8), whose counters are not one thread's: there only samples count. */
HAK_INLINE int64_t live_change(struct thread_cache *cache, unsigned class)
{
    const struct class_counters *counters = &cache->own->classes[class];
    uint32_t held;
    int32_t more;

    if (HAK_UNLIKELY(cache->heap != cache->own))
        return 0;
    held = (uint32_t)(counters->refilled_blocks - counters->flushed_blocks) - cache_blocks(cache, class);
    more = (int32_t)(held - cache->countdowns.held[class]);
    cache->countdowns.held[class] = held;
    return (int64_t)more * (int64_t)class_size(class);
}

/* As live_note, for what changed in all classes that have a stack. */
HAK_HIDDEN void live_note_all(struct thread_cache *cache);

#endif
