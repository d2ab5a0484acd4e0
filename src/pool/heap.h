/*
 * A heap owns slabs. Each thread has a heap, or shares one where threads are many. A thread that exits leaves its whole
 * heap, an orphan, to the next thread. The house heap serves threads past their end. Programs make first-class heaps.
 *
 * O1: a heap's fields are read and changed under heap.lock only, unless their comments say otherwise. A thread takes
 *     its own heap's lock on slow paths alone, once for a batch of blocks.
 * O2: a slab's owner changes with the locks of the old and the new owner held.
 * O3: the memory of a struct heap always stays a heap, of any kind, so a remote freer may touch an owner that is out of
 *     date. A purge may take the memory of the body and the cache while no thread and no program uses the heap.
 * O4: a heap that is not HEAP_LIVE, or is first-class, has no thread that will drain its pending queue, so the thread
 *     that pushes there drains it. A thread that forwards an entry there holds another heap's lock, so it only tries to
 *     take this heap's lock. If it fails, the next tick drains the queue.
 * O5: a heap's state, kind and list change together, under registry.lock. A heap that becomes HEAP_UNUSED owns no slab,
 *     and none waits in its queue.
 * O6: an empty slab waits in the warm pool of its thread's heap until any class of its length uses it, a tick comes,
 *     the footprint grows, or the heap needs units of another length (N1, N5). What has memory counts as waiting.
 * O7: a heap is HEAP_LOST in the child of a fork that did not get the heap's lock: a thread that is gone was changing
 *     the heap. It is in no list; nobody touches what its lock guards; blocks that the child frees there are lost.
 * O8: where threads are many, a HEAP_SHARED heap serves several caches: they take their blocks from it and return them
 *     to it. Such a thread's own heap holds the cache, and no slab. heap.caches counts the caches served, those of
 *     orphans too. Their threads drain the queue. When the count is 0, the heap becomes an orphan like a thread's heap.
 * O9: slab_bytes is what all blocks of the heap's slabs have, and used_bytes what the blocks have that are out of them.
 */
#ifndef HAK_POOL_HEAP_H
#define HAK_POOL_HEAP_H

#include "observe/counters.h"
#include "os/lock.h"
#include "pool/slab_list.h"
#include "superslab/footprint.h"
#include "superslab/shared_pool.h"

enum heap_state { HEAP_UNUSED = 0, HEAP_LIVE, HEAP_ORPHAN, HEAP_LOST /* O7 */ };
enum heap_kind {
    HEAP_THREAD = 0,
    HEAP_HOUSE,
    HEAP_FIRST_CLASS,
    HEAP_PROFILE, /* of sampled blocks, src/profile */
    HEAP_SHARED,  /* O8 */
    HEAP_LONG     /* of blocks that live long, front/cohort.h */
};

/* The warm pool: empty slabs, not carved, in stocks by their length in units. A miss fetches `budget` slabs, twice as
 * many as the miss before, up to a part of the slabs in use. */
struct warm_stock {
    struct slab *stack; /* linked by slab.next */
    uint16_t count, budget;
};
#define WARM_SPARSE 0u /* one-unit slabs for sparse use; the stocks of dense ones lie at their number of units */
#define WARM_STOCKS (SPAN_MAX_UNITS + 1)

/* How much may wait in the warm pool. Other heaps cannot use it, so it is little at first, and twice as much each time
 * that the heap needs a new slab after it could not keep one. When the footprint grows, it is little again. Slabs of
 * small blocks have no part in this (warm_learns). */
struct warm_bound {
    uint32_t units;   /* of the slabs in the pool with memory behind them; also read without the lock */
    uint32_t most;    /* units that the heap has learnt to keep; 0: WARM_FIRST */
    uint32_t growths; /* shared_pool_growths() when warm_keeps last looked */
    bool refused;     /* the last slab that became empty was one too many */
};
#define WARM_FIRST 16u
#define WARM_LEARN_MIN 9216u /* bytes of a block. A slab of smaller ones serves many before a new one is needed */
#define WARM_TOTAL 4096u /* units, in equal shares for all heaps; a thread that is alone has WARM_FIRST */

