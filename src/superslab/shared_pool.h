/*
 * The shared pool: the free units of all SuperSlabs, for all heaps. A slab is taken from the fullest SuperSlab that has
 * room, so that emptier ones drain and their memory can leave.
 *
 * A SuperSlab's number of free units alone gives its tier:
 *   HOT       gets new slabs, the fullest first;
 *   DRAINING  at most POOL_DRAINING_USED units in use: gets new slabs only when no HOT one has room;
 *   EMPTY     nothing in use: in the LRU, taken last, the most recently emptied first.
 *
 * P1: a unit's `free` bit is set iff it belongs to no slab and is not being purged at this moment.
 * P2: a unit's `touched` bit is clear only if every byte of it reads as zero and it has no memory behind it, unless
 *     mlockall put some there. (Bit 0 is the header's.)
 * P3: a SuperSlab with k > 0 free units is in bucket k only, unless it is strict (V17 in superslab/strict.h), or is
 *     EMPTY and would begin with a whole huge page: then it is in bucket 32. While it is EMPTY and in a bucket,
 *     `touched` changes neither to 0 nor from 0.
 * P4: slots are read and changed under pool.lock only; `kind` and `decommitted` are read without it (superslab/slot.h).
 * P5: once the system has refused to map more, free memory and address space are wanted elsewhere. EMPTY SuperSlabs are
 *     then unmapped without delay, up to POOL_UNMAPPED_MAX, and mapped again when needed. Nobody reads the header of
 *     one while slot.decommitted is set. If another mapping took its place, the slot becomes SLOT_FOREIGN.
 * P6: if a free unit is touched and in superslab.dense, a slab there was filled or had large blocks: there is memory
 *     behind most of the unit. Slabs that will be filled get such units first, and other slabs get them last, so that a
 *     few small blocks do not hold a whole unit's memory.
 * P7: memory that was given back stays given back. The first touch of a SuperSlab with huge pages (PAGES_HUGE) brings
 *     all its memory, so either all its `touched` bits are set or none. Before a part of it is purged, huge pages are
 *     refused for it (PAGES_SPLIT); else the kernel's khugepaged would make a huge page of the rest, and bring the part
 *     back. Huge pages are asked for again when it begins anew, unless the hard limit has no room for one.
 * P8: unless the option asks for them always, huge pages are refused for metadata, and for a SuperSlab whose first slab
 *     is for sparse use (PAGES_SPLIT). Else many threads with a small block each would hold 2 MiB for each 31 of them.
 */
#ifndef HAK_SUPERSLAB_SHARED_POOL_H
#define HAK_SUPERSLAB_SHARED_POOL_H

#include "os/lock.h"
#include "superslab/superslab.h"
#include "superslab/window.h"

#define POOL_ALL_UNITS (~(uint32_t)1) /* every unit of a SuperSlab but the header's */
#define POOL_DRAINING_USED 4u
#define POOL_BUCKET_EMPTY 31u
/* 1 to 31 by number of free units, and 32 (P3). */
#define POOL_BUCKETS 33u
/* The most SuperSlabs that refuse huge pages, and the most that are unmapped. A process has 65,530 mappings by default.
 * A SuperSlab that refuses huge pages may cost two of them, an unmapped one costs one. */
#define POOL_SPLIT_MAX 8192u
#define POOL_UNMAPPED_MAX 8192u

/* Why no more slots were mapped: the window is full, or the system refused memory or address space. */
enum shortage { SHORTAGE_NONE = 0, SHORTAGE_WINDOW, SHORTAGE_SYSTEM };

