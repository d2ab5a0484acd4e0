/* The life of threads: each has a heap and a cache from its first call to its end. */
#ifndef HAK_FRONT_THREAD_H
#define HAK_FRONT_THREAD_H

#include "front/thread_cache.h"

/* The calling thread's cache, made if there is none: then this is a foreign point (os/foreign.h). NULL: memory is out,
 * the thread is past its end, or wants none; use the house heap. Or the thread is in a scope; use that (T9). */
HAK_HIDDEN struct thread_cache *thread_cache_get(void);

/* The same, but in a scope the cache that the thread has. */
HAK_HIDDEN struct thread_cache *thread_cache_own(void);

/* Call before a thread makes another one: gives up what it keeps while it is alone, and counts the new one. Then either
 * the new thread calls thread_begun first of all, or its maker thread_not_begun. Any thread that holds no lock. */
HAK_HIDDEN void thread_expect(void);
HAK_HIDDEN void thread_begun(void);
HAK_HIDDEN void thread_not_begun(void);

/* Gives up the calling thread's cache and heap. It gets others when it allocates again. */
HAK_HIDDEN void thread_release(void);

/* Counts the calling thread until it ends, if it is not counted. thread_cache_get calls this. A foreign point. */
HAK_HIDDEN void thread_note(void);

/* The number of counted threads that have not ended: those that thread_expect was called for, and those that have
 * allocated. Any thread. */
HAK_HIDDEN uint32_t thread_count(void);

/* In the child of a fork: the calling thread is the only one. */
HAK_HIDDEN void thread_reset_in_child(void);

#endif
