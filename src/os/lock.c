/* The slow side of a lock: a short spin, then a sleep in the kernel; and the checks of L1 in debug builds. */
#include "os/lock.h"

#include "base/format.h"

enum {
    LOCK_SPIN_MOST = 100, /* looks at the word before a thread goes to sleep, at most */
    LOCK_HELD_MOST = 8,   /* locks one thread may hold at a time: more than there are ranks */
};

/* About twice the number of looks that were needed lately. Races on it lose an update and nothing else. */
static _Atomic uint32_t spin_estimate = 10;
static _Atomic uint32_t cpu_count; /* 0: not asked yet */

HAK_INLINE void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

static bool spin_can_help(void)
{
    uint32_t count = atomic_load_explicit(&cpu_count, memory_order_relaxed);
    if (count == 0) {
        count = os_cpu_count();
        atomic_store_explicit(&cpu_count, count, memory_order_relaxed);
    }
    return count > 1;
}

static bool lock_spin(struct lock *lock)
{
    uint32_t estimate = atomic_load_explicit(&spin_estimate, memory_order_relaxed);
    uint32_t most = (uint32_t)base_min(2 * estimate + 10, LOCK_SPIN_MOST), looks = 0;
    bool taken = false;
    while (looks < most && !taken) {
        looks++;
        cpu_relax();
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0) {
            uint32_t expected = 0;
            taken = atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                            memory_order_relaxed);
        }
    }
    int32_t step = ((int32_t)looks - (int32_t)estimate) / 8;
    atomic_store_explicit(&spin_estimate, (uint32_t)((int32_t)estimate + step), memory_order_relaxed);
    return taken;
}

void lock_acquire_slow(struct lock *lock)
{
    if (spin_can_help() && lock_spin(lock))
        return;
    /* Taken as 2 from here on: whether another thread still sleeps is not known, and a needless wake is harmless. */
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        os_futex_wait(&lock->state, 2, UINT64_MAX);
}

void lock_release_slow(struct lock *lock)
{
    os_futex_wake(&lock->state, 1);
}

/* ---- L1, in debug builds only: a release build has no use of `held`, and so no thread-local storage for it ---- */

static _Thread_local struct {
    const struct lock *locks[LOCK_HELD_MOST];
    unsigned count;
} held;

void lock_rank_push(const struct lock *lock, bool tried)
{
    if (!HAK_DEBUG)
        return;
    for (unsigned i = 0; i < held.count; i++) {
        const struct lock *other = held.locks[i];
        if (other == lock)
            base_message("lock %p of rank %u is taken twice by one thread", (const void *)lock, lock->rank);
        HAK_CHECK(other != lock);
        if (!tried && other->rank >= lock->rank)
            base_message("a lock of rank %u is taken under one of rank %u", lock->rank, other->rank);
        HAK_CHECK(tried || other->rank < lock->rank);
    }
    HAK_CHECK(held.count < LOCK_HELD_MOST);
    held.locks[held.count++] = lock;
}

void lock_rank_pop(const struct lock *lock)
{
    unsigned i = 0;
    if (!HAK_DEBUG)
        return;
    while (i < held.count && held.locks[i] != lock)
        i++;
    if (i == held.count)
        base_message("lock %p of rank %u is released by a thread that does not hold it", (const void *)lock, lock->rank);
    HAK_CHECK(i < held.count);
    held.locks[i] = held.locks[--held.count];
}
