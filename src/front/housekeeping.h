/*
 * Housekeeping: what the allocator does for itself while a program calls it. It gives back memory that is due, flushes
 * caches, calls the pressure handler, writes a profile that was asked for, and ends a process that misused memory.
 *
 * K1: each slow call has two halves. Housekeeping runs at its entry (housekeep) and exit (housekeep_exit), where the
 *     thread holds no lock and has read nothing of its cache. The operation between them calls nothing foreign (F1).
 */
#ifndef HAK_FRONT_HOUSEKEEPING_H
#define HAK_FRONT_HOUSEKEEPING_H

#include "front/control.h"
#include "front/thread_cache.h"
#include "os/foreign.h"
#include "pool/misuse.h"
#include "pool/registry.h"
#include "superslab/footprint.h"

HAK_HIDDEN void housekeep_follow(void);
HAK_HIDDEN void housekeep_due(void);

/* Call at the entry of a slow call. Any thread that holds no lock. */
HAK_INLINE void housekeep(void)
{
    foreign_point();
    if (HAK_UNLIKELY(cache_current()->tick != cache_flush_number()))
        housekeep_follow();
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0)
        housekeep_due();
}

/* Call at its exit. */
HAK_INLINE void housekeep_exit(void)
{
    misuse_settle();
    control_poll();
    cache_follow_growth(cache_current());
    foreign_point();
}

/* Call before a huge block of so many bytes is mapped, or grows by so many: the shared pool cannot reach warm slabs
 * (O6, N2). Any thread that holds no lock. */
HAK_INLINE void housekeep_before_huge(size_t bytes)
{
    if (HAK_UNLIKELY(footprint_warm() != 0) && shared_pool_wants_room(bytes))
        registry_release_warm();
}

/* Runs a tick if one is due, and returns whether it did. Calls nothing foreign. Otherwise as housekeep_purge. */
HAK_HIDDEN bool housekeep_tick(void);

/* Runs a whole tick now; with `all` it waits for no purge delay. Returns the bytes given back. Calls nothing foreign.
 * Any thread that holds no lock and relies on nothing that it read of its cache. */
HAK_HIDDEN size_t housekeep_purge(bool all);

/* Call when an allocation found no memory, then try again: gives memory back. Threads as for housekeep_purge. */
HAK_HIDDEN void housekeep_make_room(void);

/* In the child of a fork: the thread that ticked is gone. */
HAK_HIDDEN void housekeep_reset_in_child(void);

#endif
