/*
 * The debug counters: events on the slow paths, by size class where an event has one. Any layer may count. Builds
 * without HAK_DEBUG_COUNTERS have none: the compiler removes debug_count there, after it has checked its types.
 *
 *   COUNTER(NAME, "name", "what happened")
 */
#ifndef HAK_OBSERVE_COUNTERS_H
#define HAK_OBSERVE_COUNTERS_H

#include "config/classes.h"

#define DEBUG_COUNTER_TABLE(COUNTER)                                                                                   \
    /* What a refill did for its blocks, in this order */                                                              \
    COUNTER(REFILL_REMOTE_DRAIN, "refill_remote_drain", "refills that collected remote frees first")                   \
    COUNTER(REFILL_AVAILABLE, "refill_available", "refills out of a slab with room")                                   \
    COUNTER(REFILL_ADOPTED, "refill_adopted", "refills that adopted a slab")                                           \
    COUNTER(REFILL_WARM_HIT, "refill_warm_hit", "refills that carved a warm slab")                                     \
    COUNTER(REFILL_POOL, "refill_pool", "refills that went to the shared pool")                                        \
    COUNTER(REFILL_NEW_SUPERSLAB, "refill_new_superslab", "SuperSlabs made")                                           \
    COUNTER(REFILL_FAILED, "refill_failed", "refills that got no block")                                               \
    /* Each free of a block up to 1 MiB is one of these (heap_count_free) */                                           \
    COUNTER(FREE_TLS_SLL, "tls_sll", "frees that the thread's cache took")                                             \
    COUNTER(FREE_SS_LOCAL, "ss_local", "frees of the thread's own blocks past its cache")                              \
    COUNTER(FREE_SS_REMOTE, "ss_remote", "frees of other heaps' blocks past the cache")                                \
    /* How blocks came back to slabs, out of caches or past them */                                                    \
    COUNTER(MAP_LOCAL, "map_local", "blocks into the maps of the thread's own slabs")                                  \
    COUNTER(MAP_REMOTE, "map_remote", "blocks into the remote maps of other heaps' slabs")                             \
    COUNTER(MAP_LOCKED, "map_locked", "blocks into maps under their owner's lock")                                     \
    COUNTER(FREE_HUGE, "free_huge", "frees of huge blocks")                                                            \
    /* Calls that ended before that */                                                                                 \
    COUNTER(EARLY_FREE_NULL, "early_free_null", "free of NULL")                                                        \
    COUNTER(EARLY_FREE_HOUSE, "early_free_house", "frees by a thread without a cache")                                 \
    COUNTER(EARLY_FREE_CLOSED, "early_free_closed", \
        "frees of a small foreign block whose class the thread does not use") \
    COUNTER(EARLY_FREE_UNCACHED, "early_free_uncached", "frees of a block whose class the cache has no room for")      \
    COUNTER(EARLY_MALLOC_HOUSE, "early_malloc_house", "allocations by a thread without a cache")                       \
    COUNTER(EARLY_MALLOC_CACHED, "early_malloc_cached", "slow allocations that found a block in the cache")            \
    COUNTER(EARLY_MALLOC_TOO_LARGE, "early_malloc_too_large", "requests above PTRDIFF_MAX")                            \
    COUNTER(EARLY_MISUSE, "early_misuse", "frees of what is no block")                                                 \
    COUNTER(CACHE_GROWN, "cache_grown", "stacks of a cache that grew")                                                 \
    COUNTER(CACHE_SHRUNK, "cache_shrunk", "stacks of a cache that were closed for want of use")                        \
    /* The warm pool */                                                                                                \
    COUNTER(WARM_HIT, "warm_hit", "slabs taken from a stock that had one")                                             \
    COUNTER(WARM_MISS, "warm_miss", "stocks found empty")                                                              \
    COUNTER(WARM_PREFILL, "warm_prefill", "slabs brought to stocks")                                                   \
    COUNTER(WARM_KEEP, "warm_keep", "slabs that emptied and were kept")                                                \
    COUNTER(WARM_RELEASE, "warm_release", "slabs that emptied and left for the shared pool")                           \
    /* MF2 */                                                                                                          \
    COUNTER(MF2_NEW_PAGE, "mf2_new_page", "slabs carved")                                                              \
    COUNTER(MF2_FREE_FAST, "mf2_free_fast", "remote batches to a slab that was pending already")                       \
    COUNTER(MF2_FREE_SLOW, "mf2_free_slow", "remote batches that put their slab into its owner's queue")               \
    COUNTER(MF2_OWNER_FREE, "mf2_owner_free", "frees of blocks whose heap serves the thread")                          \
    COUNTER(MF2_REMOTE_FREE, "mf2_remote_free", "frees of other heaps' blocks")                                        \
    COUNTER(MF2_PENDING_ENQUEUED, "mf2_pending_enqueued", "slabs put into a queue")                                    \
    COUNTER(MF2_PENDING_DRAINED, "mf2_pending_drained", "slabs taken out of a queue")                                  \
    COUNTER(MF2_PENDING_REQUEUED, "mf2_pending_requeued", "of those: passed on to a new owner")                        \
    COUNTER(MF2_ADOPTED_ORPHAN, "mf2_adopted_orphan", "slabs adopted from a heap whose thread ended")                  \
    COUNTER(MF2_ADOPTED_IDLE, "mf2_adopted_idle", "slabs adopted from an idle heap")                                   \
    COUNTER(MF2_ORPHAN_DRAINED, "mf2_orphan_drained", "orphans' queues drained by the pushing thread")                 \
    /* The LRU of empty SuperSlabs */                                                                                  \
    COUNTER(LRU_ENTERED, "lru_entered", "SuperSlabs that became empty")                                                \
    COUNTER(LRU_REUSED, "lru_reused", "empty SuperSlabs taken again")                                                  \
    COUNTER(LRU_PURGED, "lru_purged", "empty SuperSlabs given back")                                                   \
    COUNTER(LRU_EVICTED, "lru_evicted", "empty SuperSlabs that had to go before their delay")                          \
    COUNTER(PREWARMED, "prewarmed", "SuperSlabs made ready at start")

enum debug_counter {
#define DEBUG_COUNTER_ID(id, name, help) COUNT_##id,
    DEBUG_COUNTER_TABLE(DEBUG_COUNTER_ID)
#undef DEBUG_COUNTER_ID
    DEBUG_COUNTERS
};

struct debug_counter_name {
    char name[24], help[80]; /* in the row, as those of struct field (fields.h) */
};
HAK_DATA const struct debug_counter_name debug_counter_names[DEBUG_COUNTERS];

/* By counter and class. Class 0: events without a class. Without HAK_DEBUG_COUNTERS one word that nobody touches.
 * Order: any. */
HAK_DATA _Atomic uint64_t debug_counters[HAK_DEBUG_COUNTERS ? DEBUG_COUNTERS : 1][HAK_DEBUG_COUNTERS ? CLASS_COUNT : 1];

HAK_INLINE void debug_count_of(enum debug_counter which, unsigned class, uint64_t by)
{
    if (HAK_DEBUG_COUNTERS)
        atomic_fetch_add_explicit(&debug_counters[which][class], by, memory_order_relaxed);
}
HAK_INLINE void debug_count(enum debug_counter which) { debug_count_of(which, CLASS_NONE, 1); }

/* The count of one class, and of all classes. 0 without HAK_DEBUG_COUNTERS. */
HAK_HIDDEN uint64_t debug_counter_of(enum debug_counter which, unsigned class);
HAK_HIDDEN uint64_t debug_counter_sum(enum debug_counter which);

#endif
