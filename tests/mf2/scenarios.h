/* What two threads do to each other's slabs: every meeting of the parts of the protocol that pool/remote.h
 * describes. */
#ifndef HAK_TESTS_MF2_SCENARIOS_H
#define HAK_TESTS_MF2_SCENARIOS_H

#include <stdbool.h>

struct heap;

struct scenario {
    const char *name;
    void (*prepare)(void);
    void (*thread[2])(void);
    bool forwards; /* an entry may be forwarded to an orphan whose lock is held: the next tick drains it (O4) */
};

extern const struct scenario scenarios[];
extern const unsigned scenario_count;

/* Makes the heaps, once; and all of them as they were then, which needs everything they owned released. */
void scenarios_init(void);
void scenarios_reset(void);

/* A heap's lock, taken where ThreadSanitizer sees it: the ledger's own books are compiled without it. */
void scenarios_lock(struct heap *heap);
void scenarios_unlock(struct heap *heap);

/* Drains every heap's queue until all are empty. */
void scenarios_drain_all(void);

#endif
