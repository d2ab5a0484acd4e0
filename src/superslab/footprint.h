/*
 * The footprint: the memory that HAKMEM holds. One account counts SuperSlabs, huge blocks and metadata. Free memory
 * that waits to be used again or given back is `waiting`; the rest is `live`.
 *
 * N1: footprint = units used + free units that are touched (P2) + headers + huge blocks and freed ranges + metadata +
 *     leaving.
 * N2: before the footprint grows past its bound, waiting memory is given back to make room. The bound is the live peak,
 *     a quarter of it, and FOOTPRINT_SPARE, or the lowest limit if that is less. Once live memory has fallen below a
 *     quarter of the peak, the program has changed what it allocates, and half as much is allowed beyond the peak.
 * N3: the live peak is the most memory that was live in this purge delay and the one before. The live low is the least
 *     that was live after the peak.
 * N4: bytes count until the system has taken them back. A thread that the hard limit refuses waits for leaving bytes.
 * N5: blocks in thread caches pin whole slabs, and empty slabs wait in heaps' warm pools (pool/heap.h, O6). So a thread
 *     that makes room requests a flush of the caches and a release of the warm pools. Requests are FOOTPRINT_FLUSH_MS
 *     apart, and one that comes too soon waits. Once the footprint has grown by a quarter of the live peak, and by
 *     FOOTPRINT_SPARE, the next request is granted at once. Otherwise blocks that caches pin would raise the live peak.
 *     When units leave SuperSlabs in use because of N7, the flush follows at the next slow call.
 * N6: empty SuperSlabs and freed ranges beyond the bounds of the options and of N7 (waiting.h) leave at once, for N7
 *     also free units of SuperSlabs that are half free. When the footprint grows again within a purge delay after that,
 *     as much may wait as N2 allows, until the live peak falls.
 */
#ifndef HAK_SUPERSLAB_FOOTPRINT_H
#define HAK_SUPERSLAB_FOOTPRINT_H

#include "superslab/limits.h"
#include "superslab/shared_pool.h"
#include "superslab/waiting.h"

#define FOOTPRINT_SPARE (8 * HAK_MIB)
/* The footprint divided by this is the least to give back at once, so that the next calls that grow find room. */
#define FOOTPRINT_STEP 16u
#define FOOTPRINT_FLUSH_MS 50u
/* The purge thread works when so many bytes wait. */
#define FOOTPRINT_MUCH (16 * HAK_MIB)

/* All functions are called under pool.lock unless they say otherwise. */