/* Since the heap was made; bumped under its lock.
 * C1: the sum of refilled_blocks - returned_blocks over all heaps is the number of the class's blocks that are live, in
 *     caches, or freed by other threads and not collected: the sum of slab.used. */
struct class_counters {
    uint64_t refills, refilled_blocks; /* how often blocks were taken from the heap's slabs, and how many */
    uint64_t flushes, flushed_blocks;  /* batches that the heap's thread gave back, to slabs of any owner */
    uint64_t returned_blocks;          /* blocks that any thread gave back to the heap's slabs */
    uint64_t carved, released;         /* slabs */
    uint64_t direct;                   /* refills by other calls than a malloc that found its thread's stack empty */
    uint64_t overflows;                /* frees that found the stack full; written without the lock, atomically */
    uint64_t malloc_hits, free_hits;   /* all, while calls are counted (T8); without the lock, atomically */
};
struct heap_counters {
    uint64_t refills, refilled_blocks, flushes, flushed_blocks; /* sums over the classes */
    uint64_t slab_misses;      /* of the refills: no slab of the heap had room */
    uint64_t warm_hits, warm_misses, warm_prefilled;
    uint64_t slabs_carved, slabs_adopted, slabs_released;
    uint64_t remote_blocks;    /* blocks that the heap's thread freed and other heaps own */
    uint64_t remote_collected; /* this heap's blocks that were collected from remote maps */
    uint64_t locked_blocks;    /* this heap's blocks that others freed under its lock: spans, first-class heaps */
    uint64_t pending_drained, pending_requeued;
};

/* The part of a heap that it needs only while it is in use. Small and few blocks use the first page of it alone. */
struct heap_body {
    struct slab_list available[CLASS_COUNT];
    struct warm_stock warm[WARM_STOCKS];
    struct warm_bound warm_bound;
    _Atomic size_t slab_bytes, used_bytes; /* O9. Order: relaxed; changed under the lock, else a hint */
    uint16_t filled[CLASS_COUNT]; /* slabs of the class whose blocks were all handed out: proof of use */
    struct heap_counters counters;
    struct class_counters classes[CLASS_COUNT];
};

/* The memory of a body or a cache. Changes under registry.lock; a cache's death under heap.lock too. */
enum heap_memory_state { MEMORY_IN_USE = 0, MEMORY_DEAD /* to be purged */, MEMORY_PURGED /* reads as zero */ };

struct heap {
    struct lock lock;
    uint32_t id;            /* from 1, for messages */
    uint32_t thread_id;     /* the kernel's id of the thread that the heap serves or served */
    _Atomic uint8_t state;  /* enum heap_state. Order: seq_cst (O4) */
    _Atomic uint8_t kind;   /* enum heap_kind. Order: any; `state` is set after it and read before it */
    uint8_t list;           /* enum registry_list; under registry.lock */
    _Atomic uint8_t cache_purged; /* heap_memory_state. The cache is empty unless in use. Order: any; locks order it */
    _Atomic uint8_t body_purged;  /* enum heap_memory_state. Order: any; locks order it */
    _Atomic uint32_t slabs; /* in the body's lists and in `full`. Order: any; changed under the lock, else a hint */
    struct heap_body *body;
    struct class_counters *classes; /* of the body */
    void *cache; /* struct thread_cache, kept for the next thread. Order: release as it is made, acquire by figures */
    struct heap *next;      /* in the list of all heaps */
    struct heap *after, *before; /* in `list` */
    struct slab_list full;
    _Atomic uint32_t epoch;  /* bumped on each slow path. Order: relaxed; a hint, like seen_epoch and seen_time below */
    uint32_t tick_epoch;     /* `epoch` at the last tick; under heap.lock */
    uint32_t scrubbed_epoch; /* `epoch` when the heap was last scrubbed; under heap.lock */
    uint32_t huge_blocks;    /* of a first-class heap; under huge_lock */
    _Atomic uint32_t sampled; /* blocks that the profile knows. Order: any; a block's sample comes before its free */
    /* Other threads' lines. `pending`: a stack of slabs with remote frees, linked by slab.pending_next (M3). */
    _Alignas(HAK_LINE_PAIR) struct slab *_Atomic pending; /* Order: seq_cst (O4), or acquire by a drain (M2) */
    _Atomic uint32_t pending_count; /* Order: relaxed; a hint (M3) */
    uint32_t caches;             /* O8; under registry.lock */
    struct scope *scope;         /* of a first-class heap, or NULL; as long as the heap has blocks (pool/scope.h) */
    _Atomic uint32_t seen_epoch; /* `epoch` as heap_is_idle last saw it. Order: relaxed; a hint */
    _Atomic uint64_t seen_time;  /* os_now() when it saw that value first. Order: relaxed; a hint */
};

