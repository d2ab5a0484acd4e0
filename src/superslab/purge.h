/*
 * Giving free units back to the system. A unit waits out the purge delay since it was last free and unwanted; then it
 * and its neighbours leave in one call. Any thread's slow path does this for all, and the purge thread, if there is
 * one, for a process that is wholly idle.
 *
 * G1: a unit being purged has neither its free bit nor an owner: nobody can take it until it is put back.
 * G2: a thread that purges clears the request before it looks, so a request made while it looks survives.
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

/* Clears the request: the caller now looks at everything that may have made one (G2). */
HAK_HIDDEN void purge_begin(void);

/* Purges what has waited long enough, or with `all` everything free. Returns the bytes given back. Any thread that
 * holds no lock of rank LOCK_RANK_POOL or above. */
HAK_HIDDEN size_t purge_free_units(bool all);

/* For a caller whom the system refused a mapping of `wanted` bytes: purges all free units, and unmaps EMPTY SuperSlabs and slots
 * that were mapped ahead (P5). Returns the bytes of address space given back; 0 also where no such request can be granted. Locks as
 * above. */
HAK_HIDDEN size_t purge_address_space(size_t wanted);

/* Gives back `wanted` bytes, or a little more, or all there are: of free units and of freed ranges, the oldest
 * first. Reads the limits if they are due. Returns the bytes. Any thread that holds no lock of rank LOCK_RANK_HUGE
 * or above. */
HAK_HIDDEN size_t purge_make_room(size_t wanted);

/* purge_begin() and then purge_free_units(): for callers that know that no other memory waits. */
HAK_HIDDEN size_t purge_run(bool all);

#endif
