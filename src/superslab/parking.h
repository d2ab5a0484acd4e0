/* Where the purge thread sleeps while it has no work. To wake it costs one system call, and none while it is awake. */
#ifndef HAK_SUPERSLAB_PARKING_H
#define HAK_SUPERSLAB_PARKING_H

#include "base/base.h"

/* How deep the thread sleeps: until it next looks for work; while one other thread is left; without a limit. */
enum parking { PARKING_AWAKE = 0, PARKING_WORK, PARKING_ALONE, PARKING_LONG };

/* For the purge thread: parking_enter, a look for work, parking_sleep. A wake in between ends the sleep at once. */
HAK_HIDDEN void parking_enter(enum parking how);
HAK_HIDDEN void parking_sleep(enum parking how, uint64_t timeout_ns);

/* Ends the purge thread's sleep if it is at least so deep. Any thread, under any lock. */
HAK_HIDDEN void parking_wake(enum parking least);

#endif
