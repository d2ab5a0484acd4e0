/*
 * All heaps: creation, orphans and their adoption, and what the tick takes from them. A struct heap is never freed (O3), and an
 * unused one serves the next thread or program that needs a heap: the number made is the most ever in use at once.
 *
 * Nothing that malloc or free call walks over all heaps: each call looks at a bounded number of them, and a hand remembers where the
 * next call goes on, so that every heap has its turn.
 */
#ifndef HAK_POOL_REGISTRY_H
#define HAK_POOL_REGISTRY_H

#include "pool/heap.h"

/* Where a heap is; live first-class heaps are in no list. */
enum registry_list {
    LIST_NONE = 0,
    LIST_SERVED,  /* of threads; the house; the profile's */
    LIST_LEFT,    /* orphans as their threads left them, with blocks in their caches; the last one first */
    LIST_SETTLED, /* orphans whose caches are empty; those first that kept their cache's memory */
    LIST_UNUSED,  /* HEAP_UNUSED (O5) */
    LIST_COUNT
};

/* Doubly linked by heap.after and heap.before. */
struct heap_list {
    struct heap *first, *last;
    struct heap *trim_hand, *adopt_hand; /* the heap to look at next; NULL: the first */
    _Atomic uint32_t count;
};

/* The counters of heaps whose bodies were purged. Under registry.lock. */
struct account {
    struct heap_counters counters;
    struct class_counters classes[CLASS_COUNT];
};

struct registry {
    struct lock lock;
    struct heap *heaps;            /* all, linked by heap.next, the newest first; never shortened */
    struct heap_list lists[LIST_COUNT];
    uint32_t count;                /* heaps made */
    uint32_t kept;                 /* settled heaps that kept their cache's memory for the next threads */
    uint32_t trim_left[LIST_COUNT]; /* heaps of the list that this round of the trimming has not looked at */
    bool trim_more;                /* this round found heaps that may have more to give later */
    bool trim_stale;               /* this round looks at heaps that are not idle too */
    struct heap *house;            /* serves threads past their end; state HEAP_ORPHAN for ever (O4) */
    struct account departed;
    uint32_t folds;                /* bodies whose counters went into `departed`: for readers outside the process */
    _Atomic uint32_t orphan_count;
    _Atomic uint32_t live_threads; /* threads that have a heap */
    /* The tick stopped at a bound: in settling orphans, in a round of the trimming, with dead memory due for a purge. */
    _Atomic bool settling, trimming, purging;
};

HAK_DATA struct registry registry;

/* Makes the house heap. False when memory is out. Called under the init lock. */
HAK_HIDDEN bool registry_init(void);

/* A heap for the calling thread: the last orphan with what it owns, an unused one, or a new one. NULL when memory is out. */
HAK_HIDDEN struct heap *registry_take_heap(void);

/* Zeroed memory for the heap's cache, of `size` bytes as all of them, for good. False when memory is out. */
HAK_HIDDEN bool registry_add_cache(struct heap *heap, size_t size);

/* The thread ends: its heap, with all it owns, becomes an orphan, and its cache stays as it is. */
HAK_HIDDEN void registry_abandon_heap(struct heap *heap);

/* In the child of a fork, whose one thread has the heap `mine` (or NULL): all other threads' heaps are orphans. Under the registry's
 * lock, or where the fork did not get it. */
HAK_HIDDEN void registry_reset_in_child(struct heap *mine);

/* The heap of sampled blocks, which no thread serves (O4). NULL when memory is out. */
HAK_HIDDEN struct heap *registry_new_profile(void);

HAK_HIDDEN struct heap *registry_new_first_class(void);
/* The heap owns nothing any more. A heap that is dropped already stays as it is. */
HAK_HIDDEN void registry_drop_first_class(struct heap *heap);

/* Before a refill takes a new slab: adopts one of the class with free blocks, from an orphan or from a heap that was idle for
 * HAKMEM_MF2_IDLE_THRESHOLD_US with HAKMEM_MF2_ENQUEUE_THRESHOLD slabs pending. Under heap->lock. True when the heap has
 * an available slab of the class. */
HAK_HIDDEN bool registry_adopt(struct heap *heap, unsigned class);

/* ---- For the tick, holding no lock. A call looks at REGISTRY_STEP heaps at most, or with `all` at all of them. ---- */
#define REGISTRY_STEP 64u

/* Empties the caches of orphans, each by a call of `flush` under registry.lock. */
HAK_HIDDEN void registry_settle(bool all, void (*flush)(void *cache));

/* Drains idle heaps' pending queues, gives their warm slabs back, and, of heaps that did nothing since the last tick, the free pages
 * inside their slabs; an orphan that owns nothing becomes unused. The calls of a round look at each heap once. `stale`, of the call
 * that begins a round: at every heap whose lock is free, idle or not. Adds the bytes given back at once to *purged. True if a
 * later round may get more. */
HAK_HIDDEN bool registry_trim_idle(bool stale, bool all, size_t *purged);

/* Gives back the memory of dead bodies and caches, of 15 times as many heaps a call. Returns the bytes. */
HAK_HIDDEN size_t registry_purge_dead(bool all);

/* Whether any of the three stopped at its bound: the tick should go on soon. */
HAK_HIDDEN bool registry_has_more(void);

/* A number that changes whenever a thread was on a slow path since the last call. For one caller. */
HAK_HIDDEN uint32_t registry_activity(void);

#endif
