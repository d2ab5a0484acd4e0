/*
 * The footprint: the memory that HAKMEM holds of the system's, one account for SuperSlabs, huge blocks and metadata.
 * What in it is free and waits to be used again or given back is `waiting`; the rest is `live`.
 *
 * N1: footprint = units used + free units that are touched (P2) + headers + huge blocks and freed ranges + metadata +
 *     leaving.
 * N2: before the footprint grows, what waits is given back as far as it would exceed the live peak by more than a
 *     quarter and FOOTPRINT_SPARE, or a limit. When live memory fell below a quarter of its peak since then, the
 *     program has changed what it allocates, and the bound is an eighth and half of FOOTPRINT_SPARE.
 * N3: the live peak and the live low are the most and, since then, the least that was live in this purge delay and the
 *     one before.
 * N4: bytes count until the system has taken them back. A thread that the hard limit refuses waits for those that are
 *     leaving.
 * N5: blocks in thread caches pin whole slabs: when room is made, a tick is asked for that has the caches flushed, at
 *     most one in FOOTPRINT_FLUSH_MS.
 */
#ifndef HAK_SUPERSLAB_FOOTPRINT_H
#define HAK_SUPERSLAB_FOOTPRINT_H

#include "superslab/limits.h"
#include "superslab/shared_pool.h"

#define FOOTPRINT_SPARE (8 * HAK_MIB)
/* What waits is given back in parts of at least one so-manieth of the footprint: the next ones to grow find room
 * without a call. */
#define FOOTPRINT_STEP 16u
#define FOOTPRINT_FLUSH_MS 50u

/* All of these under pool.lock but where they say otherwise. */

/* What statistics call the footprint: SuperSlabs' units and huge blocks. */
HAK_INLINE size_t footprint_of_blocks(void)
{
    return (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE + shared_pool.huge_bytes;
}

HAK_INLINE size_t footprint_live(void)
{
    return (shared_pool.units_used + shared_pool.headers) * UNIT_SIZE + shared_pool.huge_bytes - shared_pool.huge_waiting +
           atomic_load_explicit(&shared_pool.metadata_touched, memory_order_relaxed);
}
HAK_INLINE size_t footprint_waiting(void) { return shared_pool.units_dirty * UNIT_SIZE + shared_pool.huge_waiting; }
HAK_INLINE size_t footprint_held(void) { return footprint_live() + footprint_waiting() + shared_pool.leaving; } /* N1 */

/* Bytes that should be given back before `growth` more are held (N2); 0: none, as in most calls. */
HAK_HIDDEN size_t footprint_excess_slow(size_t growth);
HAK_INLINE size_t footprint_excess(size_t growth)
{
    if (HAK_LIKELY(footprint_waiting() + shared_pool.leaving <= FOOTPRINT_SPARE / 2 && limits_are_none()))
        return 0;
    return footprint_excess_slow(growth);
}

/* Whether the hard limit allows `growth` more bytes. When the soft one is passed, asks for a tick and the pressure
 * handler. */
HAK_HIDDEN bool footprint_allows(size_t growth);

/* Call the first after something was taken, the second after something became free (N3). */
HAK_INLINE void footprint_note_peak(void)
{
    size_t footprint = footprint_of_blocks(), live = footprint_live();

    if (footprint > shared_pool.footprint_peak)
        shared_pool.footprint_peak = footprint;
    if (live > shared_pool.live_peak) {
        shared_pool.live_peak = live;
        if (live > shared_pool.live_peak_before)
            shared_pool.live_low = shared_pool.live_low_before = live;
    }
}
HAK_INLINE void footprint_note_low(void)
{
    size_t live = footprint_live();

    if (live < shared_pool.live_low)
        shared_pool.live_low = live;
}

/* If a purge delay has passed, forgets the peak and the low of the one before (N3). */
HAK_HIDDEN void footprint_decay(uint32_t now_ms);

/* Freed ranges of huge blocks became more or fewer by so many bytes; they are part of huge_bytes already. Any
 * thread, takes pool.lock. */
HAK_HIDDEN void footprint_huge_waits(size_t bytes);
HAK_HIDDEN void footprint_huge_taken(size_t bytes);  /* by a block */
HAK_HIDDEN void footprint_huge_leaves(size_t bytes); /* about to be unmapped */
HAK_HIDDEN void footprint_huge_left(size_t bytes);   /* unmapped */

/* So many bytes, which no other part of the account has any more, are being given back; the system was asked (N4). */
HAK_HIDDEN void footprint_leaves(size_t bytes);
HAK_HIDDEN void footprint_left(size_t bytes);

/* N5; the tick takes the wish back by footprint_take_flush(). */
HAK_HIDDEN void footprint_want_flush(void);
HAK_INLINE bool footprint_take_flush(void)
{
    return atomic_load_explicit(&shared_pool.flush_wanted, memory_order_relaxed) &&
           atomic_exchange_explicit(&shared_pool.flush_wanted, false, memory_order_relaxed);
}

/* Lets go of the lock until bytes that are leaving have left, or for a while. *waits counts the calls. False if none
 * are leaving, or if they take too long. */
HAK_HIDDEN bool footprint_wait(unsigned *waits);

/* In the child of a fork: what other threads were giving back is nobody's. Any lock. */
HAK_HIDDEN void footprint_reset_after_fork(void);

/* Bytes of metadata that were written for the first time, or given back. Any thread, no lock. */
HAK_INLINE void footprint_metadata_touched(size_t bytes)
{
    atomic_fetch_add_explicit(&shared_pool.metadata_touched, bytes, memory_order_relaxed);
}
HAK_INLINE void footprint_metadata_purged(size_t bytes)
{
    atomic_fetch_sub_explicit(&shared_pool.metadata_touched, bytes, memory_order_relaxed);
}

#endif
