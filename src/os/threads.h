/* Hooks into the thread library: the end of a thread, and fork. The same on the real kernel and on the
 * fake one. */
#ifndef HAK_OS_THREADS_H
#define HAK_OS_THREADS_H

#include "base/base.h"

/* Prepares os_thread_exit_arm. Call it once, before other threads call HAKMEM. */
HAK_HIDDEN void os_thread_exit_prepare(void);

/* Makes the calling thread call `at_exit`, always the same function, when it ends: after its C++ thread_locals are
 * destroyed, perhaps before other keys' destructors. If the process has no keys left, `at_exit` runs among the
 * destructors of thread_locals, in the main thread when the process exits. True the first time in each thread. May
 * allocate. Any thread. */
HAK_HIDDEN bool os_thread_exit_arm(void (*at_exit)(void *));

/* Whether os_thread_exit_arm has armed the calling thread. */
HAK_HIDDEN bool os_thread_exit_is_armed(void);

/* Registers the functions that run before fork in the parent, and after it in parent and child. May allocate. */
HAK_HIDDEN void os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* The lock of the C library's list of streams. fork takes it after `prepare`, and threads that hold it allocate, so
 * `prepare` has to take it first. In a process of one thread, and where the C library has no such lock, these functions
 * do nothing. */
HAK_HIDDEN void os_streams_lock(void);
HAK_HIDDEN void os_streams_unlock(void);
HAK_HIDDEN void os_streams_reset_in_child(void);

#endif
