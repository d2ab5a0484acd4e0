/*
 * The forking thread holds every lock when the process is copied, so the child finds every structure whole; the caches are whole by
 * T4. The child's other threads are gone: their heaps become orphans with what is in their caches, and the next threads
 * take them as they are.
 *
 * Handlers of other libraries, and the C library's own work, run while the locks are held: the forking thread allocates and frees
 * there as always (L3), and does no housekeeping. What other threads may hold while they wait for one of these locks, fork must
 * not wait for: it takes the C library's lock of streams before them (os_streams_lock).
 *
 * A signal handler that forks may have interrupted the allocator. It keeps the locks that the interrupted operation holds, and waits
 * for others only so long: a thread that holds one of them may be waiting for one of ours. A lock that it did not get is free in
 * the child. It marks the locks that it keeps before it waits for anything; a fork of another thread that meets such a mark gives
 * back all it has, and begins anew.
 *
 * What a vanished thread held in its registers is lost to the child: at most one batch of blocks a thread, and the units
 * that were being purged.
 *
 * The lock of the initialisation is waited for only so long, too: who initialises may print, and printing may wait for a reader. A
 * child that did not get it initialises anew.
 */
#include "front/fork.h"

#include "base/stderr.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/purge_thread.h"
#include "front/thread.h"
#include "os/cycles.h"
#include "os/threads.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "profile/profile.h"
#include "superslab/metadata.h"

/* How long a fork waits for locks in all where it interrupted the allocator, or a thread is initialising the process. */
#define FORK_PATIENCE_NS UINT64_C(200000000)
/* How long a fork that stepped back waits before it tries again. */
#define STEP_BACK_NS UINT64_C(1000000)

/* Every lock but the heaps', in the order of ranks: those before and those behind the heaps'. */
static struct lock *const outer_locks[] = { &profile_control, &registry.lock };
static struct lock *const inner_locks[] = { &huge_lock, &metadata_lock, &shared_pool.lock, &profile_lock };

enum { OUTER = sizeof outer_locks / sizeof *outer_locks, INNER = sizeof inner_locks / sizeof *inner_locks };

static struct heap *first_heap(void)
{
    return __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE);
}

/* Calls `act` for every lock: the process's, and the others in the order of ranks, until it returns false. */
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

/* Marks the locks that the calling thread holds: a signal handler forks, which interrupted the allocator. */
static bool mark(struct lock *lock, void *interrupted)
{
    if (lock_is_mine(lock)) {
        lock_mark_outer(lock);
        *(bool *)interrupted = true;
    }
    return true;
}

struct patience {
    uint64_t process, others; /* nanoseconds */
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

static void fork_prepare(void)
{
    static _Atomic uint32_t never;
    bool interrupted = false;
    struct patience patience;

    for_all(mark, &interrupted);
    for (;;) {
        patience = (struct patience){ FORK_PATIENCE_NS, interrupted ? FORK_PATIENCE_NS : UINT64_MAX };
        os_streams_lock();
        if (for_all(take, &patience))
            break;
        /* A signal handler forks that interrupted another thread in the allocator: it goes first. */
        for_all(leave_lock, NULL);
        os_streams_unlock();
        os_futex_wait(&never, 0, STEP_BACK_NS);
    }
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
    for_all(leave_lock, NULL);
    os_streams_unlock();
}

static void fork_child(void)
{
    /* Not where a signal handler forked that interrupted a change of the registry. */
    bool whole = !lock_is_mine(&registry.lock) || !(atomic_load(&registry.lock.state) & LOCK_OUTER);

    if (whole)
        registry_reset_in_child(cache_current()->heap);
    thread_reset_in_child();
    housekeep_reset_in_child();
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
    static _Atomic bool registered;

    if (!atomic_exchange(&registered, true))
        os_fork_register(fork_prepare, fork_parent, fork_child);
}
