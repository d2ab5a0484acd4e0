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
 * P2: a unit's `touched` bit is clear only if every byte of it reads as zero and it has no memory behind it. (Bit 0 is the
 *     header's.)
 * P3: a SuperSlab with k free units, k > 0, is in bucket k, and in no other; those that would cost a whole huge page to
 *     begin are in one more, the last. Whether its `touched` is 0 does not change between two moves.
 * P4: slots are read and changed under pool.lock only.
 * P5: once the system has refused to commit more, memory that is free is wanted elsewhere: EMPTY SuperSlabs are decommitted without
 *     delay. They stay readable, as zeros, so that a stale pointer into one is still told apart.
 * P6: of the free units that are touched, those in superslab.dense had a slab that was filled, or whose blocks are large: there is
 *     memory behind most of them. Slabs that will be filled get them first, the others get them last: a few small blocks must not
 *     hold a whole unit's memory.
 * P7: what was given back stays given back. A SuperSlab that has huge pages (PAGES_HUGE) has all of its `touched` bits or none, as
 *     the first touch brings all of it; before a part is purged, huge pages are refused for it (PAGES_SPLIT), or the kernel's
 *     khugepaged would make a huge page of what is left, and fill it up. They are asked for again when it begins anew.
 */
#ifndef HAK_SUPERSLAB_SHARED_POOL_H
#define HAK_SUPERSLAB_SHARED_POOL_H

#include "os/lock.h"
#include "superslab/superslab.h"
#include "superslab/window.h"

#define POOL_DRAINING_USED 4u
#define POOL_BUCKET_EMPTY 31u
#define POOL_BUCKETS 33u /* by number of free units, 1 to 31, and 32 */
/* A SuperSlab that refuses huge pages among others may be two mappings more, of the 65,530 that a process has by default: beyond so
 * many that are split, no more are made to refuse. */
#define POOL_SPLIT_MAX 8192u
#define POOL_MUCH_FREE ((size_t)16 * HAK_MIB / UNIT_SIZE)

enum slot_kind { SLOT_UNUSED = 0, SLOT_SUPERSLAB, SLOT_METADATA };

enum slot_pages {
    PAGES_SMALL = 0, /* huge ones were not asked for */
    PAGES_HUGE,      /* purged whole or at least by halves */
    PAGES_SPLIT      /* P7 */
};

/* The out-of-line descriptor of a 2 MiB slot: outside the SuperSlab, so that an empty one can be purged whole. */
struct slot {
    uint32_t free;     /* P1 */
    uint32_t touched;  /* P2 */
    uint32_t aged;     /* free and touched at aged_ms, and not taken since */
    uint32_t aged_ms;  /* when `aged` was last filled */
    uint32_t freed_ms; /* when a unit was last freed */
    uint32_t next, prev; /* slots of the bucket; 0 ends */
    uint8_t bucket;      /* 0: in none */
    uint8_t kind;        /* enum slot_kind */
    uint8_t huge_pages;  /* enum slot_pages */
    bool decommitted;    /* EMPTY, and not writable (P5) */
};
_Static_assert(sizeof(struct slot) == 32, "the window reserves 32 bytes a slot");

