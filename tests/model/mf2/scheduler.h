/*
 * Runs up to four threads, one at a time, through all orders of their steps that can differ.
 *
 * The threads are coroutines of one kernel thread. A step begins at an access to a place that two threads touch: an
 * atomic object or a lock. The other accesses that follow belong to the step. At each step the scheduler
 * decides which thread goes on, and the memory model (memory.h) which value the step reads. The decisions of a run are
 * its schedule. Runs start anew, depth first, until no schedule is left. A thread that waits for a lock cannot be
 * chosen. If no thread can be chosen and one has not finished, that is a deadlock.
 *
 * Two steps are dependent if they touch the same place and one of them changes it. Schedules that differ only in the
 * order of independent steps end in the same state. Source sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas,
 * "Optimal dynamic partial order reduction", POPL 2014) leave out most of these.
 */
#ifndef HAK_TESTS_MF2_SCHEDULER_H
#define HAK_TESTS_MF2_SCHEDULER_H

#include "base/base.h"

struct lock;

enum { SCHEDULER_THREADS = 4 };

/* What a step does to its place. */
enum step_kind {
    STEP_BEGIN = 0, /* nothing: the thread's start */
    STEP_READ,
    STEP_WRITE,  /* also reads */
    STEP_ADD,    /* of a place where only sums matter (memory_note_sum): two of them are independent */
    STEP_TAKE,   /* waits for the lock */
    STEP_TRY,    /* takes the lock if it is free */
    STEP_GIVE,   /* releases the lock */
    STEP_FORK,   /* reads all memory */
    STEP_KINDS
};

/* What to explore. For each schedule `prepare` makes the first state, `watch` checks after each step, and `finish`
 * after the last. The three run to their end without steps. `digest` returns a number for the final state. */
struct exploration {
    const char *name;
    unsigned threads;
    bool whole; /* without reduction: every order */
    bool random; /* schedules at random, `most` of them; not all are different */
    bool forks; /* a thread forks */
    bool weak;  /* with the memory orders that the sources state; else sequentially consistent */
    void (*prepare)(void);
    void (*run)(unsigned thread);
    void (*watch)(void);
    uint64_t (*digest)(void);
    void (*finish)(void);
};

struct explored {
    uint64_t schedules, redundant; /* redundant: of them, those that a sleep set found to equal another one */
    unsigned longest;              /* steps of a schedule */
    const uint64_t *digests;       /* of the final states, sorted, each once; valid until the next exploration */
    size_t states;
};

/* Call it once, first. */
void scheduler_init(void);

/* Runs the schedules, at most `most` (0: all). */
struct explored scheduler_explore(const struct exploration *exploration, uint64_t most);

/* The running thread, or -1 outside the threads. */
int scheduler_thread(void);

/* Whether weak memory orders are explored. */
bool scheduler_is_weak(void);
/* Whether a thread of the exploration forks. */
bool scheduler_forks(void);

/* The running thread's next step begins here. Returns when the thread is chosen, and for STEP_TAKE, when the lock is
 * free. */
void scheduler_step(const void *place, enum step_kind kind);

/* Checks what the running thread did since its step began. Does nothing outside the threads. */
void scheduler_watch(void);

/* Returns which of `count` ways the running step goes. The way 0 is the ordinary one. */
unsigned scheduler_choose(unsigned count);

/* The places that two threads touch are not all known yet: the exploration will restart, and reports no race. */
void scheduler_restart(void);
bool scheduler_restarts(void);

/* A thread forks: it calls `prepare`, and `parent` in this process. In the child, which has no other thread, `child`
 * runs to its end without steps. */
void scheduler_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* Locks held. */
bool scheduler_holds(const struct lock *lock);
/* Checks L1: the caller is about to wait for the lock. */
void scheduler_will_hold(const struct lock *lock);
void scheduler_holds_now(const struct lock *lock);
void scheduler_holds_no_more(const struct lock *lock);

/* Prints "mf2: NAME: message" and the schedule on stdout, and ends the program with exit status 1. */
_Noreturn void scheduler_fail(const char *format, ...) HAK_PRINTF(1, 2);

#endif
