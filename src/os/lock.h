/*
 * Locks with ranks. A lock is one word that names its holder; without contention it costs one compare-exchange and
 * never enters the kernel.
 *
 * L1 (rank order): a thread takes locks in ascending rank only; debug builds check it at every lock_acquire.
 * L2 (no calls out): code that is not HAKMEM's runs under no lock; os/foreign.h marks each place where it may run.
 * L3 (fork): between lock_take_for_fork and lock_leave_fork the forking thread holds every lock. To take and release
 *     one of them again has no effect there, so the thread can allocate and free.
 */
#ifndef HAK_OS_LOCK_H
#define HAK_OS_LOCK_H

#include "os/os.h"

/* Outer to inner: a thread that holds one may take those below it. */
enum lock_rank {
    LOCK_RANK_CONTROL = 1,  /* jemalloc's arenas and figures (je/), in libhakmem-je.so alone */
    LOCK_RANK_INIT,         /* the process is initialised */
    LOCK_RANK_PROFILE_CONTROL, /* the profile is started, stopped or written */
    LOCK_RANK_REGISTRY,     /* the list of heaps, thread birth and death */
    /* one heap: its slabs' local maps, lists and bytes of the page map; a second heap's by lock_try only */
    LOCK_RANK_HEAP,
    LOCK_RANK_HUGE,         /* huge blocks and their cache of freed ranges */
    LOCK_RANK_META,         /* the metadata arena */
    LOCK_RANK_POOL,         /* the shared pool: slots, and which of the window's are committed */
    LOCK_RANK_PROFILE,      /* the profile's tables */
    LOCK_RANK_GUARD_REPORT, /* a report of a guarded block is made */
    LOCK_RANK_GUARD,        /* guarded blocks */
    LOCK_RANK_COUNT
};

struct lock {
    /* 0: free; else the holder's os_thread_token() and enum lock_flag. Order: acquire by the taker, release by the last
     * holder, and any for a fork. Relaxed after a failure, as the caller has not got the lock. */
    _Atomic uint64_t state;
    uint32_t rank;          /* enum lock_rank */
};

/* The low bits of `state`, which a token leaves 0. */
enum lock_flag {
    LOCK_SLEEPERS = 1, /* a thread may sleep until the lock is released */
    LOCK_FORK = 2,     /* held for a fork (L3) */
    LOCK_OUTER = 4,    /* held, too, by an operation that a signal handler interrupted; the handler forks */
    LOCK_FLAGS = 7
};

#define LOCK_INIT(rank_) { 0, (rank_) }

/* Asks how many CPUs there are; with one, no thread spins. The process's initialisation calls it once. Until then
 * threads spin. */
HAK_HIDDEN void lock_begin(void);

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
    uint64_t expected = 0;
    if (HAK_DEBUG)
        lock_rank_push(lock, false);
    if (HAK_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, os_thread_token(),
                                                              memory_order_acquire, memory_order_relaxed)))
        lock_acquire_slow(lock);
}

/* Takes the lock if it is free. A try may break the rank order, because it never waits. */
HAK_INLINE bool lock_try(struct lock *lock)
{
    uint64_t expected = 0;
    bool taken = atomic_compare_exchange_strong_explicit(&lock->state, &expected, os_thread_token(),
                                                         memory_order_acquire, memory_order_relaxed);
    if (HAK_DEBUG && taken)
        lock_rank_push(lock, true);
    return taken;
}

HAK_INLINE void lock_release(struct lock *lock)
{
    uint64_t expected = os_thread_token();
    if (HAK_DEBUG)
        lock_rank_pop(lock);
    if (HAK_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &expected, 0, memory_order_release,
                                                              memory_order_relaxed)))
        lock_release_slow(lock);
}

/* Whether the calling thread holds the lock. Safe in a signal handler. */
HAK_INLINE bool lock_is_mine(const struct lock *lock)
{
    uint64_t state = atomic_load_explicit(&((struct lock *)(uintptr_t)lock)->state, memory_order_relaxed);
    return (state & ~(uint64_t)LOCK_FLAGS) == os_thread_token();
}

/* ---- For fork, which takes every lock: in the order of ranks and, within a rank, of creation ---- */

/* Marks a lock that the interrupted operation holds. A signal handler that forks calls it before it waits for any other
 * lock. */
HAK_HIDDEN void lock_mark_outer(struct lock *lock);

/* Adds `more` to the number of forks under way that interrupted the allocator (negative: forks that are over). Other
 * forks step back for them: the holder of a lock that such a fork waits for may wait for a marked lock. In the child
 * there are none. */
HAK_HIDDEN void lock_note_interrupted(int more);
HAK_HIDDEN void lock_no_interrupted(void);

struct lock_patience {
    uint64_t wait_ns;      /* left to wait for locks; UINT64_MAX is for ever */
    void (*delayed)(void); /* called at the first wait that does not end at once; then set to NULL */
};

/* Waits for at most wait_ns, and reduces it. A caller without a bound steps back while a fork is under way that
 * interrupted the allocator: that fork may wait for this thread's locks. */
enum lock_taken { LOCK_NOT_TAKEN, LOCK_TAKEN, LOCK_STEP_BACK };
HAK_HIDDEN enum lock_taken lock_take_for_fork(struct lock *lock, struct lock_patience *patience);

/* Wakes one thread that sleeps on the lock, if any, so that it looks at the lock again. A release may have woken the
 * forking thread just before a signal interrupted it, so that it did not take the lock, and the other sleepers wait for
 * it. */
HAK_HIDDEN void lock_pass_on(struct lock *lock);

/* In the parent: gives back a lock that lock_take_for_fork took. */
HAK_HIDDEN void lock_leave_fork(struct lock *lock);

/* In the child: frees the lock, unless the interrupted operation of the only thread left holds it. */
HAK_HIDDEN void lock_reset_in_child(struct lock *lock);

/* Whether the calling thread is between lock_take_for_fork and lock_leave_fork or lock_reset_in_child (L3). */
HAK_HIDDEN bool lock_in_fork(void);
/* Notes that the calling thread is there from now on, or no longer. */
HAK_HIDDEN void lock_set_in_fork(bool in_fork);

/* Debug builds: how many locks the calling thread holds. */
HAK_HIDDEN unsigned lock_held_count(void);

/* Whether any thread holds the lock: in the child of a fork, perhaps one that is gone. The answer may be out of date at
 * once, unless no other thread runs. */
HAK_INLINE bool lock_is_held(const struct lock *lock)
{
    return atomic_load_explicit(&((struct lock *)lock)->state, memory_order_relaxed) != 0;
}

#endif
