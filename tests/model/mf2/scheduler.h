/*
 * Runs two threads, one at a time, through every order of their steps.
 *
 * The threads are coroutines of one kernel thread. At each step the scheduler decides which coroutine goes on. The
 * decisions of a run are its schedule. Runs start anew, depth first, until no schedule is left. A thread that sleeps on
 * a futex cannot be chosen until it is woken. If no thread can be chosen and one has not finished, that is a deadlock.
 * Steps are sequentially consistent: weaker memory orders are not explored. Under ThreadSanitizer only the coroutines'
 * own atomic operations order them, so that it sees races.
 */
#ifndef HAK_TESTS_MF2_SCHEDULER_H
#define HAK_TESTS_MF2_SCHEDULER_H

#include "steps.h"

enum { SCHEDULER_THREADS = 2 };

/* What to explore. For each schedule `prepare` makes the first state, `watch` checks after each step, and `finish`
 * after the last. The three run to their end without steps. */
struct exploration {
    const char *name;
    void (*prepare)(void);
    void (*thread[SCHEDULER_THREADS])(void);
    void (*watch)(void);
    void (*finish)(void);
};

/* Call it once, first. */
void scheduler_init(void);

/* Runs every schedule. Returns their number. *longest: the most steps of a schedule. */
uint64_t scheduler_explore(const struct exploration *exploration, unsigned *longest);

/* Whether the running coroutine holds the lock. Knows only locks that the stepped sources take. */
bool scheduler_holds(const struct lock *lock);

/* Prints "mf2: NAME: message" and the schedule on stdout, and ends the program with exit status 1. */
_Noreturn void scheduler_fail(const char *format, ...) HAK_PRINTF(1, 2);

#endif
