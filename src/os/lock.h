/*
 * Locks with ranks. A lock is one word; without contention it costs one compare-exchange and never enters the kernel.
 *
 * L1 (rank order): a thread takes locks in ascending rank only; debug builds check it at every lock_acquire.
 * L2 (no calls out): nothing that may call user code or another library runs under a lock.
 */
#ifndef HAK_OS_LOCK_H
#define HAK_OS_LOCK_H

#include "os/os.h"

/* Outer to inner: a thread that holds one may take those below it. */
enum lock_rank {
    LOCK_RANK_PROFILE_CONTROL = 1, /* the profile is started, stopped or written */
    LOCK_RANK_REGISTRY,     /* the list of heaps, thread birth and death */
    LOCK_RANK_HEAP,         /* one heap: its slabs' local maps and lists; a second heap's by lock_try only */
    LOCK_RANK_HUGE,         /* huge blocks and their cache of freed ranges */
    LOCK_RANK_META,         /* the metadata arena */
    LOCK_RANK_POOL,         /* shared pool, page map, purge */
    LOCK_RANK_PROFILE,      /* the profile's tables */
    LOCK_RANK_COUNT
};

struct lock {
    _Atomic uint32_t state; /* 0 free, 1 held, 2 held and someone sleeps */
    uint32_t rank;          /* enum lock_rank */
};

#define LOCK_INIT(rank_) { 0, (rank_) }

HAK_HIDDEN void lock_acquire_slow(struct lock *lock);
HAK_HIDDEN void lock_release_slow(struct lock *lock);
/* Debug builds: keep the calling thread's set of held ranks and check L1. */
HAK_HIDDEN void lock_rank_push(const struct lock *lock, bool tried);
HAK_HIDDEN void lock_rank_pop(const struct lock *lock);

HAK_INLINE void lock_init(struct lock *lock, enum lock_rank rank)
{
    atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
    lock->rank = rank;
}

HAK_INLINE void lock_acquire(struct lock *lock)
{
    uint32_t expected = 0;
    if (HAK_DEBUG)
        lock_rank_push(lock, false);
    if (HAK_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                              memory_order_relaxed)))
        lock_acquire_slow(lock);
}

/* Takes the lock if it is free; a try may break rank order because it never waits. */
HAK_INLINE bool lock_try(struct lock *lock)
{
    uint32_t expected = 0;
    bool taken = atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                         memory_order_relaxed);
    if (HAK_DEBUG && taken)
        lock_rank_push(lock, true);
    return taken;
}

HAK_INLINE void lock_release(struct lock *lock)
{
    if (HAK_DEBUG)
        lock_rank_pop(lock);
    if (HAK_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
        lock_release_slow(lock);
}

/* For fork alone, which takes every lock there is, many of one rank: its order is the order of the ranks and, within one, of
 * creation. */
HAK_INLINE void lock_acquire_for_fork(struct lock *lock)
{
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong(&lock->state, &expected, 1))
        lock_acquire_slow(lock);
}

HAK_INLINE void lock_release_after_fork(struct lock *lock)
{
    if (atomic_exchange(&lock->state, 0) == 2)
        lock_release_slow(lock);
}

/* Holds in whoever calls it; for assertions only. */
HAK_INLINE bool lock_is_held(const struct lock *lock)
{
    return atomic_load_explicit(&((struct lock *)lock)->state, memory_order_relaxed) != 0;
}

#endif