struct shared_pool {
    /* Order of the atomic fields: relaxed; sums and hints, which threads without the lock may see late. Aligned: what
     * every malloc and free reads (hak_window) is on no line that the pool writes. */
    _Alignas(HAK_CACHE_LINE) struct lock lock;
    struct slot *slots;       /* indexed by slot number */
    uint32_t slots_unused;    /* the next mapped slot that was never used */
    uint32_t slots_committed; /* the end of the mapped slots */
    uint32_t slots_foreign;   /* SLOT_FOREIGN ones before slots_committed (W4) */
    uint64_t bucket_mask;
    uint32_t heads[POOL_BUCKETS], tails[POOL_BUCKETS];
    uint32_t superslabs;    /* number made, less those that became foreign (P5) */
    uint32_t decommitted;   /* of those: unmapped now (P5) */
    uint32_t split;         /* slots that are PAGES_SPLIT */
    uint32_t dirty_empties; /* the LRU: EMPTY SuperSlabs with memory behind them, the oldest at the bucket's tail */
    size_t units_used;            /* units taken by heaps */
    size_t units_dirty;           /* free units with memory behind them */
    size_t units_prewarmed;       /* of those: in prewarmed SuperSlabs */
    _Atomic size_t units_warm;    /* of units_used: in heaps' warm pools, with memory (pool/heap.h, O6) */
    size_t headers;               /* SuperSlabs whose header unit has memory behind it */
    size_t huge_bytes;            /* mapped for huge blocks and freed ranges */
    size_t huge_waiting;          /* of those: freed ranges */
    size_t leaving;               /* bytes that are being given back, and that no other field counts (N4) */
    _Atomic uint32_t left;        /* times that such bytes have left */
    uint32_t waiters;             /* threads that wait until `left` changes */
    _Atomic size_t metadata_touched;
    size_t live_peak, live_low, live_peak_before, live_low_before; /* N3 (superslab/footprint.h) */
    uint32_t live_peak_ms;        /* when the period of live_peak and live_low began; 0: not yet */
    size_t may_wait;              /* bytes (N6) */
    uint32_t trimmed_ms;          /* when memory last left because too much waited (N6) */
    bool trimmed;                 /* trimmed_ms is set, and the footprint has not grown since then */
    bool scrubbed;                /* scrubbed_ms is set, and no block of a slab with holes was taken since then */
    uint32_t scrubbed_ms;         /* when pages last left from between blocks in use (N10) */
    size_t holes_may_wait;        /* bytes (N10) */
    size_t footprint_peak;        /* the most bytes that footprint_of_blocks() has returned */
    /* Since the start. Entered less reused and purged is dirty_empties. */
    uint64_t lru_entered, lru_reused, lru_purged;
    uint64_t prewarmed;           /* SuperSlabs */
    uint64_t slabs_taken;
    uint64_t purged_bytes;        /* of units and headers */
    _Atomic bool flush_wanted;    /* threads are to flush their caches (N5) */
    uint32_t flush_wanted_ms;     /* the time of the last request; in the future while it waits */
    size_t grown;                 /* bytes by which the footprint grew since the last request that did not wait */
    _Atomic uint32_t growths; /* times that units or huge blocks made the footprint grow */
    /* From here on, what every slow call reads without the lock: on a line that changes seldom. */
    _Alignas(HAK_CACHE_LINE)
    _Atomic uint32_t next_purge_ms; /* when a purge is due; 0: nothing to purge. Order: release, seq_cst (G2) */
    _Atomic bool over_soft_limit;
    _Atomic bool much_waits; /* FOOTPRINT_MUCH bytes waited; the purge thread clears it. Order: any */
    _Atomic bool attended;  /* there is a purge thread */
    _Atomic uint8_t shortage; /* enum shortage: what the last attempt to map more slots met (P5). Order: any */
    /* Memory that is released now has waited for a purge delay in caches and warm pools, so it leaves at once. */
    _Atomic bool stale;
};

HAK_DATA struct shared_pool shared_pool;

HAK_INLINE enum shortage shared_pool_shortage(void)
{
    return (enum shortage)atomic_load_explicit(&shared_pool.shortage, memory_order_relaxed);
}

/* Counts that heaps keep `more` units more, or fewer if it is negative. Any thread, no lock. */
HAK_INLINE void shared_pool_warm(int more)
{
    atomic_fetch_add_explicit(&shared_pool.units_warm, (size_t)more, memory_order_relaxed);
}

/* The units at which a run of `units` units in the mask starts. */
HAK_INLINE uint32_t pool_run_starts(uint32_t mask, unsigned units)
{
    while (units > 1) {
        unsigned half = units / 2;
        mask &= mask >> half;
        units -= half;
    }
    return mask;
}

HAK_INLINE uint32_t shared_pool_growths(void)
{
    return atomic_load_explicit(&shared_pool.growths, memory_order_relaxed);
}

/* Makes the window, and the pool of its first slots; idempotent. False: memory is out. Under process_lock. */
HAK_HIDDEN bool shared_pool_init(void);

