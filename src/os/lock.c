/* The slow path of a lock: a short spin, then a sleep in the kernel. Also the checks of L1 in debug builds. */
#include "os/lock.h"

#include <limits.h>
#include <stdlib.h>

#include "base/format.h"

enum {
    LOCK_SPIN_MOST = 100, /* most looks at the word before a thread sleeps */
    LOCK_HELD_MOST = 6,   /* locks that one thread may hold: those of the deepest call, and one more */
};

/* The average number of looks that threads needed lately. Order: relaxed; a race loses an update. */
static _Alignas(HAK_CACHE_LINE) _Atomic uint32_t spin_estimate = 10;
static _Atomic bool one_cpu; /* Order: relaxed; a hint */

HAK_INLINE void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield" ::: "memory");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f" ::: "memory"); /* pause, which older processors take for a fence of nothing */
#endif
}

void lock_begin(void)
{
    atomic_store_explicit(&one_cpu, os_cpu_count() == 1, memory_order_relaxed);
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
            uint64_t expected = 0;
            taken = atomic_compare_exchange_strong_explicit(&lock->state, &expected, os_thread_token(),
                                                            memory_order_acquire, memory_order_relaxed);
        }
    }
    int32_t step = ((int32_t)looks - (int32_t)estimate) / 8;
    atomic_store_explicit(&spin_estimate, (uint32_t)((int32_t)estimate + step), memory_order_relaxed);
    return taken;
}

/* A futex has 32 bits: the half of the state with the flags. */
static _Atomic uint32_t *lock_word(struct lock *lock)
{
    union {
        uint16_t number;
        uint8_t first;
    } order = { 1 };
    return (_Atomic uint32_t *)(void *)&lock->state + (order.first == 0);
}

/* Sets LOCK_SLEEPERS, and sleeps while the lock's state is `state`. */
static void lock_sleep(struct lock *lock, uint64_t state, uint64_t timeout_ns)
{
    /* Relaxed: the kernel compares the word again before the thread sleeps. */
    if ((state & LOCK_SLEEPERS) ||
        atomic_compare_exchange_strong_explicit(&lock->state, &state, state | LOCK_SLEEPERS, memory_order_relaxed,
                                                memory_order_relaxed))
        os_futex_wait(lock_word(lock), (uint32_t)(state | LOCK_SLEEPERS), timeout_ns);
}

void lock_acquire_slow(struct lock *lock)
{
    uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);

    if (lock_is_mine(lock)) {
        if (state & LOCK_FORK) /* L3 */
            return;
        base_message(
            "a signal handler called the allocator that it interrupted; malloc and free are not async-signal-safe");
        abort();
    }
    if (!atomic_load_explicit(&one_cpu, memory_order_relaxed) && lock_spin(lock))
        return;
    for (;;) {
        state = 0;
        /* From here on this thread cannot know whether another one sleeps; a needless wake is harmless. */
        if (atomic_compare_exchange_strong_explicit(&lock->state, &state, os_thread_token() | LOCK_SLEEPERS,
                                                    memory_order_acquire, memory_order_relaxed))
            return;
        lock_sleep(lock, state, UINT64_MAX);
    }
}

static void lock_open(struct lock *lock)
{
    /* Release: as in lock_release. The exchange also reads LOCK_SLEEPERS, so no sleeper is missed. */
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) & LOCK_SLEEPERS)
        os_futex_wake(lock_word(lock), 1);
}

void lock_release_slow(struct lock *lock)
{
    if (!(atomic_load_explicit(&lock->state, memory_order_relaxed) & LOCK_FORK)) /* L3 */
        lock_open(lock);
}

/* ---- Fork ---- */

void lock_mark_outer(struct lock *lock)
{
    if (atomic_fetch_or(&lock->state, LOCK_FORK | LOCK_OUTER) & LOCK_SLEEPERS)
        os_futex_wake(lock_word(lock), INT_MAX); /* a sleeper may be a fork, which then steps back */
}

