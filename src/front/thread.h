/* The life of threads: each has a heap and a cache from its first call to its end. */
#ifndef HAK_FRONT_THREAD_H
#define HAK_FRONT_THREAD_H

#include "front/thread_cache.h"

/* The calling thread's cache, made if it has none. NULL when memory is out, or the thread is past its end: use the house heap. The first
 * time it is a foreign point (os/foreign.h). */
HAK_HIDDEN struct thread_cache *thread_cache_get(void);

/* The calling thread gives up its cache and heap; it gets others when it allocates again. */
HAK_HIDDEN void thread_release(void);

/* Counts the calling thread until it ends, if it is not counted: thread_cache_get does. A foreign point. */
HAK_HIDDEN void thread_note(void);

/* Threads that are counted: at least those that have allocated and not ended. Any thread. */
HAK_HIDDEN uint32_t thread_count(void);

/* In the child of a fork: the calling thread is the only one. */
HAK_HIDDEN void thread_reset_in_child(void);

#endif
