/*
 * The shared pool: every SuperSlab's free units, for all heaps. Slabs are taken from the fullest SuperSlab that has room, so
 * that those with little in use empty and their memory leaves.
 *
 * Tiers, derived from the number of free units and nothing else:
 *   HOT       gets new slabs, the fullest first;
 *   DRAINING  at most POOL_DRAINING_USED units in use: gets new slabs only when no HOT one has room;
 *   EMPTY     nothing in use: in the LRU, taken last, the most recently emptied first.
 *
 * P1: a unit's `free` bit is set iff it belongs to no slab and is not being purged at this moment.
 * P2: a unit's `touched` bit is clear only if every byte of it reads as zero and it has no memory behind it, but for what mlockall
 *     put there. (Bit 0 is the header's.)
 * P3: a SuperSlab with k free units, k > 0, is in bucket k, and in no other; those that would cost a whole huge page to
 *     begin are in one more, the last. Whether its `touched` is 0 does not change between two moves.
 * P4: slots are read and changed under pool.lock only, but for what says whose a slot is: `kind` and `decommitted` are read without the
 *     lock (superslab/slot.h).
 * P5: once the system has refused to map more, memory and address space that are free are wanted elsewhere: EMPTY SuperSlabs are
 *     unmapped without delay, up to POOL_UNMAPPED_MAX of them, and mapped again when they are wanted. Nobody reads the header of one
 *     meanwhile: slot.decommitted tells. One whose place somebody else took becomes SLOT_FOREIGN.
 * P6: of the free units that are touched, those in superslab.dense had a slab that was filled, or whose blocks are large: there is
 *     memory behind most of them. Slabs that will be filled get them first, the others get them last: a few small blocks must not
 *     hold a whole unit's memory.
 * P7: what was given back stays given back. A SuperSlab that has huge pages (PAGES_HUGE) has all of its `touched` bits or none, as
 *     the first touch brings all of it; before a part is purged, huge pages are refused for it (PAGES_SPLIT), or the kernel's
 *     khugepaged would make a huge page of what is left, and fill it up. They are asked for again when it begins anew, unless the
 *     hard limit has no room for one.
 * P8: unless the option asks for them always, huge pages are refused for a SuperSlab that begins with a slab for sparse use
 *     (PAGES_SPLIT), and for metadata: a crowd of threads with a small block each must not hold 2 MiB for each 31 of them.
 */
#ifndef HAK_SUPERSLAB_SHARED_POOL_H
#define HAK_SUPERSLAB_SHARED_POOL_H

#include "os/lock.h"
#include "superslab/superslab.h"
#include "superslab/window.h"

#define POOL_ALL_UNITS (~(uint32_t)1) /* every unit of a SuperSlab but the header's */
#define POOL_DRAINING_USED 4u
#define POOL_BUCKET_EMPTY 31u
#define POOL_BUCKETS 33u /* by number of free units, 1 to 31, and 32 */
/* A SuperSlab that refuses huge pages among others may be two mappings more, of the 65,530 that a process has by default: beyond so
 * many that are split, no more are made to refuse. */
#define POOL_SPLIT_MAX 8192u
/* An unmapped SuperSlab among others makes one mapping more, too. */
#define POOL_UNMAPPED_MAX 8192u
#define POOL_MUCH_FREE ((size_t)16 * HAK_MIB / UNIT_SIZE)

struct shared_pool {
    struct lock lock;
    struct slot *slots;       /* indexed by slot number */
    uint32_t slots_unused;    /* next mapped slot that was never used */
    uint32_t slots_committed; /* end of those */
    uint32_t slots_foreign;   /* of those before it (W4) */
    uint64_t bucket_mask;
    uint32_t heads[POOL_BUCKETS], tails[POOL_BUCKETS];
    uint32_t superslabs;    /* number ever made; their address space is kept */
    uint32_t decommitted;   /* of those (P5) */
    uint32_t split;         /* slots that are PAGES_SPLIT */
    uint32_t dirty_empties; /* the LRU: EMPTY SuperSlabs with memory behind them, the oldest at the tail of their bucket */
    size_t units_used;            /* units taken by heaps */
    size_t units_dirty;           /* free units with memory behind them */
    size_t headers;               /* SuperSlabs whose header unit has memory behind it */
    size_t huge_bytes;            /* mapped for huge blocks, in use or freed ranges */
    size_t huge_waiting;          /* of those: freed ranges */
    size_t leaving;               /* bytes that are being given back: held still, and nobody's (N4) */
    _Atomic uint32_t left;        /* times that some were */
    uint32_t waiters;             /* threads that wait for that */
    _Atomic size_t metadata_touched;
    size_t live_peak, live_low, live_peak_before, live_low_before; /* N3 (superslab/footprint.h) */
    uint32_t live_peak_ms;        /* when the first two of them began */
    size_t footprint_peak;        /* bytes: the most of units used and dirty and of huge blocks */
    /* Since the start. The LRU's entries less its reuses and purges are dirty_empties. */
    uint64_t lru_entered, lru_reused, lru_purged;
    uint64_t prewarmed;           /* SuperSlabs */
    uint64_t purged_bytes;        /* of units and headers */
    /* Threads are to flush their caches (N5); and when that was wanted last. */
    _Atomic bool flush_wanted;
    uint32_t flush_wanted_ms;
    _Atomic uint32_t next_purge_ms; /* when a purge is due; 0: nothing to purge */
    _Atomic bool over_soft_limit;
    _Atomic bool much_free; /* POOL_MUCH_FREE units were free with memory behind them; cleared by those who see to it */
    _Atomic bool tight; /* P5: the last attempt to map more slots failed */
    _Atomic bool refused; /* tight, and the window is not full: the system had no memory or address space to give */
    /* What is released now was unwanted for a purge delay already, in caches and warm pools, and need not wait out another. */
    _Atomic bool stale;
};