#define LOOK_AGAIN_NS UINT64_C(1000000)
/* How long a fork that interrupted the allocator waits for a lock that another such fork has marked. Each may wait for
 * the other's lock, and neither gives back its marked locks before it has forked. */
#define OUTER_PATIENCE_NS UINT64_C(5000000)

static _Atomic uint32_t interrupted_forks; /* Order: any; waiting forks look again every LOOK_AGAIN_NS */

void lock_note_interrupted(int more) { atomic_fetch_add(&interrupted_forks, (uint32_t)more); }

void lock_no_interrupted(void) { atomic_store(&interrupted_forks, 0); }

void lock_pass_on(struct lock *lock) { os_futex_wake(lock_word(lock), 1); }

enum lock_taken lock_take_for_fork(struct lock *lock, struct lock_patience *patience)
{
    uint64_t began = os_now(), limit = patience->wait_ns, state, sleepers = 0;
    enum lock_taken without = LOCK_NOT_TAKEN;

    for (unsigned looks = 0;; looks++) {
        state = 0;
        if (atomic_compare_exchange_strong(&lock->state, &state, os_thread_token() | LOCK_FORK | sleepers))
            return LOCK_TAKEN;
        if ((state & ~(uint64_t)LOCK_FLAGS) == os_thread_token())
            return LOCK_TAKEN; /* marked */
        if (limit == UINT64_MAX && ((state & LOCK_OUTER) || atomic_load(&interrupted_forks))) {
            without = LOCK_STEP_BACK;
            break;
        }
        if (limit != UINT64_MAX) {
            uint64_t waited = os_now() - began;
            patience->wait_ns = waited < limit ? limit - waited : 0;
            if (patience->wait_ns == 0 || ((state & LOCK_OUTER) && waited >= OUTER_PATIENCE_NS))
                break;
        }
        if (looks > 0 && patience->delayed) {
            patience->delayed();
            patience->delayed = NULL;
        }
        /* Nobody wakes this thread when a fork begins for which it must step back. */
        lock_sleep(lock, state, base_min(patience->wait_ns, LOOK_AGAIN_NS));
        sleepers = LOCK_SLEEPERS; /* another thread may sleep, too */
    }
    if (sleepers)
        lock_pass_on(lock); /* a release may have woken this thread, which does not take the lock */
    return without;
}

void lock_leave_fork(struct lock *lock)
{
    uint64_t state = atomic_load(&lock->state);

    if (!lock_is_mine(lock) || !(state & LOCK_FORK))
        return; /* lock_take_for_fork did not get the lock, or the lock is newer */
    if (state & LOCK_OUTER)
        atomic_fetch_and(&lock->state, ~(uint64_t)(LOCK_FORK | LOCK_OUTER));
    else
        lock_open(lock);
}

void lock_reset_in_child(struct lock *lock)
{
    atomic_store(&lock->state, lock_is_mine(lock) && (atomic_load(&lock->state) & LOCK_OUTER) ? os_thread_token() : 0);
}

/* Token of the thread that is in fork, or 0. Order: any; a thread looks for its own token, which only it stores. */
static _Atomic uint64_t forking;

bool lock_in_fork(void)
{
    return HAK_UNLIKELY(atomic_load_explicit(&forking, memory_order_relaxed) == os_thread_token());
}

/* Two threads may be in fork when one of the forks interrupted the allocator and did not get all locks. Then the first
 * of them is noted. */
void lock_set_in_fork(bool in_fork)
{
    uint64_t before = in_fork ? 0 : os_thread_token();

    atomic_compare_exchange_strong(&forking, &before, in_fork ? os_thread_token() : 0);
}

/* ---- L1, in debug builds only: a release build does not use `held`, so it has no thread-local storage for it ---- */

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
        base_message("lock %p of rank %u is released by a thread that does not hold it", (const void *)lock,
                     lock->rank);
    HAK_CHECK(i < held.count);
    held.locks[i] = held.locks[--held.count];
}

unsigned lock_held_count(void)
{
    return HAK_DEBUG ? held.count : 0;
}
