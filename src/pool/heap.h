/*
 * A heap owns slabs. Each thread has one; a thread that exits leaves its heap whole, as an orphan, to the next thread; programs may
 * make more (first-class heaps); and one serves threads that are past their end.
 *
 * O1: everything in a heap but `state`, `pending`, `pending_count` and the observers' words is read and changed under heap.lock
 *     only. A thread takes its own heap's lock on slow paths alone, a batch of blocks at a time.
 * O2: a slab's owner changes with the locks of the old and the new owner held.
 * O3: a struct heap is never reused for anything but a heap, of whatever kind, so a remote freer may touch an owner that is out of
 *     date. Its body and its cache are memory that a purge may take while no thread and no program uses the heap.
 * O4: a heap that is not HEAP_LIVE, and a first-class heap, has no thread that will drain its pending queue: the thread that pushes
 *     there drains it. A thread that forwards an entry there holds another heap's lock and may only try this one's; if that is
 *     taken, the next tick drains the queue.
 * O5: state, kind and the list that a heap is in change together, under registry.lock. A HEAP_UNUSED heap owns no slab, and no slab
 *     waits in its queue when it becomes one.
 */
#ifndef HAK_POOL_HEAP_H
#define HAK_POOL_HEAP_H

#include "os/lock.h"
#include "pool/slab_list.h"

enum heap_state { HEAP_UNUSED = 0, HEAP_LIVE, HEAP_ORPHAN };
enum heap_kind { HEAP_THREAD = 0, HEAP_HOUSE, HEAP_FIRST_CLASS, HEAP_PROFILE /* of sampled blocks, src/profile */ };

/* The warm pool: empty slabs of one length (in units) ready to carve, those for sparse use apart. The budget doubles on a miss, up to
 * a part of the slabs in use. */
struct warm_stock {
    struct slab *stack; /* linked by slab.next */
    uint16_t count, budget;
};
#define WARM_SPARSE 0u  /* the stock of one-unit slabs for sparse use; those for dense use lie at their number of units */
#define WARM_STOCKS 4u  /* slabs have 1 to 3 units; spans do not pass through the warm pool */

/* Since the heap was made; bumped under its lock.
 * C1: refilled_blocks - returned_blocks, summed over all heaps, is the blocks of the class that are live, in caches, or freed by others
 *     and not collected: the sum of slab.used and slab.remote_count. */
struct class_counters {
    uint64_t refills, refilled_blocks; /* takings of blocks out of the heap's slabs */
    uint64_t flushes, flushed_blocks;  /* batches that the heap's thread gave back, to slabs of any owner */
    uint64_t returned_blocks;          /* that came back to the heap's slabs, from whomever */
    uint64_t carved, released;         /* slabs */
    uint64_t direct;                   /* of the refills: not by a malloc that found its thread's stack empty */
    uint64_t overflows;                /* frees that found it full; written by the heap's thread without the lock, atomically */
    uint64_t malloc_hits, free_hits;   /* what the cache served between slow calls, at least (front/thread_cache.c:bin_note_hits) */
};
struct heap_counters {
    uint64_t refills, refilled_blocks, flushes, flushed_blocks; /* sums over the classes */
    uint64_t warm_hits, warm_misses, warm_prefilled;
    uint64_t slabs_carved, slabs_adopted, slabs_released;
    uint64_t remote_blocks;    /* that the heap's thread freed and other heaps own */
    uint64_t remote_collected; /* of this heap's, freed by others and collected from the remote maps */
    uint64_t locked_blocks;    /* freed under this heap's lock instead: spans, first-class heaps */
    uint64_t pending_drained, pending_requeued;
};

/* What a heap needs only while it is in use: the first page of it while its blocks are small and few. */
struct heap_body {
    struct slab_list available[CLASS_COUNT];
    struct warm_stock warm[WARM_STOCKS];
    uint16_t filled[CLASS_COUNT]; /* slabs of the class that were handed out to the last block: proof of use */
    struct heap_counters counters;
    struct class_counters classes[CLASS_COUNT];
};

/* The memory of a body or a cache: changes under registry.lock, that of a cache to MEMORY_DEAD with the heap's lock held too. */
enum heap_memory_state { MEMORY_IN_USE = 0, MEMORY_DEAD /* to be purged */, MEMORY_PURGED /* reads as zero */ };

