/*
 * All heaps: creation, orphans, adoption, and what the tick takes. A struct heap is never freed (O3). An unused one
 * serves the next thread or program that needs a heap, so the number made is the most ever in use at once.
 *
 * No code that malloc or free calls walks over all heaps. A call looks at a bounded number of them, and a hand
 * remembers where the next call goes on, so that every heap has its turn.
 */
#ifndef HAK_POOL_REGISTRY_H
#define HAK_POOL_REGISTRY_H

#include "pool/heap.h"

/* The list that a heap is in. */
enum registry_list {
    LIST_NONE = 0,
    LIST_SERVED,  /* heaps of threads, shared heaps, the house heap, those of the profile and of long-lived blocks */
    LIST_LEFT,    /* orphans as their threads left them, with blocks in their caches; the last one first */
    LIST_SETTLED, /* orphans whose caches are empty; those that kept their cache's memory come first */
    LIST_PROGRAM, /* first-class heaps */
    LIST_UNUSED,  /* HEAP_UNUSED (O5) */
    LIST_COUNT
};

/* Doubly linked by heap.after and heap.before. */
struct heap_list {
    struct heap *first, *last;
    struct heap *trim_hand, *adopt_hand, *warm_hand; /* the next heap to look at; NULL: the first */
    _Atomic uint32_t count; /* Order: any; changes under registry.lock, else a hint */
};

/* The counters of heaps whose bodies were purged. Under registry.lock. */
struct account {
    struct heap_counters counters;
    struct class_counters classes[CLASS_COUNT];
};

/* Shared heaps (O8): four for each CPU, within SHARED_LEAST and SHARED_MOST. Threads share heaps when more than
 * OWN_LEAST of them live, and more than four for each CPU. */
#define SHARED_LEAST 8u
#define SHARED_MOST 64u
#define OWN_LEAST 64u

struct registry {
    _Alignas(HAK_CACHE_LINE) struct lock lock;
    struct heap *heaps; /* all, linked by heap.next, the newest first. Order: release by registry_make, acquire: them */
    struct heap_list lists[LIST_COUNT];
    uint32_t count;                /* heaps made */
    uint32_t kept;                 /* settled heaps that kept their cache's memory for the next threads */
    uint32_t trim_left[LIST_COUNT]; /* heaps of each list that this round of trimming has not looked at */
    bool trim_more;                /* this round found heaps that may have more to give later */
    bool trim_stale;               /* this round also looks at heaps that are not idle */
    struct heap *house;            /* serves threads past their end; state HEAP_ORPHAN for ever (O4) */
    struct account departed;
    uint32_t folds;                /* bodies whose counters went into `departed`: for readers outside the process */
    _Atomic uint32_t orphan_count; /* Order: any; a hint */
    _Atomic uint32_t live_threads; /* threads that have a heap. Order: relaxed; a hint */
    /* settling: orphans remain to be settled. trimming: a round is not over. purging: dead memory is due. */
    _Atomic bool settling, trimming, purging; /* Order: any; hints */
    struct heap *shared[SHARED_MOST]; /* O8; NULL: no heap serves a cache here */
    uint32_t shared_count;            /* entries of `shared` in use, by the number of CPUs; 0 until registry_init */
    uint32_t own_most;                /* a thread beyond this number shares a heap (O8) */
};

HAK_DATA struct registry registry;

/* Makes the house heap. False: memory is out. Under process_lock. */
HAK_HIDDEN bool registry_init(void);

/* A heap for the calling thread: the last orphan with all it owns, an unused heap, or a new one. NULL: no memory. */
HAK_HIDDEN struct heap *registry_take_heap(void);

/* The heap that serves the calling thread's cache: the thread's `own`, or a shared one, which counts the cache (O8). */
HAK_HIDDEN struct heap *registry_serving(struct heap *own);

/* The shared heap serves one cache less. */
HAK_HIDDEN void registry_serve_less(struct heap *shared);

/* heap_memory_add_cache under registry.lock. */
HAK_HIDDEN bool registry_add_cache(struct heap *heap, size_t size, size_t first_size);

/* Call before the process has one thread more. Any thread. */
HAK_INLINE void registry_expect_thread(void)
{
    atomic_store_explicit(&heap_signals.several, true, memory_order_relaxed);
}

/* Call at a thread's end: its heap, with all it owns, becomes an orphan, and its cache stays as it is. */
HAK_HIDDEN void registry_abandon_heap(struct heap *heap);

/* In the child of a fork, whose one thread has the heap `mine` (or NULL): makes orphans of all other threads' heaps.
 * `serving` tells which heap serves a cache. If that heap is lost (O7), so are the blocks in the cache. Under
 * registry.lock, unless the fork did not get it. */
HAK_HIDDEN void registry_reset_in_child(struct heap *mine, struct heap *(*serving)(const void *cache));

/* Makes a heap of the kind for *place, if there is none yet. It is never a thread's own (O4). False: memory is out. */
HAK_HIDDEN bool registry_served_by_all(enum heap_kind kind, struct heap **place);

HAK_HIDDEN struct heap *registry_new_first_class(void);
/* Marks a first-class heap that owns nothing any more as unused. A second call has no effect. */
HAK_HIDDEN void registry_drop_first_class(struct heap *heap);

/* Adopts a slab of the class with free blocks, before a refill takes a new slab: from an orphan, or from a heap that
 * was idle for HAKMEM_MF2_IDLE_THRESHOLD_US with HAKMEM_MF2_ENQUEUE_THRESHOLD slabs pending. Under heap->lock. */
HAK_HIDDEN bool registry_adopt(struct heap *heap, unsigned class);

/* Gives back the warm pools (O6) of at most REGISTRY_STEP heaps whose locks are free. Any thread that holds no lock. */
HAK_HIDDEN void registry_release_warm(void);

/* ---- For the tick, holding no lock. A call looks at REGISTRY_STEP heaps at most, or with `all` at all. ---- */
#define REGISTRY_STEP 64u

/* Calls `flush` under registry.lock for the cache of each orphan, to empty it. `flush` returns the heap that served the
 * cache until then; from now on the orphan serves it. */
HAK_HIDDEN void registry_settle(bool all, struct heap *(*flush)(void *cache));

/* Drains idle heaps' pending queues and gives their warm slabs back. Scrubs heaps that did nothing since the last tick.
 * An orphan that owns nothing becomes unused. The calls of a round look at each heap once. If `stale` is set in its
 * first call, a round treats every heap whose lock is free as idle. `look`: as for slab_scrub. Adds the bytes to
 * *purged. True: a later round may get more. */
HAK_HIDDEN bool registry_trim_idle(bool stale, bool all, struct slab_look *look, size_t *purged);

/* Purges dead bodies and caches: with `all` of every heap, else of at most 15 * REGISTRY_STEP. Returns the bytes. */
HAK_HIDDEN size_t registry_purge_dead(bool all);

/* Whether settling, trimming or purging stopped at its bound, so that the tick should go on soon. */
HAK_HIDDEN bool registry_has_more(void);

/* A number that changes if a thread was on a slow path since the last call. For one caller. */
HAK_HIDDEN uint32_t registry_activity(void);

#endif
