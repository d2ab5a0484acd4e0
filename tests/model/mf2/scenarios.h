/* What threads do to each other's slabs: every combination of the parts of the protocol in pool/remote.h. Short
 * scenarios for other steps without a lock: the window's first moment, and seals. */
#ifndef HAK_TESTS_MF2_SCENARIOS_H
#define HAK_TESTS_MF2_SCENARIOS_H

#include <stdbool.h>

#include "scheduler.h"

struct heap;

struct scenario {
    const char *name;
    void (*prepare)(void);
    void (*thread[SCHEDULER_THREADS])(void);
    bool forwards; /* an entry may be forwarded to an orphan whose lock is held; the next tick drains it (O4) */
};

extern const struct scenario scenarios[];
extern const unsigned scenario_count;

/* Init makes the heaps, once. Reset restores the first state of all memory that a schedule changes. */
void scenarios_init(void);
void scenarios_reset(void);

/* All heaps give their warm slabs back. */
void scenarios_release_warm(void);

/* The model's lock functions for a heap. */
void scenarios_lock(struct heap *heap);
void scenarios_unlock(struct heap *heap);

/* Drains every heap's queue until all are empty. */
void scenarios_drain_all(void);

#endif