HAK_DATA struct shared_pool shared_pool;

/* Makes the window, and the pool of its first slots; idempotent. False when there is no memory for it. Called under the init lock. */
HAK_HIDDEN bool shared_pool_init(void);

/* What a slab will be used for (P6). */
enum pool_use { POOL_DENSE, POOL_SPARSE };

/* Takes up to `count` runs of `units` units, each starting at a multiple of `align_units`; runs follow each other where there is
 * room. Fills slabs[] with headers in state SLAB_WARM, start, units, zero and dense set. Returns the number of runs: less than
 * count when memory is out, the limit is reached, or more would exceed N2. Gives back what waits first (N2). Any thread; takes
 * huge_lock and pool.lock, one after the other. */
HAK_HIDDEN size_t shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use, struct slab **slabs);

/* Returns a slab that nobody holds a block of. Any thread; takes pool.lock. */
HAK_HIDDEN void shared_pool_release(struct slab *slab);

/* A 2 MiB slot for metadata, zeroed; NULL when there is none. */
HAK_HIDDEN void *shared_pool_take_metadata_slot(void);

/* Makes `count` SuperSlabs ready with memory behind them (HAKMEM_SS_PREWARM). Returns how many. */
HAK_HIDDEN size_t shared_pool_prewarm(size_t count);

/* Counts bytes that are about to be mapped for a huge block, after room was made for them (N2): false if the hard limit does not allow
 * them. Any thread that holds no lock of rank LOCK_RANK_HUGE or above; takes huge_lock and pool.lock, one after the other. */
HAK_HIDDEN bool shared_pool_charge_huge(size_t bytes);
/* The bytes charged last were mapped: they count for the peak. */
HAK_HIDDEN void shared_pool_note_huge_mapped(void);
HAK_HIDDEN void shared_pool_uncharge_huge(size_t bytes);

/* ---- tiers.c: for shared_pool.c and purge.c; all under pool.lock ---- */
HAK_HIDDEN void shared_pool_move_bucket(uint32_t slot);
HAK_HIDDEN uint32_t shared_pool_now_ms(void);
/* Empty SuperSlabs whose memory may wait. */
HAK_HIDDEN size_t shared_pool_lru_size(void);
/* Call before a part of the slot is purged (P7). True: refuse it huge pages first, with or without the lock. */
HAK_HIDDEN bool shared_pool_split(uint32_t slot);
/* Unmaps an EMPTY SuperSlab, which has no memory (P5). Returns the bytes. */
HAK_HIDDEN size_t shared_pool_unmap(uint32_t slot);
/* Unmaps the slots that were mapped ahead and never used. Returns the bytes. */
HAK_HIDDEN size_t shared_pool_unmap_unused(void);
/* Makes a purge due `delay_ms` from now unless one is due earlier. */
HAK_HIDDEN void shared_pool_schedule_purge(uint64_t delay_ms);

/* Call before purging a part of a slot that lies at `address` in the window: refuses huge pages for it (P7), so that khugepaged does not
 * bring the memory back. Any thread; takes pool.lock. */
HAK_HIDDEN void shared_pool_split_at(const void *address);

/* Makes sure that a purge will look at memory that waits elsewhere: in warm pools, in pending queues, in the caches of dead threads.
 * Any thread, no lock. */
HAK_HIDDEN void shared_pool_want_purge_slow(void);
HAK_INLINE void shared_pool_want_purge(void)
{
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) == 0)
        shared_pool_want_purge_slow();
}

/* Bytes held of the system's memory (N1). Any thread; takes pool.lock. */
HAK_HIDDEN size_t shared_pool_footprint(void);

#endif
