/* The thread library's hooks: the end of a thread, fork, and a thread of our own. The same with the real kernel and with the fake. */
#ifndef HAK_OS_THREADS_H
#define HAK_OS_THREADS_H

#include "base/base.h"

/* Registers the function that runs at the end of each armed thread, after its C++ thread_locals are destroyed, maybe before other
 * keys' destructors. Once a process. False when the process has no keys left. */
HAK_HIDDEN bool os_thread_exit_register(void (*at_exit)(void *));

/* Makes the calling thread call it. May allocate. */
HAK_HIDDEN void os_thread_exit_arm(void);

/* Registers the functions that run before fork in the parent, and after it in parent and child. May allocate. */
HAK_HIDDEN void os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void));

#endif
