/* The thread library's hooks: the end of a thread, fork, and a thread of our own. The same with the real kernel and
 * with the fake. */
#ifndef HAK_OS_THREADS_H
#define HAK_OS_THREADS_H

#include "base/base.h"

/* Makes ready for the next function; once, before other threads know of HAKMEM. */
HAK_HIDDEN void os_thread_exit_prepare(void);

/* Has `at_exit`, always the same function, called at the calling thread's end: after its C++ thread_locals are destroyed, maybe before
 * other keys' destructors. Where the process has no keys left, it runs among the thread_locals' destructors instead, and in the
 * main thread as the process exits. True the first time in each thread. May allocate. Any thread. */
HAK_HIDDEN bool os_thread_exit_arm(void (*at_exit)(void *));

/* Whether it will be called for the calling thread. */
HAK_HIDDEN bool os_thread_exit_is_armed(void);

/* Registers the functions that run before fork in the parent, and after it in parent and child. May allocate. */
HAK_HIDDEN void os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* The stream list of the C library: fork takes its lock after it ran `prepare`, and threads that hold it allocate. So prepare takes it
 * first. In a process of one thread, and where the C library has no such lock, these do nothing. */
HAK_HIDDEN void os_streams_lock(void);
HAK_HIDDEN void os_streams_unlock(void);
HAK_HIDDEN void os_streams_reset_in_child(void);

#endif
