/* What two threads do to each other's slabs: every combination of the parts of the protocol in pool/remote.h. */
#ifndef HAK_TESTS_MF2_SCENARIOS_H
#define HAK_TESTS_MF2_SCENARIOS_H

#include <stdbool.h>

struct heap;

struct scenario {
    const char *name;
    void (*prepare)(void);
    void (*thread[2])(void);
    bool forwards; /* an entry may be forwarded to an orphan whose lock is held; the next tick drains it (O4) */
};

extern const struct scenario scenarios[];
extern const unsigned scenario_count;

/* Init makes the heaps, once. Reset restores their first state, for which all that they owned must be released. */
void scenarios_init(void);
void scenarios_reset(void);

/* Takes a heap's lock where ThreadSanitizer sees it, because the ledger is compiled without it. */
void scenarios_lock(struct heap *heap);
void scenarios_unlock(struct heap *heap);

/* Drains every heap's queue until all are empty. */
void scenarios_drain_all(void);

#endif
