/*
 * The thread cache: a stack of free blocks for each size class. malloc pops and free pushes, without a lock or an
 * atomic. Refill and flush move batches between a stack and the slabs.
 *
 * A thread finds its cache at hak_window + hak_cache_offset. The offset is 0 in a thread that has no cache yet, or
 * whose thread-local storage was zeroed. It then leads to the empty cache at the window's start.
 *
 * T1: the empty and the retired cache are all zeros for ever: every class is 0, and bin 0 is both empty and full, as in
 *     a real cache. So a call that a fast path cannot serve fails a test that the path makes anyway.
 * T2: slots[0] and the slot at each class's base, in each of its places, are NULL: popping an empty stack yields NULL.
 * T3: base <= top <= limit <= base + the place's limit for each bin. slots[base + 1 .. top] are its entries: distinct
 *     cached blocks of the class, counted as used in their slabs, unless the program freed what it must not. A stack
 *     begins in the class's first place, in one page with the first places of all classes. When it grows, it moves to
 *     the second place for good.
 * T4: a cache changes only under its heap's lock, but for pops and pushes of blocks: of one, or of many from a bin to
 *     its run. So fork finds it whole. The child loses blocks that are on their way from a bin to its run.
 * T7: a bin is deep iff its base is CACHE_SLOTS or more: its stack is in the class's third place, of up to deep_limit
 *     blocks. Only the process's first cache has memory there, and uses it only while the process has one thread and is
 *     not short of memory: nobody else can reach free memory in it. The bytes that deep bins may have double when a bin
 *     that was full is refilled. They are closed if the footprint grows although they hold much, and stay small until
 *     the next tick.
 * V8: in libhakmem-secure malloc always pops from runs. cache_swap fills them with blocks of the bin, in random order,
 *     but for those that were freed last, and with the heap's blocks, in the order of their addresses. While the
 *     profile draws, class_of is 0, so that each call misses.
 * T8: counted is RUN_BINS while calls are counted, for samples (profile/profile.h) or for HAKMEM_FRONT_STATS, else 0;
 *     class_of has it added. A class's hits are those of ended runs and what the run in progress has served. While
 *     counted is not 0, malloc pops from runs[c], which only slow calls fill: slots[run_base + 1 .. top] are blocks
 *     like T3's. free still pushes onto bins[c]. A run begins with run_count[c] blocks; each hit lowers its top by one.
 * T9: a thread in a scope has the retired cache, so its calls miss, and slow calls allocate in cache_scope(). `kept`
 *     leads to its own cache, which takes what it frees, in a scope or not. cache_set_scope alone changes the scope. A
 *     signal handler that enters a scope and leaves it may interrupt that anywhere.
 */
#ifndef HAK_FRONT_THREAD_CACHE_H
#define HAK_FRONT_THREAD_CACHE_H

#include "config/classes.h"
#include "front/flushes.h"
#include "harden/spans.h"
#include "pool/heap.h"
#include "profile/draw.h"
#include "superslab/window.h"

struct bin {
    uint16_t top, limit; /* indices of slots; limit - base is the capacity */
};

#define RUN_BINS 64u
/* In run_want: the length stays as it is while the bin has enough blocks and room. */
#define RUN_STEADY 0x80u