/* The footprint as statistics report it: units of SuperSlabs, and huge blocks. */
HAK_INLINE size_t footprint_of_blocks(void)
{
    return (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE + shared_pool.huge_bytes;
}

HAK_INLINE size_t footprint_warm(void) { return atomic_load_explicit(&shared_pool.units_warm, memory_order_relaxed); }
HAK_INLINE size_t footprint_live(void)
{
    return (shared_pool.units_used - footprint_warm() + shared_pool.headers) * UNIT_SIZE + shared_pool.huge_bytes -
           shared_pool.huge_waiting + atomic_load_explicit(&shared_pool.metadata_touched, memory_order_relaxed);
}
HAK_INLINE size_t footprint_waiting(void) 
{
    return (shared_pool.units_dirty + footprint_warm()) * UNIT_SIZE + shared_pool.huge_waiting;
}
HAK_INLINE size_t footprint_held(void) { return footprint_live() + footprint_waiting() + shared_pool.leaving; } /* N1 */

/* Bytes to give back before the footprint grows by `growth` (N2); 0, as in most calls: none. */
HAK_HIDDEN size_t footprint_excess_slow(size_t growth);
HAK_INLINE size_t footprint_excess(size_t growth)
{
    if (HAK_LIKELY(footprint_waiting() + shared_pool.leaving <= FOOTPRINT_SPARE / 2 && limits_are_none()))
        return 0;
    return footprint_excess_slow(growth);
}

/* Whether the hard limit allows `growth` more bytes. Past the soft limit, requests a tick and the pressure handler. */
HAK_HIDDEN bool footprint_allows(size_t growth);

/* Whether heaps should give up free memory: it was unwanted for a purge delay, the system refuses more or is short of
 * memory, there is a hard limit, or the soft limit is passed. Any thread that does not hold pool.lock. */
HAK_HIDDEN bool footprint_is_limited(void);
HAK_INLINE bool footprint_is_short(void)
{
    return atomic_load_explicit(&shared_pool.stale, memory_order_relaxed) ||
           shared_pool_shortage() != SHORTAGE_NONE ||
           (!limits_are_none() && footprint_is_limited());
}

/* Call footprint_note_peak after memory was taken, footprint_note_low after memory became free (N3). */
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

/* Bytes to give back because more waits than may wait (N7); 0: none. */
HAK_INLINE size_t footprint_waits_too_much(void)
{
    size_t waiting = footprint_waiting() - shared_pool.units_prewarmed * UNIT_SIZE;
    struct waiting_inputs inputs = { footprint_live(), shared_pool.may_wait,
                                     atomic_load_explicit(&shared_pool.attended, memory_order_relaxed) };

    return waiting_excess(inputs, waiting);
}
/* What the thread does of whose slabs `used` bytes are out and `free` are not (N10). Under no lock. */
HAK_HIDDEN enum waiting_unpin footprint_unpin(size_t used, size_t free, struct waiting_peaks *peaks);

/* A block of a slab with holes is wanted (N10). Any thread that does not hold pool.lock. */
HAK_HIDDEN void footprint_holes_wanted(void);

/* Call when more memory waits: sees to it that it leaves. Under no lock but pool.lock. */
HAK_HIDDEN void footprint_note_waiting(void);

/* Call footprint_note_trimmed when memory leaves because too much waits, footprint_note_growth on growth (N6). */
HAK_INLINE void footprint_note_trimmed(void)
{
    shared_pool.trimmed = true;
    shared_pool.trimmed_ms = shared_pool_now_ms();
}
HAK_HIDDEN void footprint_wanted_again(void);
HAK_INLINE void footprint_note_growth(size_t bytes)
{
    atomic_fetch_add_explicit(&shared_pool.growths, 1, memory_order_relaxed);
    shared_pool.grown += bytes;
    if (HAK_UNLIKELY(shared_pool.trimmed))
        footprint_wanted_again();
}

/* Begins a new period of the live peak and low if the current one is a purge delay old (N3). */
HAK_HIDDEN void footprint_decay(uint32_t now_ms);

/* Changes of `bytes` that huge_bytes counts. Any thread; takes pool.lock. */
HAK_HIDDEN void footprint_huge_waits(size_t bytes);  /* a huge block became a range */
HAK_HIDDEN void footprint_huge_taken(size_t bytes);  /* a block reuses a range */
HAK_HIDDEN void footprint_huge_leaves(size_t bytes); /* a range is about to be unmapped */
HAK_HIDDEN void footprint_huge_left(size_t bytes);   /* it is unmapped */

HAK_HIDDEN void footprint_huge_trimmed(void);         /* ranges leave because too much waits (N6) */
/* The bytes that freed ranges may have, of which there are `held` (N6, N7), while the option has its default value. */
HAK_HIDDEN size_t footprint_ranges_most(size_t held);

/* Call footprint_leaves before bytes that no other field counts are given back, and footprint_left when the system
 * has been asked to take them (N4). */
HAK_HIDDEN void footprint_leaves(size_t bytes);
HAK_HIDDEN void footprint_left(size_t bytes);

/* Requests the flush of N5. footprint_take_flush tells whether there is a request, and clears it. */
HAK_HIDDEN void footprint_want_flush(void);
HAK_INLINE bool footprint_take_flush(void)
{
    return atomic_load_explicit(&shared_pool.flush_wanted, memory_order_relaxed) &&
           atomic_exchange_explicit(&shared_pool.flush_wanted, false, memory_order_relaxed);
}

/* Releases the lock until some leaving bytes have left, or for 10 ms. *waits counts the calls. False: no bytes are
 * leaving, or the caller has waited too often. */
HAK_HIDDEN bool footprint_wait(unsigned *waits);

/* In the child of a fork: forgets the bytes that the parent's threads were giving back. Under any lock. */
HAK_HIDDEN void footprint_reset_after_fork(void);

/* Counts bytes of metadata that are written for the first time, or were given back. Any thread, no lock. */
HAK_INLINE void footprint_metadata_touched(size_t bytes)
{
    atomic_fetch_add_explicit(&shared_pool.metadata_touched, bytes, memory_order_relaxed);
}
HAK_INLINE void footprint_metadata_purged(size_t bytes)
{
    atomic_fetch_sub_explicit(&shared_pool.metadata_touched, bytes, memory_order_relaxed);
}

#endif
