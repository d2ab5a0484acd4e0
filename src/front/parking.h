/* Where the purge thread sleeps while nothing wants it. Waking it is one system call, and none while it is awake. */
#ifndef HAK_FRONT_PARKING_H
#define HAK_FRONT_PARKING_H

#include "base/base.h"

/* How deep it sleeps: between two looks at its work, while one thread is left beside it, without a limit. */
enum parking { PARKING_AWAKE = 0, PARKING_WORK, PARKING_ALONE, PARKING_LONG };

/* The purge thread: it will sleep so. What it looks at between this and parking_sleep is not missed: a wake in between ends the sleep. */
HAK_HIDDEN void parking_enter(enum parking how);
HAK_HIDDEN void parking_sleep(enum parking how, uint64_t timeout_ns);

/* Any thread, under any lock: ends the thread's sleep if it is at least so deep. */
HAK_HIDDEN void parking_wake(enum parking least);

#endif