struct thread_cache {
    union {
        struct bin places[2 * RUN_BINS]; /* by class + counted, as class_of has it */
        struct {
            struct bin bins[RUN_BINS]; /* by class */
            struct bin runs[RUN_BINS]; /* T8 */
        };
    };
    uint8_t class_of[FAST_MAX / BLOCK_ALIGN + 1]; /* by (size + 15) / 16 */
    struct heap *heap;                          /* serves the cache: own or shared (O8); NULL: empty or retired cache */
    size_t capacity_bytes;                      /* capacity * block size, summed over the bins that are not deep */
    size_t deep_bytes;                          /* capacity * block size, summed over the deep bins */
    uint32_t slow_calls;
    uint32_t tick;              /* cache_flush_number() when the cache was last flushed */
    uint32_t hand;              /* cache_shrink_next looks at the first open bin from this class on */
    uint64_t open;              /* a bit for each class whose capacity is not 0 */
    uint8_t busy[CLASS_COUNT];  /* times that the hand passes the bin before it closes it; slow calls reset it */
    uint8_t overflows[CLASS_COUNT]; /* of the bin since its last refill */
    uint16_t seen[CLASS_COUNT];     /* blocks in the bin after its last slow call */
    uint16_t base[CLASS_COUNT];     /* the slot below the class's stack, in the stack's place */
    /* For the heap profile. */
    uint32_t counted;               /* T8 */
    uint8_t run_count[CLASS_COUNT]; /* T8 */
    uint8_t run_want[CLASS_COUNT];  /* the next run's length (run_next), and RUN_STEADY */
    uint32_t generation;            /* of the profile that the cache follows (Z3) */
    size_t deep_most;            /* bytes that deep bins may have; 0: DEEP_FIRST_BYTES */
    bool deep_refrain;           /* the footprint grew: no more than DEEP_FIRST_BYTES until the next tick */
    uint8_t deep_refused;        /* the class of the last bin that was flushed because it was full */
    uint16_t deep_refused_at;    /* when that was, by deep_time() */
    uint32_t growths;            /* shared_pool.growths when deep bins were last looked at */
    struct waiting_peaks peaks;  /* of the heap's used_bytes (N10) */
    bool deep_room;              /* the cache has memory for deep bins */
    bool deep_touched;           /* some of that memory may have been written */
    uint32_t scrub_unit;         /* the unit from which slabs are still to be scrubbed; 0: none (N10) */
    struct draw draw;
    struct stack_memory *stacks;
    struct heap *own;               /* the thread's heap, which holds the cache's memory */
    struct labels *labels;
    /* For libhakmem-secure. */
    struct spans spans;
    uint64_t chance;              /* harden_chance */
    /* The slots come last, the smallest classes' first, so that a thread with a few small blocks touches one page. */
    union {
        void *slots[CACHE_SLOTS_DEEP]; /* T7: most caches end at CACHE_BYTES */
        struct {
            void *before[CACHE_SLOTS_FIRST];
            struct countdowns countdowns;
        };
    };
};

#define CACHE_BYTES                                                                                                    \
    (offsetof(struct thread_cache, slots) +                                                                            \
     (size_t)CACHE_SLOTS_COUNTED * sizeof(void *))

_Static_assert(offsetof(struct thread_cache, slots) + sizeof(void *) <= 4096,
               "W3: the empty cache is read in its first page");
_Static_assert(sizeof(struct countdowns) <= COUNTDOWN_SLOTS * sizeof(void *),
               "countdowns have their slots");
_Static_assert(CLASS_COUNT <= RUN_BINS, "every class has a bin");

HAK_DATA _Thread_local uintptr_t hak_cache_offset __attribute__((tls_model("initial-exec")));

/* The offset for C++ operators. It stays 0 in a process whose operators go to another object's functions, so that each
 * operator misses without a test on its fast path (api/interposed.h). Elsewhere the first miss sets it to
 * hak_cache_offset. */
HAK_DATA _Thread_local uintptr_t hak_operator_offset __attribute__((tls_model("initial-exec")));

struct cache_scope { /* T9 */
    struct scope *scope; /* pool/scope.h */
    uintptr_t kept;      /* hak_cache_offset outside scopes */
};
/* NULL until the thread enters a scope (front/within.c). A pointer, because static thread-local storage is short for a
 * library that dlopen loads. */
HAK_DATA _Thread_local struct cache_scope *hak_cache_scope __attribute__((tls_model("initial-exec")));

HAK_INLINE struct scope *cache_scope(void) { return hak_cache_scope ? hak_cache_scope->scope : NULL; }