/* The use of a slab (P6). */
enum pool_use { POOL_DENSE, POOL_SPARSE };

/* Takes up to `count` runs of `units` units, at multiples of `align_units`, neighbours if possible. Makes room first
 * (N2). Fills slabs[] with SLAB_WARM headers that have start, units, zero and dense. Returns how many it took: fewer
 * when memory is out, the limit is reached, or N2 allows no more. Any thread; takes huge_lock, then pool.lock. */
HAK_HIDDEN size_t shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use,
                                      struct slab **slabs);

/* As shared_pool_acquire, but only of units with memory behind them, so that the footprint does not grow. */
HAK_HIDDEN size_t shared_pool_acquire_touched(unsigned units, unsigned align_units, size_t count, struct slab **slabs);

/* Gives back slabs without blocks in use, linked by slab.next. Any thread; takes pool.lock, once for many of them. */
HAK_HIDDEN void shared_pool_release(struct slab *slabs);

/* A 2 MiB slot for metadata, zeroed; NULL when there is none. */
HAK_HIDDEN void *shared_pool_take_metadata_slot(void);

/* Makes `count` EMPTY SuperSlabs with memory behind them (HAKMEM_SS_PREWARM). Returns how many it made. */
HAK_HIDDEN size_t shared_pool_prewarm(size_t count);

/* Whether N2 calls for room before a huge block of `bytes` is mapped. Any thread; takes pool.lock. */
HAK_HIDDEN bool shared_pool_wants_room(size_t bytes);

/* Makes room for a huge block (N2), then counts the bytes that are about to be mapped for it. False: the hard limit
 * does not allow them. Any thread, under no lock of rank LOCK_RANK_HUGE or above; takes huge_lock, then pool.lock. */
HAK_HIDDEN bool shared_pool_charge_huge(size_t bytes);
/* Call when the charged bytes were mapped: they count for the peak. */
HAK_HIDDEN void shared_pool_note_huge_mapped(void);
HAK_HIDDEN void shared_pool_uncharge_huge(size_t bytes);

/* ---- tiers.c: for shared_pool.c and purge.c; all under pool.lock ---- */
/* The prewarmed SuperSlab is used, or leaves. */
HAK_HIDDEN void shared_pool_end_prewarmed(struct superslab *superslab);
HAK_HIDDEN void shared_pool_move_bucket(uint32_t slot);
HAK_HIDDEN uint32_t shared_pool_now_ms(void);
/* Bytes that must leave as more waits than may wait (N7), while the option for EMPTY SuperSlabs has its default. */
HAK_HIDDEN size_t shared_pool_excess(void);
/* How many EMPTY SuperSlabs must leave, the oldest first; fewer, if these hold more than *bytes. */
HAK_HIDDEN uint32_t shared_pool_lru_excess(size_t *bytes);
/* Call before a part of the slot is purged (P7). True: the caller must refuse it huge pages first, under any lock. */
HAK_HIDDEN bool shared_pool_split(uint32_t slot);
/* Unmaps an EMPTY SuperSlab, which has no memory (P5). Returns the bytes. */
HAK_HIDDEN size_t shared_pool_unmap(uint32_t slot);
/* Unmaps the slots that were mapped ahead and never used. Returns the bytes. */
HAK_HIDDEN size_t shared_pool_unmap_unused(void);
/* Makes a purge due `delay_ms` from now unless one is due earlier. */
HAK_HIDDEN void shared_pool_schedule_purge(uint64_t delay_ms);

/* Call before a part of `address`'s slot is purged: refuses huge pages for it (P7). Any thread; takes pool.lock. */
HAK_HIDDEN void shared_pool_split_at(const void *address);

/* Makes sure that a purge scans warm pools, pending queues and dead threads' caches. Takes no lock. */
HAK_HIDDEN void shared_pool_want_purge_slow(void);
HAK_INLINE void shared_pool_want_purge(void)
{
    /* Sequentially consistent: this load sees that a purge took the request, or the purge sees the slab just pushed
     * (G2). */
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_seq_cst) == 0)
        shared_pool_want_purge_slow();
}

/* The footprint in bytes (N1). Any thread; takes pool.lock. */
HAK_HIDDEN size_t shared_pool_footprint(void);

#endif
