/*
 * The thread cache: for each size class a stack of free blocks. malloc pops, free pushes, both without a lock or an atomic;
 * refill and flush move batches between a stack and the slabs.
 *
 * A thread finds its cache as hak_window + hak_cache_offset. The offset is 0 in a thread that has none yet, or whose thread-local
 * storage was zeroed under it, and then leads to the empty cache at the window's start.
 *
 * T1: the empty and the retired cache are all zeros for ever: every class is 0, and bin 0's stack is empty and full at once. In a
 *     real cache bin 0 is so too. So whatever the fast paths cannot serve ends in their slow paths by the tests they make anyway.
 * T2: slots[bases of all classes] and slots[0] are NULL: popping an empty stack yields NULL.
 * T3: base <= top <= limit <= base + slot_limit for each bin; slots[base + 1 .. top] are its entries: cached blocks, distinct, of the
 *     class, counted as used in their slabs; and tokens (T5).
 * T4: apart from pops and pushes of blocks, a cache changes only under its heap's lock, so that fork finds it whole.
 * T5: a token is an entry that is NULL, a sample of the heap profile (profile/profile.h). tokens[c] are in class c's bin; none, unless
 *     the profile is on or was. Popping one misses (T2), and no block compares equal to it.
 * T6: all tokens of a bin were drawn with the chance of shifts[c] (profile/govern.h).
 */
#ifndef HAK_FRONT_THREAD_CACHE_H
#define HAK_FRONT_THREAD_CACHE_H

#include "config/classes.h"
#include "pool/heap.h"
#include "profile/draw.h"
#include "profile/govern.h"
#include "superslab/window.h"

struct bin {
    uint16_t top, limit; /* indices of slots; limit - base is the capacity */
};

struct thread_cache {
    struct bin bins[64];                        /* by class */
    uint8_t class_of[FAST_MAX / BLOCK_ALIGN + 1]; /* by (size + 15) / 16 */
    struct heap *heap;                          /* NULL in the empty and the retired cache */
    size_t capacity_bytes;                      /* sum over the bins of capacity * block size */
    uint32_t slow_calls;
    uint32_t tick;              /* cache_flush_number() when the cache was last flushed */
    uint32_t hand;              /* the class that shrinking looks at next */
    bool busy[CLASS_COUNT];     /* the bin was on the slow path since the hand passed */
    uint8_t overflows[CLASS_COUNT]; /* of the bin since its last refill */
    uint16_t seen[CLASS_COUNT];     /* blocks in the bin after its last slow call */
    /* For the heap profile. */
    uint8_t tokens[CLASS_COUNT]; /* T5 */
    uint8_t shifts[CLASS_COUNT]; /* T6 */
    uint32_t generation;         /* of the profile, when the cache was last flushed whole */
    struct draw draw;
    struct governor governor;
    struct stack_memory *stacks;
    /* Last, and those of the smallest classes first: what a thread with a few small blocks touches lies in one page. */
    void *slots[CACHE_SLOTS];
};

_Static_assert(offsetof(struct thread_cache, slots) + sizeof(void *) <= 4096, "W3: the empty cache is read in its first page");
_Static_assert(CLASS_COUNT <= 64, "every class has a bin");

HAK_DATA _Thread_local uintptr_t hak_cache_offset __attribute__((tls_model("initial-exec")));

/* The same for C++ operators, in a word of their own: it stays 0 in a process whose operators go to another object's functions, so that
 * each of them misses without a test on its fast path (api/interposed.h). Elsewhere the first miss sets it to hak_cache_offset. */
HAK_DATA _Thread_local uintptr_t hak_operator_offset __attribute__((tls_model("initial-exec")));

/* The only place that moves a thread to another cache. Operators miss once before they follow. */
HAK_INLINE void cache_set_current(uintptr_t offset)
{
    hak_operator_offset = 0;
    hak_cache_offset = offset;
}

HAK_INLINE struct thread_cache *cache_current(void) { return (struct thread_cache *)(window_base() + hak_cache_offset); }

/* Tops are written so that those who count other threads' blocks may read them at any time. */
/* Release: a fork that finds a raised top finds the entry below it, too (T4). */
HAK_INLINE void bin_set_top(struct bin *bin, size_t top) { __atomic_store_n(&bin->top, (uint16_t)top, __ATOMIC_RELEASE); }

/* The entries of the class; of another thread's cache, as of some moment. */
HAK_INLINE unsigned cache_count(const struct thread_cache *cache, unsigned class)
{
    return __atomic_load_n(&cache->bins[class].top, __ATOMIC_RELAXED) - size_classes[class].slot_base;
}

/* Those of them that are blocks. Of another thread's cache: under its heap's lock. */
HAK_INLINE unsigned cache_blocks(const struct thread_cache *cache, unsigned class)
{
    unsigned count = cache_count(cache, class), tokens = cache->tokens[class];
    return count - (count < tokens ? count : tokens);
}

/* Makes each thread flush its cache on its next slow call, as a tick does. Any thread. */
HAK_HIDDEN void cache_want_flush(void);

/* How often that was wanted, and when last (milliseconds of shared_pool_now_ms). */
HAK_DATA _Atomic uint32_t cache_flushes;
HAK_INLINE uint32_t cache_flush_number(void) { return atomic_load_explicit(&cache_flushes, memory_order_acquire); }
HAK_HIDDEN uint32_t cache_flush_wanted_ms(void);

/* Makes a zeroed record an empty cache of the heap. */
HAK_HIDDEN void cache_init(struct thread_cache *cache, struct heap *heap);

/* A block of the class, its stack being empty: refills it. *zero: the block reads as zero. NULL when memory is out, or when the call
 * drew a token (*token), which is gone then. */
HAK_HIDDEN void *cache_refill(struct thread_cache *cache, unsigned class, bool *zero, bool *token);

/* Takes a block back, its stack being full: grows or flushes it. NULL is a token. */
HAK_HIDDEN void cache_overflow(struct thread_cache *cache, unsigned class, void *block);

/* The top entry of a stack that has one: a block, or NULL for a token, which is gone then. */
HAK_HIDDEN void *cache_pop(struct thread_cache *cache, unsigned class);

/* Takes a token back that was drawn with the shift, as free does a block. */
HAK_HIDDEN void cache_put_token(struct thread_cache *cache, unsigned class, unsigned shift);

/* Samples of the class have another chance now: the bin is emptied, so that its entries are drawn anew. */
HAK_HIDDEN void cache_follow_shift(struct thread_cache *cache, unsigned class);

/* Whether no class has an entry. */
HAK_HIDDEN bool cache_is_empty(const struct thread_cache *cache);

/* Returns every cached block to its slab. `close`: capacities go back to 0. */
HAK_HIDDEN void cache_flush_all(struct thread_cache *cache, bool close);

#endif