/* These two alone move a thread to another cache: to its own one, or away from it. Operators follow after one miss. */
HAK_INLINE void cache_set_current(uintptr_t offset)
{
    if (hak_cache_scope)
        hak_cache_scope->kept = offset;
    if (cache_scope())
        return;
    hak_operator_offset = 0;
    hak_cache_offset = offset;
}
HAK_INLINE void cache_set_scope(struct scope *scope)
{
    if (!hak_cache_scope) /* the thread was in no scope yet */
        return;
    hak_cache_scope->scope = scope;
    atomic_signal_fence(memory_order_seq_cst); /* Release: a handler that enters and leaves sets the same offset */
    hak_cache_offset = scope ? WINDOW_RETIRED_CACHE : hak_cache_scope->kept;
    hak_operator_offset = 0;
}

HAK_INLINE struct thread_cache *cache_current(void)
{
    return (struct thread_cache *)(window_base() + hak_cache_offset);
}

/* The thread's own cache, also in a scope. */
HAK_INLINE uintptr_t cache_own_offset(void) { return hak_cache_scope ? hak_cache_scope->kept : hak_cache_offset; }
HAK_INLINE struct thread_cache *cache_own(void)
{
    return (struct thread_cache *)(window_base() + cache_own_offset());
}

/* Atomic, because observers read other threads' tops at any time. Release: a fork that finds a raised top finds the
 * entry (T4). */
HAK_INLINE void bin_set_top(struct bin *bin, size_t top)
{
    __atomic_store_n(&bin->top, (uint16_t)top, __ATOMIC_RELEASE);
}

/* The number of entries in the class's bin. For another thread's cache: as of some moment, under its heap's lock. */
HAK_INLINE unsigned cache_count(const struct thread_cache *cache, unsigned class)
{
    return __atomic_load_n(&cache->bins[class].top, __ATOMIC_RELAXED) - (unsigned)cache->base[class];
}

HAK_INLINE unsigned cache_run_left(const struct thread_cache *cache, unsigned class)
{
    return __atomic_load_n(&cache->runs[class].top, __ATOMIC_RELAXED) - (unsigned)size_classes[class].run_base;
}

/* Atomic, because observers read them, as they read tops. */
HAK_INLINE void cache_set_seen(struct thread_cache *cache, unsigned class, unsigned count)
{
    __atomic_store_n(&cache->seen[class], (uint16_t)count, __ATOMIC_RELAXED);
}

HAK_INLINE void cache_set_run_count(struct thread_cache *cache, unsigned class, unsigned count)
{
    __atomic_store_n(&cache->run_count[class], (uint8_t)count, __ATOMIC_RELAXED);
}

/* Adds the hits of another thread's cache that it has not counted yet. Under the lock of the cache's own heap. */
HAK_HIDDEN void cache_add_hits(const struct thread_cache *cache, struct class_counters *classes);

/* All blocks of the class in the cache. For another thread's cache: under its heap's lock. */
HAK_INLINE unsigned cache_blocks(const struct thread_cache *cache, unsigned class)
{
    return cache_count(cache, class) + cache_run_left(cache, class) +
           (HAK_SECURE && class_is_span(class) ? spans_count(&cache->spans, class) : 0);
}

/* The cache of a heap's thread; NULL: none is in use. Under heap->lock. */
HAK_INLINE const struct thread_cache *cache_of(const struct heap *heap)
{
    return heap->cache_purged == MEMORY_IN_USE ? __atomic_load_n(&heap->cache, __ATOMIC_ACQUIRE) : NULL;
}

/* Adds the blocks of another thread's cache to blocks[], by class, if it is in use and the heap, whose lock is held,
 * serves it (T4). The other function is for a cache that a shared heap may serve (O8). It takes that heap's lock. */
HAK_HIDDEN bool cache_add_blocks(const struct thread_cache *cache, const struct heap *heap, size_t *blocks);
HAK_HIDDEN void cache_add_shared_blocks(const struct thread_cache *cache, size_t *blocks);

HAK_INLINE bool cache_counts(const struct thread_cache *cache) { return !HAK_SECURE && cache->counted != 0; }

/* Makes `heap` serve the cache of a new thread with the heap `own`: zeroed, or as another thread left it. */
HAK_HIDDEN void cache_serve_from(struct thread_cache *cache, struct heap *own, struct heap *heap);

