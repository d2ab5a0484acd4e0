/*
 * The forking thread holds every lock when the process is copied, so every structure is whole in the child. The caches
 * are whole by T4. The child's other threads are gone: their heaps become orphans, with the blocks in their caches, and
 * the next threads take them as they are.
 *
 * Fork handlers of other libraries and of the C library run while the locks are held. The forking thread may allocate
 * and free in them (L3), and does no housekeeping. Threads that hold the C library's lock of streams may wait for one
 * of these locks, so fork takes that lock first (os_streams_lock).
 *
 * A signal handler that forks may have interrupted the allocator. It keeps the interrupted operation's locks, and waits
 * for others no longer than FORK_PATIENCE_NS: a thread that holds one of them may wait for a kept one. A lock that it
 * did not get is free in the child, and a heap whose lock it did not get is lost there (O7). Before it waits, it marks
 * the kept locks and announces itself (lock_note_interrupted). Another thread's fork that would wait meanwhile gives
 * back all locks and begins anew.
 *
 * The child loses what vanished threads held in registers: at most one batch of blocks a thread, and the units that
 * were being purged. A slab that such a thread had announced and not pushed yet (H4) is pushed in the child (M4),
 * unless the fork interrupted the allocator. Every fork waits for process_lock no longer than FORK_PATIENCE_NS, too:
 * its holder may print, and the print may wait for a reader. A child that did not get it initialises anew.
 */
#include "front/fork.h"

#include "base/stderr.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/purge_thread.h"
#include "front/thread.h"
#include "front/unwinder.h"
#include "front/within.h"
#include "os/cycles.h"
#include "os/threads.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "profile/guard.h"
#include "profile/profile.h"
#include "superslab/metadata.h"

/* How long a fork waits for process_lock, and for all other locks together if it interrupted the allocator. */
#define FORK_PATIENCE_NS UINT64_C(200000000)
/* How long a fork that stepped back waits before it tries again. */
#define STEP_BACK_NS UINT64_C(1000000)

/* The locks of ranks before and behind the heaps', in rank order. for_all adds process_lock and the heaps'. */
static struct lock *const outer_locks[] = { &profile_control, &registry.lock };
static struct lock *const inner_locks[] = { &huge_lock, &metadata_lock, &shared_pool.lock, &profile_lock,
                                           &guard_report_lock, &guard_lock };

enum { OUTER = sizeof outer_locks / sizeof outer_locks[0], INNER = sizeof inner_locks / sizeof inner_locks[0] };

static struct heap *first_heap(void)
{
    return __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE);
}

/* Calls `act` for every lock until it returns false: process_lock first, the others in the order of ranks. */
static bool for_all(bool (*act)(struct lock *lock, void *argument), void *argument)
{
    if (!act(&process_lock, argument))
        return false;
    for (unsigned i = 0; i < OUTER; i++)
        if (!act(outer_locks[i], argument))
            return false;
    for (struct heap *heap = first_heap(); heap; heap = heap->next)
        if (!act(&heap->lock, argument))
            return false;
    for (unsigned i = 0; i < INNER; i++)
        if (!act(inner_locks[i], argument))
            return false;
    return true;
}

/* Marks the lock if the calling thread holds it: a signal handler that interrupted the allocator forks. */
static bool mark(struct lock *lock, void *interrupted)
{
    if (lock_is_mine(lock)) {
        lock_mark_outer(lock);
        *(bool *)interrupted = true;
    }
    return true;
}

/* The signal may have come after a release woke this thread and before it took the lock. Another thread that sleeps on
 * the free lock may hold one that the fork waits for. */
static bool wake_one(struct lock *lock, void *unused)
{
    (void)unused;
    lock_pass_on(lock);
    return true;
}

static void wake_all_locks(void)
{
    for_all(wake_one, NULL);
}

struct patience {
    struct lock_patience process, others;
};

static bool take(struct lock *lock, void *argument)
{
    struct patience *patience = argument;

    return lock_take_for_fork(lock, lock == &process_lock ? &patience->process : &patience->others) != LOCK_STEP_BACK;
}

static bool leave_lock(struct lock *lock, void *unused)
{
    (void)unused;
    lock_leave_fork(lock);
    return true;
}

/* Whether the fork that holds the lock of streams interrupted the allocator. */
static bool fork_interrupted;

static void fork_prepare(void)
{
    static _Atomic uint32_t never; /* to sleep on. Order: any; nobody stores it */
    bool interrupted = false;
    struct patience patience;

    for_all(mark, &interrupted);
    if (interrupted)
        lock_note_interrupted(1);
    for (;;) {
        patience = (struct patience){
            { FORK_PATIENCE_NS, wake_all_locks },
            { interrupted ? FORK_PATIENCE_NS : UINT64_MAX, wake_all_locks },
        };
        os_streams_lock();
        if (for_all(take, &patience))
            break;
        /* A fork of another thread interrupted the allocator: it goes first. */
        for_all(leave_lock, NULL);
        os_streams_unlock();
        os_futex_wait(&never, 0, STEP_BACK_NS);
    }
    fork_interrupted = interrupted;
    lock_set_in_fork(true);
}

static bool reset(struct lock *lock, void *unused)
{
    (void)unused;
    lock_reset_in_child(lock);
    return true;
}

static void fork_parent(void)
{
    lock_set_in_fork(false);
    if (fork_interrupted)
        lock_note_interrupted(-1);
    for_all(leave_lock, NULL);
    os_streams_unlock();
}

static struct heap *cache_server(const void *cache) { return ((const struct thread_cache *)cache)->heap; }

static void fork_child(void)
{
    /* False if the handler that forks interrupted a change of the registry. */
    bool whole = !lock_is_mine(&registry.lock) || !(atomic_load(&registry.lock.state) & LOCK_OUTER);

    lock_no_interrupted();
    remote_reset_in_child(registry.heaps, !fork_interrupted);
    if (whole)
        registry_reset_in_child(cache_own()->own, cache_server);
    cache_reset_in_child(cache_own());
    within_reset_in_child();
    unwinder_reset_in_child();
    thread_reset_in_child();
    housekeep_reset_in_child();
    control_reset_in_child();
    purge_thread_reset_in_child();
    base_stderr_drop();
    if (HAK_CYCLES)
        cycles_reset_after_fork();
    lock_set_in_fork(false);
    for_all(reset, NULL);
    os_streams_reset_in_child();
}

void fork_register(void)
{
    static _Atomic bool registered; /* Order: any; one thread registers */

    if (!atomic_exchange(&registered, true))
        os_fork_register(fork_prepare, fork_parent, fork_child);
}
