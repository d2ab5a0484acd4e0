/*
 * Included first in the sources that this test compiles itself. The locks become the model's, and each kernel thread's
 * token that of a coroutine. -fsanitize=thread makes the compiler call the model at each access (memory.c).
 */
#ifndef HAK_TESTS_MF2_STEPS_H
#define HAK_TESTS_MF2_STEPS_H

#include "os/os.h"

/* The running coroutine's token. */
uintptr_t scheduler_token(void);
#define os_thread_token() scheduler_token()

#include "os/lock.h"

void model_lock_acquire(struct lock *lock);
bool model_lock_try(struct lock *lock);
void model_lock_release(struct lock *lock);
bool model_lock_is_mine(const struct lock *lock);
enum lock_taken model_lock_take_for_fork(struct lock *lock);
void model_lock_leave_fork(struct lock *lock);

#define lock_acquire(lock) model_lock_acquire(lock)
#define lock_try(lock) model_lock_try(lock)
#define lock_release(lock) model_lock_release(lock)
#define lock_is_mine(lock) model_lock_is_mine(lock)
#define lock_take_for_fork(lock, patience) ((void)(patience), model_lock_take_for_fork(lock))
#define lock_leave_fork(lock) model_lock_leave_fork(lock)

#endif