/* Makes `own` serve the cache. Returns the heap that served it before; NULL: the cache was not in use. */
HAK_HIDDEN struct heap *cache_serve_itself(struct thread_cache *cache);

/* Refills the stack from which malloc takes, which is empty, and returns a block. *zero: the block reads as zero. NULL
 * when memory is out. */
HAK_HIDDEN void *cache_refill(struct thread_cache *cache, unsigned class, bool *zero);

/* Takes back a block whose stack is full: grows or flushes the stack. */
HAK_HIDDEN void cache_overflow(struct thread_cache *cache, unsigned class, void *block);

/* Pops the top entry of a stack that is not empty. */
HAK_INLINE void *cache_pop(struct thread_cache *cache, struct bin *bin)
{
    void *block = cache->slots[bin->top];

    bin_set_top(bin, bin->top - 1u);
    return block;
}

/* The length of the class's next run. */
HAK_INLINE unsigned cache_run_length(const struct thread_cache *cache, unsigned class)
{
    return cache->run_want[class] & ~RUN_STEADY;
}

/* Begins a run with the bin's newest `moved` blocks and the `got` ones that already lie there: pops and pushes (T4). */
HAK_INLINE void cache_fill_run(struct thread_cache *cache, unsigned class, unsigned base, unsigned moved, unsigned got)
{
    unsigned top = cache->bins[class].top - moved;

    bin_set_top(&cache->bins[class], top);
    __builtin_memcpy(&cache->slots[base + got + 1], &cache->slots[top + 1], moved * sizeof(void *));
    cache_set_run_count(cache, class, got + moved);
    bin_set_top(&cache->runs[class], base + got + moved);
}

/* Counts `served` calls that found a block in the cache, and the frees that brought `back` blocks. */
HAK_INLINE void cache_note_hits(struct thread_cache *cache, unsigned class, unsigned served, unsigned back)
{
    struct class_counters *counters = &cache->own->classes[class]; /* needs no lock; a shared heap's would (O8) */

    __atomic_store_n(&counters->malloc_hits, counters->malloc_hits + served, __ATOMIC_RELAXED);
    __atomic_store_n(&counters->free_hits, counters->free_hits + back, __ATOMIC_RELAXED);
}

/* The same for the calls of a run, the current one among them. */
HAK_INLINE void cache_note_run(struct thread_cache *cache, unsigned class, unsigned served, unsigned back)
{
    cache->draw.calls += served;
    cache_note_hits(cache, class, served, back);
}

/* Whether a class of large blocks needs no run yet. A run costs less than calls without one only if several calls pass
 * before a block comes back. */
HAK_INLINE bool cache_stays_runless(struct thread_cache *cache, unsigned class, unsigned back)
{
    uint8_t *alone = &cache->countdowns.alone[class];

    if (back == 0 && *alone >= RUN_ALONE)
        return false;
    *alone = back ? 0 : (uint8_t)(*alone + 1);
    return true;
}

/* As cache_serve_steady, for a class that has no run. */
HAK_INLINE void *cache_serve_runless(struct thread_cache *cache, unsigned class)
{
    unsigned top = cache->bins[class].top, count = top - cache->base[class];
    void *block = cache->slots[top];
    int back = (int)(count - cache->seen[class]);
    int64_t left;

    if (HAK_UNLIKELY(block == NULL || back < 0 || cache->run_count[class] != 0))
        return NULL;
    if (!cache_stays_runless(cache, class, (unsigned)back))
        return NULL;
    if (HAK_UNLIKELY(cache->overflows[class] || cache->busy[class] == 0 || cache->tick != cache_flush_number()))
        return NULL;
    left = cache->countdowns.left[class] - (int64_t)class_size(class);
    if (HAK_UNLIKELY(left < 0))
        return NULL;
    cache->countdowns.left[class] = left;
    cache_note_run(cache, class, 1, (unsigned)back);
    cache_set_seen(cache, class, count - 1);
    bin_set_top(&cache->bins[class], top - 1);
    return block;
}