/* Whether slabs of the class may teach their heap to keep more, and use what it has learnt. */
HAK_INLINE bool warm_learns(unsigned class) { return class_size(class) >= WARM_LEARN_MIN; }

HAK_INLINE bool heap_serves_threads(const struct heap *heap)
{
    return heap->kind == HEAP_THREAD || heap->kind == HEAP_SHARED;
}

/* Whether blocks of the heap may enter thread caches, and the page map has the class of its slabs (W2). */
HAK_INLINE bool heap_is_cached(const struct heap *heap)
{
    return heap_serves_threads(heap) || heap->kind == HEAP_HOUSE;
}

/* Whether the fields under heap.lock may be read (O3, O7). */
HAK_INLINE bool heap_is_readable(const struct heap *heap)
{
    return heap->body_purged != MEMORY_PURGED && heap->state != HEAP_LOST;
}
_Static_assert(sizeof(struct heap) == (size_t)2 * HAK_LINE_PAIR, "the owner's line pair and the others'");

/* Facts about all heaps together, so that slow paths need not look at each heap. Order: any; hints. */
struct heap_signals {
    _Alignas(HAK_LINE_PAIR) _Atomic bool active; /* a thread was on a slow path; registry_activity clears it */
    _Atomic bool several;      /* more than one thread has a heap, or will soon */
    _Atomic uint32_t warm_share; /* units that may wait in each thread's warm pool (O6) */
    _Atomic uint32_t cache_share; /* bytes that the bins of each thread's cache may hold */
    _Alignas(HAK_LINE_PAIR) _Atomic uint32_t queues; /* heaps with HAKMEM_MF2_ENQUEUE_THRESHOLD or more slabs pending */
};
/* Bytes that the bins of all caches together may hold, in equal shares, and the least share. */
#define CACHES_TOTAL (64 * HAK_MIB)
#define CACHE_SHARE_LEAST ((size_t)32 << 10)
HAK_DATA struct heap_signals heap_signals;

/* ---- Taking: pool/take.c ---- */

/* Drains the pending queue, then takes up to `want` blocks of the class into out[], the lowest address last so that it
 * is popped first. *zero: the blocks read as zero. Returns their number, 0 when memory is out. Under heap->lock. */
HAK_HIDDEN size_t heap_take_blocks(struct heap *heap, unsigned class, void **out, size_t want, bool *zero);

/* Takes a span that starts at a multiple of align_units units. NULL: memory is out. Under heap->lock. */
HAK_HIDDEN void *heap_take_aligned_span(struct heap *heap, unsigned class, unsigned align_units, bool *zero);

/* ---- All else: pool/heap.c ---- */

/* Puts the heap's own blocks back into their slabs. Moves the others to the front of blocks[] and returns their number:
 * give them to remote_free_blocks after the lock. Drops and reports addresses that are no block. Under heap->lock. */
HAK_HIDDEN size_t heap_return_blocks(struct heap *heap, unsigned class, void **blocks, size_t count,
                                     const char *function);

/* Whether a heap may hold free memory for which it has not yet shown a need. Any thread. */
HAK_INLINE bool heap_may_keep(void)
{
    return !footprint_is_short();
}

/* Put a slab into a stock of the warm pool, and take the last one, which is there. Under heap->lock. */
HAK_HIDDEN void heap_push_warm(struct heap *heap, unsigned number, struct slab *slab);
HAK_HIDDEN struct slab *heap_pop_warm(struct heap *heap, unsigned number);

/* Gives the warm pool back because the heap had no use for it. It keeps little from now on. Under heap->lock. */
HAK_HIDDEN void heap_unlearn_warm(struct heap *heap);

/* Gives the warm pool back to the shared pool (O6). Under heap->lock. */
HAK_HIDDEN void heap_release_warm(struct heap *heap);

