/*
 * The scopes that a thread is in, one within another. The innermost one is in force: what the thread allocates belongs
 * to it. NULL among them stands for no scope: the process. thread_cache.h tells how a thread's calls get there (T9).
 */
#ifndef HAK_FRONT_WITHIN_H
#define HAK_FRONT_WITHIN_H

#include "front/thread_cache.h"
#include "pool/scope.h"

#define WITHIN_MOST 16u

/* Call for a thread that has a cache, or may have one, and holds no lock. Returns 0, E2BIG if it is in WITHIN_MOST
 * already, or ENOMEM. */
HAK_HIDDEN int within_enter(struct scope *scope);

/* Leaves the innermost entry of the scope, and what was entered after it. False: there is none. */
HAK_HIDDEN bool within_leave(struct scope *scope);

/* At the thread's end: leaves all. */
HAK_HIDDEN void within_end(void);

/* In the child of a fork: the forking thread alone is in scopes. */
HAK_HIDDEN void within_reset_in_child(void);

#endif
