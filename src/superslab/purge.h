/*
 * Giving free units back to the system. A unit that has been free for the purge delay leaves, in one call with its
 * neighbours. The slow path of any thread purges for all threads. In a process that is wholly idle, the purge thread
 * does, if there is one.
 *
 * G1: a unit being purged has neither its free bit nor an owner: nobody can take it until it is put back.
 * G2: a thread that purges clears the request before it scans, so a request made during the scan survives.
 */
#ifndef HAK_SUPERSLAB_PURGE_H
#define HAK_SUPERSLAB_PURGE_H

#include "superslab/shared_pool.h"

/* Whether a purge is due. Cheap enough for every slow path. */
HAK_INLINE bool purge_is_due(uint32_t now_ms)
{
    uint32_t due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);
    return due != 0 && (int32_t)(now_ms - due) >= 0;
}

/* Clears the request. The caller then scans everything that may have made one (G2). */
HAK_HIDDEN void purge_begin(void);

/* Purges the free units that have waited long enough, or with `all` every one. Returns the bytes given back. Any thread
 * that holds no lock of rank LOCK_RANK_POOL or above. */
HAK_HIDDEN size_t purge_free_units(bool all);

/* Whether the process and the machine can have so many bytes. For more, no purge makes room. Any thread. */
HAK_HIDDEN bool purge_could_serve(size_t bytes);

/* Call when the system refused a mapping: purges all free units, and unmaps EMPTY SuperSlabs and slots that were mapped
 * ahead (P5). Returns the bytes of address space given back. Locks as above. */
HAK_HIDDEN size_t purge_address_space(void);

/* Gives back free units and freed ranges, the oldest first, until `wanted` bytes have left or none are there. Reads the
 * limits if they are due. Returns the bytes. Any thread that holds no lock of rank LOCK_RANK_HUGE or above. */
HAK_HIDDEN size_t purge_make_room(size_t wanted);

/* purge_begin(), then purge_free_units(): for callers that know that no other memory waits. */
HAK_HIDDEN size_t purge_run(bool all);

#endif