struct heap {
    struct lock lock;
    uint32_t id;            /* from 1, for messages */
    uint32_t thread_id;     /* the kernel's, of the thread it serves or served */
    _Atomic uint8_t state;  /* enum heap_state */
    _Atomic uint8_t kind;   /* enum heap_kind */
    uint8_t list;           /* enum registry_list; under registry.lock */
    _Atomic uint8_t cache_purged; /* enum heap_memory_state; a cache that is not MEMORY_IN_USE holds nothing */
    _Atomic uint8_t body_purged;  /* the same of the body */
    _Atomic uint32_t slabs; /* in the body's lists and in `full`; changed under the lock */
    struct heap_body *body;
    struct class_counters *classes; /* of the body */
    void *cache;            /* struct thread_cache of a HEAP_THREAD, kept with the heap for its next thread */
    struct heap *next;      /* of all heaps */
    struct heap *after, *before; /* in `list` */
    struct slab_list full;
    _Atomic uint32_t epoch;  /* bumped on each slow path, read by those who look for idle heaps */
    uint32_t tick_epoch;     /* epoch at the last tick, and when the heap was last scrubbed; under heap.lock */
    uint32_t scrubbed_epoch;
    uint32_t huge_blocks;    /* of a first-class heap; under huge_lock */
    _Atomic uint32_t sampled; /* its blocks that the heap profile knows; changed under profile_lock */
    /* Other threads' lines: slabs with remote frees to collect, a stack linked by slab.pending_next, of at most pending_count. */
    _Alignas(HAK_LINE_PAIR) struct slab *_Atomic pending;
    _Atomic uint32_t pending_count;
    _Atomic uint32_t seen_epoch; /* epoch when a thread last looked whether the heap is idle, and when that was */
    _Atomic uint64_t seen_time;
};
_Static_assert(sizeof(struct heap) == 2 * HAK_LINE_PAIR, "the owner's line pair and the others'");

/* What all heaps tell those who look for idle ones, so that these need not ask each heap. */
struct heap_signals {
    _Alignas(HAK_LINE_PAIR) _Atomic bool active; /* a thread was on a slow path; cleared by registry_activity */
    _Alignas(HAK_LINE_PAIR) _Atomic uint32_t queues; /* heaps with HAKMEM_MF2_ENQUEUE_THRESHOLD or more slabs pending */
};
HAK_DATA struct heap_signals heap_signals;

/* ---- Taking: pool/take.c ---- */

/* Takes up to `want` blocks of the class into out[], the lowest address last so that it is popped first; drains the pending
 * queue first. *zero tells whether the blocks are known to read as zero. Returns the number, 0 when memory is out. Under heap->lock. */
HAK_HIDDEN size_t heap_take_blocks(struct heap *heap, unsigned class, void **out, size_t want, bool *zero);

/* A span that starts at a multiple of align_units units; NULL when memory is out. Under heap->lock. */
HAK_HIDDEN void *heap_take_aligned_span(struct heap *heap, unsigned class, unsigned align_units, bool *zero);

/* ---- All else: pool/heap.c ---- */

/* Returns the blocks that the heap owns to their slabs and moves the others to the front of blocks[]; returns the number of those, to be
 * given to remote_free_blocks once the lock is released. Reports what is no block of `class` as misuse of `function` and drops
 * it. Under heap->lock. */
HAK_HIDDEN size_t heap_return_blocks(struct heap *heap, unsigned class, void **blocks, size_t count, const char *function);

/* Gives the warm pool's slabs back to the shared pool. Under heap->lock. */
HAK_HIDDEN void heap_release_warm(struct heap *heap);

/* Gives back the pages without blocks in use inside slabs that are not mostly used. Adds the bytes to *purged. False if the system
 * refused some. Under heap->lock. */
HAK_HIDDEN bool heap_scrub(struct heap *heap, size_t *purged);

/* Gives everything the heap owns back at once, live blocks too. Under heap->lock. */
HAK_HIDDEN void heap_release_all(struct heap *heap);

/* ---- For the files of pool/ ---- */

HAK_INLINE void heap_count_slabs(struct heap *heap, int more)
{
    uint32_t slabs = atomic_load_explicit(&heap->slabs, memory_order_relaxed);

    atomic_store_explicit(&heap->slabs, slabs + (uint32_t)more, memory_order_relaxed);
}

/* The heap's thread is on a slow path. Under the heap's lock. */
HAK_INLINE void heap_note_slow_path(struct heap *heap)
{
    atomic_fetch_add_explicit(&heap->epoch, 1, memory_order_relaxed);
    if (HAK_UNLIKELY(!atomic_load_explicit(&heap_signals.active, memory_order_relaxed)))
        atomic_store_explicit(&heap_signals.active, true, memory_order_relaxed);
}

/* The slab got free blocks (H6) and `freed` of them count (H1): moves it to the list where it belongs, or away when it is empty. */
HAK_HIDDEN void heap_slab_freed(struct heap *heap, struct slab *slab, bool was_full, uint32_t freed);
/* Moves a slab between two heaps whose locks are held (O2). */
HAK_HIDDEN void heap_adopt_slab(struct heap *heap, struct heap *from, struct slab *slab);

#endif
