/* The purge thread (HAKMEM_PURGE_THREAD): gives memory back for a process that is wholly idle, whose calls no longer do. */
#ifndef HAK_FRONT_PURGE_THREAD_H
#define HAK_FRONT_PURGE_THREAD_H

#include "os/os.h"

/* The process has just made a thread, or starts: makes the purge thread with `create` if it is wanted and there is none. Never called
 * from within malloc or free: making a thread takes locks of the C library's. Any thread that holds no lock. */
HAK_HIDDEN void purge_thread_at_thread(os_thread_create *create);
HAK_HIDDEN void purge_thread_at_start(os_thread_create *create);

/* In the child of a fork: it is gone. */
HAK_HIDDEN void purge_thread_reset_in_child(void);

#endif