struct slab_look;

/* Scrubs the heap's slabs (slab_scrub). Adds the bytes to *purged. False: the system refused some. Under heap->lock. */
HAK_HIDDEN bool heap_scrub(struct heap *heap, struct slab_look *look, size_t *purged);

/* Scrubs up to SCRUB_SLABS of the thread's slabs, from the window's unit on, so that no call takes more than a few
 * milliseconds. Returns the unit to go on from, or 0 after all. Under heap->lock. */
#define SCRUB_SLABS 512u
HAK_HIDDEN size_t heap_scrub_some(struct heap *heap, size_t unit);

/* Gives back all that the heap owns, live blocks too. Under heap->lock. */
HAK_HIDDEN void heap_release_all(struct heap *heap);

/* ---- For the files of pool/ ---- */

/* Counts bytes that leave the heap's slabs, or, as a negative number, that come back (O9). Under heap->lock. */
HAK_INLINE void heap_count_used(struct heap *heap, size_t bytes)
{
    size_t used = atomic_load_explicit(&heap->body->used_bytes, memory_order_relaxed);

    atomic_store_explicit(&heap->body->used_bytes, used + bytes, memory_order_relaxed);
}

/* Counts blocks that came back to the heap's slabs. Under heap->lock. */
HAK_INLINE void heap_count_returned(struct heap *heap, unsigned class, size_t blocks)
{
    heap->classes[class].returned_blocks += blocks;
    heap_count_used(heap, -(blocks * class_size(class)));
}

/* Counts the slab as the heap's (1), or no longer (-1). Under heap->lock. */
HAK_INLINE void heap_count_slab(struct heap *heap, const struct slab *slab, int sign)
{
    uint32_t slabs = atomic_load_explicit(&heap->slabs, memory_order_relaxed);
    size_t size = class_size(slab->class), bytes = atomic_load_explicit(&heap->body->slab_bytes, memory_order_relaxed);

    atomic_store_explicit(&heap->slabs, slabs + (uint32_t)sign, memory_order_relaxed);
    atomic_store_explicit(&heap->body->slab_bytes, bytes + (size_t)sign * slab->blocks * size, memory_order_relaxed);
    heap_count_used(heap, (size_t)sign * slab->used * size);
}

/* Call on each slow path of the heap's thread. Under heap->lock. */
HAK_INLINE void heap_note_slow_path(struct heap *heap)
{
    atomic_store_explicit(&heap->epoch, atomic_load_explicit(&heap->epoch, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (HAK_UNLIKELY(!atomic_load_explicit(&heap_signals.active, memory_order_relaxed)))
        atomic_store_explicit(&heap_signals.active, true, memory_order_relaxed);
}

/* Call when blocks became free in slab.local: takes `freed` off slab.used (H1), and moves the slab (H6, O6). If it is
 * empty and the heap does not keep it, it goes to *leaving; call heap_let_leave with that before the lock's release.
 * Many threads want the shared pool's lock, so what becomes empty together leaves together. */
HAK_HIDDEN void heap_slab_freed(struct heap *heap, struct slab *slab, bool was_full, uint32_t freed,
                                struct slab_list *leaving);
HAK_INLINE void heap_let_leave(const struct slab_list *leaving)
{
    if (leaving->head)
        shared_pool_release(leaving->head);
}

/* Moves a slab between two heaps whose locks are held (O2). */
HAK_HIDDEN void heap_adopt_slab(struct heap *heap, struct heap *from, struct slab *slab);

/* Counts a free, in builds with debug counters. `heap`: serves the thread; `cached`: its cache takes the block. */
HAK_INLINE void heap_count_free(const struct heap *heap, const void *block, unsigned class, bool cached)
{
    bool own;

    if (!HAK_DEBUG_COUNTERS)
        return;
    own = atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed) == heap;
    debug_count_of(cached ? COUNT_FREE_TLS_SLL : own ? COUNT_FREE_SS_LOCAL : COUNT_FREE_SS_REMOTE, class, 1);
    debug_count_of(own ? COUNT_MF2_OWNER_FREE : COUNT_MF2_REMOTE_FREE, class, 1);
}

#endif
