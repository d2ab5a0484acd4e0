/* The purge thread (HAKMEM_PURGE_THREAD): gives memory back while all threads are idle, so that no call runs a tick. */
#ifndef HAK_FRONT_PURGE_THREAD_H
#define HAK_FRONT_PURGE_THREAD_H

#include "os/os.h"

/* Call when the process has made a thread, or starts: makes the purge thread with `create` if it is wanted and there is
 * none. Never within malloc or free: making a thread takes locks of the C library. Any thread that holds no lock. */
HAK_HIDDEN void purge_thread_at_thread(os_thread_create *create);
HAK_HIDDEN void purge_thread_at_start(os_thread_create *create);

/* Makes the purge thread with `create`, or lets it end if it is not `wanted`. Threads as for purge_thread_at_thread. */
HAK_HIDDEN void purge_thread_set(bool wanted, os_thread_create *create);

/* Whether the purge thread exists. */
HAK_HIDDEN bool purge_thread_is_there(void);

/* In the child of a fork: the purge thread is gone. */
HAK_HIDDEN void purge_thread_reset_in_child(void);

#endif
