/*
 * Included first in the pool's sources that this test compiles itself. The other thread may run at each REMOTE_STEP of
 * pool/remote.c, and wherever a lock is taken or released.
 */
#ifndef HAK_TESTS_MF2_STEPS_H
#define HAK_TESTS_MF2_STEPS_H

#include "os/lock.h"

/* The other thread may run before the caller's next step. Does nothing outside scheduler_explore's threads. */
void scheduler_step(const char *file, int line);
/* The same before a step that touches only the lock. Not needed for a lock that the other thread never touches. */
void scheduler_lock_step(const struct lock *lock, const char *file, int line);
/* The caller will wait for a lock (checks L1); took one; releases one. */
void scheduler_will_hold(const struct lock *lock);
void scheduler_holds_now(const struct lock *lock);
void scheduler_holds_no_more(const struct lock *lock);

#define REMOTE_STEP() scheduler_step(__FILE__, __LINE__)

/* A macro is not expanded inside itself, so these end in the functions of os/lock.h. */
#define LOCK_STEP(lock) scheduler_lock_step(lock, __FILE__, __LINE__)
#define lock_acquire(lock) (LOCK_STEP(lock), scheduler_will_hold(lock), lock_acquire(lock), scheduler_holds_now(lock))
#define lock_try(lock) (LOCK_STEP(lock), lock_try(lock) && (scheduler_holds_now(lock), true))
#define lock_release(lock) (LOCK_STEP(lock), scheduler_holds_no_more(lock), lock_release(lock))

#endif