struct shared_pool {
    struct lock lock;
    struct slot *slots;       /* indexed by slot number */
    uint32_t slots_unused;    /* next committed slot that was never used */
    uint32_t slots_committed; /* end of those */
    uint64_t bucket_mask;
    uint32_t heads[POOL_BUCKETS], tails[POOL_BUCKETS];
    uint32_t superslabs;    /* number ever made; their address space is kept */
    uint32_t decommitted;   /* of those (P5) */
    uint32_t split;         /* slots that are PAGES_SPLIT */
    uint32_t dirty_empties; /* the LRU: EMPTY SuperSlabs with memory behind them, the oldest at the tail of their bucket */
    size_t units_used;            /* units taken by heaps */
    size_t units_dirty;           /* free units with memory behind them */
    size_t huge_bytes;            /* mapped for huge blocks, in use or cached; kept here for the memory limit */
    size_t footprint_peak;        /* bytes: the highest shared_pool_footprint() */
    /* Since the start. The LRU's entries less its reuses and purges are dirty_empties. */
    uint64_t lru_entered, lru_reused, lru_purged;
    uint64_t prewarmed;           /* SuperSlabs */
    uint64_t purged_bytes;        /* of units and headers */
    _Atomic uint32_t next_purge_ms; /* when a purge is due; 0: nothing to purge */
    _Atomic bool over_soft_limit;
    _Atomic bool much_free; /* POOL_MUCH_FREE units were free with memory behind them; cleared by those who see to it */
    _Atomic bool tight; /* P5 */
    /* What is released now was unwanted for a purge delay already, in caches and warm pools, and need not wait out another. */
    _Atomic bool stale;
};

HAK_HIDDEN extern struct shared_pool shared_pool;

HAK_HIDDEN void shared_pool_init(struct slot *slots, uint32_t first, uint32_t end);

/* What a slab will be used for (P6). */
enum pool_use { POOL_DENSE, POOL_SPARSE };

/* Takes up to `count` runs of `units` units, each starting at a multiple of `align_units`; runs follow each other where there is
 * room. Fills slabs[] with headers in state SLAB_WARM, start, units, zero and dense set. Returns the number of runs: less than
 * count when memory is out or the limit is reached. Any thread; takes pool.lock. */
HAK_HIDDEN size_t shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use, struct slab **slabs);

/* Returns a slab that nobody holds a block of. Any thread; takes pool.lock. */
HAK_HIDDEN void shared_pool_release(struct slab *slab);

/* A 2 MiB slot for metadata, zeroed; NULL when there is none. */
HAK_HIDDEN void *shared_pool_take_metadata_slot(void);

/* Makes `count` SuperSlabs ready with memory behind them (HAKMEM_SS_PREWARM). Returns how many. */
HAK_HIDDEN size_t shared_pool_prewarm(size_t count);

/* Counts huge bytes against the memory limit: true if `bytes` more may be mapped. Any thread; takes pool.lock. */
HAK_HIDDEN bool shared_pool_charge_huge(size_t bytes);
/* The bytes charged last were mapped: they count for the peak. */
HAK_HIDDEN void shared_pool_note_huge_mapped(void);
HAK_HIDDEN void shared_pool_uncharge_huge(size_t bytes);

/* ---- for purge.c; all under pool.lock ---- */
HAK_HIDDEN void shared_pool_move_bucket(uint32_t slot);
HAK_HIDDEN uint32_t shared_pool_now_ms(void);
/* Empty SuperSlabs whose memory may wait. */
HAK_HIDDEN size_t shared_pool_lru_size(void);
/* P7, of a slot of which a part is about to be purged. True: refuse it huge pages first, with or without the lock. */
HAK_HIDDEN bool shared_pool_split(uint32_t slot);
/* Makes a purge due `delay_ms` from now unless one is due earlier. */
HAK_HIDDEN void shared_pool_schedule_purge(uint64_t delay_ms);

/* Both, for who is about to purge a part of what it holds: `address` lies in the window. Any thread; takes pool.lock. */
HAK_HIDDEN void shared_pool_split_at(const void *address);

/* Makes sure that a purge will look at memory that waits elsewhere: in warm pools, in pending queues, in the caches of dead threads.
 * Any thread, no lock. */
HAK_HIDDEN void shared_pool_want_purge_slow(void);
HAK_INLINE void shared_pool_want_purge(void)
{
    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) == 0)
        shared_pool_want_purge_slow();
}

/* Bytes of units in use, of free units with memory, and of huge blocks. Any thread; takes pool.lock. */
HAK_HIDDEN size_t shared_pool_footprint(void);

#endif
