/* The life of the process and its threads as the allocator sees it: first call, thread birth and death, fork, and the tick that
 * gives memory back. */
#ifndef HAK_FRONT_THREAD_H
#define HAK_FRONT_THREAD_H

#include "front/thread_cache.h"
#include "superslab/purge.h"

/* The calling thread's cache, made if it has none. NULL when memory is out, or the thread is past its end: use the house heap. */
HAK_HIDDEN struct thread_cache *thread_cache_get(void);

/* The calling thread gives up its cache and heap; it gets others when it allocates again. */
HAK_HIDDEN void thread_release(void);

/* Gives back what is due: free units, huge ranges, what idle heaps hold, caches of dead threads. Called on every slow path, holding no
 * lock. */
HAK_HIDDEN void thread_tick_due(void);
HAK_INLINE void thread_tick(void)
{
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0)
        thread_tick_due();
}

/* Makes each thread flush its cache on its next slow call, as a tick does. */
HAK_HIDDEN void thread_want_flush(void);

/* How often that was wanted. */
HAK_HIDDEN extern _Atomic uint32_t thread_ticks;
HAK_INLINE uint32_t thread_tick_number(void) { return atomic_load_explicit(&thread_ticks, memory_order_relaxed); }

/* A flush was wanted since the thread's last slow call. Where that is a purge delay ago, what the cache holds was unwanted for as long,
 * and leaves at once. */
HAK_HIDDEN void thread_follow_tick(struct thread_cache *cache);

/* Does all of the tick now; with `all` without waiting for any delay. Returns the bytes given back. */
HAK_HIDDEN size_t thread_purge(bool all);

/* In the child: the thread that ticked, and the purge thread, are gone. */
HAK_HIDDEN void thread_reset_after_fork(void);

#endif
