/*
 * Housekeeping: what the allocator does for itself while a program calls it. It gives back memory that is due, flushes caches,
 * calls the pressure handler, writes a profile that was asked for, and ends a process that misused memory.
 *
 * K1: each slow call has two halves. Housekeeping runs at the call's entry (housekeep) and exit (housekeep_exit), where the thread
 *     holds no lock and has read nothing of its cache; the operation itself, between the two, calls nothing foreign (F1).
 */
#ifndef HAK_FRONT_HOUSEKEEPING_H
#define HAK_FRONT_HOUSEKEEPING_H

#include "front/thread_cache.h"
#include "os/foreign.h"
#include "pool/misuse.h"
#include "profile/dump.h"
#include "superslab/shared_pool.h"

HAK_HIDDEN void housekeep_follow(void);
HAK_HIDDEN void housekeep_due(void);

/* At the entry of a slow call. Any thread that holds no lock. */
HAK_INLINE void housekeep(void)
{
    foreign_point();
    if (HAK_UNLIKELY(cache_current()->tick != cache_flush_number()))
        housekeep_follow();
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0)
        housekeep_due();
}

/* At its exit. */
HAK_INLINE void housekeep_exit(void)
{
    misuse_settle();
    dump_poll();
    foreign_point();
}

/* Runs a tick if one is due; whether it did. Calls nothing foreign; as housekeep_purge. */
HAK_HIDDEN bool housekeep_tick(void);

/* Does all of a tick now; with `all` without waiting for any delay. Returns the bytes given back. Calls nothing foreign. Any thread that
 * holds no lock and relies on nothing that it read of its cache. */
HAK_HIDDEN size_t housekeep_purge(bool all);

/* An allocation found no memory: gives back all that is free. The caller tries again. As housekeep_purge. */
HAK_HIDDEN void housekeep_make_room(void);

/* In the child of a fork: the thread that ticked is gone. */
HAK_HIDDEN void housekeep_reset_in_child(void);

#endif
