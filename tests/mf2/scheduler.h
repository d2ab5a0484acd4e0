/*
 * Two threads, one at a time, through every order of their steps.
 *
 * The threads are coroutines of one kernel thread. At each step of the one that runs the scheduler decides which
 * goes on; the decisions of a run are its schedule. Runs are repeated from the start, depth first, until no
 * schedule is left. A thread that sleeps on a futex cannot be chosen until it is woken; when nobody can be chosen
 * and somebody is not finished, that is a deadlock. Steps are taken in sequential consistency: what weaker memory
 * orders allow is not explored here. Under ThreadSanitizer the two count as threads that nothing orders but their
 * own atomic operations, so that it sees races.
 */
#ifndef HAK_TESTS_MF2_SCHEDULER_H
#define HAK_TESTS_MF2_SCHEDULER_H

#include "steps.h"

enum { SCHEDULER_THREADS = 2 };

/* What is explored. `prepare` makes the start anew for each schedule, `watch` looks after each step, `finish` after
 * the last; the three run to their end without steps. */
struct exploration {
    const char *name;
    void (*prepare)(void);
    void (*thread[SCHEDULER_THREADS])(void);
    void (*watch)(void);
    void (*finish)(void);
};

/* Once, first. */
void scheduler_init(void);

/* Runs every schedule; returns their number. *longest: the most steps of one. */
uint64_t scheduler_explore(const struct exploration *exploration, unsigned *longest);

/* Whether the one that runs holds the lock; of the locks that the stepped sources take. */
bool scheduler_holds(const struct lock *lock);

/* Ends the program with exit status 1, after "mf2: NAME: message" and the schedule that led there, on stdout. */
_Noreturn void scheduler_fail(const char *format, ...) HAK_PRINTF(1, 2);

#endif
