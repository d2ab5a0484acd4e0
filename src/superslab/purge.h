/*
 * Giving free units back to the system. A unit waits out the purge delay since it was last free and unwanted; then it and its
 * neighbours leave in one call. Any thread's slow path does this for all, and the purge thread, if there is one, for a
 * process that is wholly idle.
 *
 * G1: a unit being purged has neither its free bit nor an owner: nobody can take it until it is put back.
 * G2: nobody's wish for a purge is lost: who fulfils it takes it back first and looks then. A wish that comes later stands.
 */
#ifndef HAK_SUPERSLAB_PURGE_H
#define HAK_SUPERSLAB_PURGE_H

#include "superslab/shared_pool.h"

/* True when a purge is due: two loads, for slow paths. */
HAK_INLINE bool purge_is_due(uint32_t now_ms)
{
    uint32_t due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);
    return due != 0 && (int32_t)(now_ms - due) >= 0;
}

/* No purge is due any more: the caller looks now at everything that may have wanted one (G2). */
HAK_HIDDEN void purge_begin(void);

/* Purges what has waited long enough, or with `all` everything free. Returns the bytes given back. Any thread that holds no
 * lock of rank LOCK_RANK_POOL or above. */
HAK_HIDDEN size_t purge_free_units(bool all);

/* Both, for who knows that nothing but free units wanted it. */
HAK_HIDDEN size_t purge_run(bool all);

#endif