/* Serves a call of a counted class (T8) in the usual case: a run has ended; the bin has this call's block and most of
 * those of the next run, which is to be as long; no call among them is a sample; no other work waits. Else returns NULL
 * and changes nothing. It loads each value only when the tests before have passed, so that it needs few registers. */
HAK_INLINE void *cache_serve_steady(struct thread_cache *cache, unsigned class)
{
    unsigned length = cache->run_want[class] - RUN_STEADY, top, count, base, served;
    int64_t size, left;
    int back;
    void *block;

    top = cache->bins[class].top;
    count = top - cache->base[class];
    if (HAK_UNLIKELY(length >= count)) {
        if (length / 2 >= count) /* the heap must fill the run, or the length is not steady */
            return NULL;
        length = count - 1;
    }
    served = cache->run_count[class] + 1u;
    back = (int)(count - cache->seen[class]);
    if (HAK_UNLIKELY(back < 0))
        return NULL;
    if (HAK_UNLIKELY(cache->overflows[class] || cache->busy[class] == 0))
        return NULL;
    base = cache->runs[class].top;
    if (HAK_UNLIKELY(cache->slots[base] != NULL || cache->tick != cache_flush_number()))
        return NULL;
    size = (int64_t)class_size(class);
    left = cache->countdowns.left[class] - size * served;
    if (HAK_UNLIKELY(left < size * length))
        return NULL;
    cache->countdowns.left[class] = left;
    cache_note_run(cache, class, served, (unsigned)back);
    cache_set_seen(cache, class, count - 1 - length);
    block = cache->slots[top];
    bin_set_top(&cache->bins[class], top - 1);
    cache_fill_run(cache, class, base, length, 0);
    return block;
}

/* As cache_serve_steady, while lengths change. */
HAK_HIDDEN void *cache_serve_counted(struct thread_cache *cache, unsigned class);

/* Counts the calls that the class's run, now empty, served, and the current one. True: this one is a sample of the
 * weight. */
HAK_HIDDEN bool cache_end_run(struct thread_cache *cache, unsigned class, uint64_t *weight);

/* The thread and how many calls for blocks it has made while calls are counted (T8), those of its runs included. */
struct caller;
HAK_HIDDEN struct caller cache_caller(const struct thread_cache *cache);

/* Fills the class's run if it is empty, from its bin and then from the heap, with no more blocks than calls may pass
 * before the next sample. */
HAK_HIDDEN void cache_begin_run(struct thread_cache *cache, unsigned class);

/* Counts a free that found no room in the cache. The statistics count the free of a sample as one. */
HAK_INLINE void cache_note_overflow(struct thread_cache *cache, unsigned class)
{
    uint64_t *overflows = &cache->heap->classes[class].overflows;

    if (HAK_LIKELY(cache->heap == cache->own))
        __atomic_store_n(overflows, *overflows + 1, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(overflows, 1, __ATOMIC_RELAXED);
}

HAK_HIDDEN bool cache_is_empty(const struct thread_cache *cache);

/* Another thread has a heap now: makes the thread with deep bins close them on its next slow call (T7). */
HAK_HIDDEN void cache_want_no_deep(void);

/* Returns the blocks in deep bins, and closes these (T7). Only for the cache's thread, without its heap's lock. */
HAK_HIDDEN void cache_close_deep(struct thread_cache *cache);

/* As cache_close_deep, if the footprint has grown since the last look and deep bins exceed HAKMEM_CACHE_BYTES. */
HAK_HIDDEN void cache_note_growth(struct thread_cache *cache);
HAK_INLINE void cache_follow_growth(struct thread_cache *cache)
{
    if (HAK_UNLIKELY(cache->deep_bytes != 0) && cache->growths != shared_pool_growths())
        cache_note_growth(cache);
}

/* In the child of a fork: if the cache's shared heap is lost (O7), `own` serves the cache. Samples are drawn anew. */
HAK_HIDDEN void cache_reset_in_child(struct thread_cache *cache);

/* Returns every cached block to its slab. `close`: capacities go back to 0. */
HAK_HIDDEN void cache_flush_all(struct thread_cache *cache, bool close);

#endif
