/* Protects front/fork.h: a forking thread holds every lock, and a signal handler may fork while its thread waits. */
#define _GNU_SOURCE
#include "heaps.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/fork.h"
#include "front/process.h"
#include "front/purge_thread.h"
#include "front/thread.h"
#include "pool/huge.h"
#include "profile/guard.h"
#include "profile/profile.h"
#include "superslab/metadata.h"
#include "superslab/ranges.h"

static _Atomic int signals, children; /* that came, and that ended well */

static const struct sched_param no_priority;

static void fork_on_signal(int number)
{
    int status;
    pid_t child;

    (void)number;
    atomic_fetch_add(&signals, 1);
    sched_setscheduler(0, SCHED_OTHER, &no_priority);
    child = fork();
    if (child == 0)
        _exit(0);
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0)
        atomic_fetch_add(&children, 1);
}

struct waiter {
    struct lock *outer; /* held while it waits for the pool's lock, or NULL */
    _Atomic int id;
};

static void *wait_for_pool(void *argument)
{
    struct waiter *waiter = argument;

    /* SCHED_IDLE: once woken, it does not run before the thread that woke it sleeps. */
    if (!waiter->outer && sched_setscheduler(0, SCHED_IDLE, &no_priority) != 0)
        return argument;
    if (waiter->outer)
        lock_acquire(waiter->outer);
    atomic_store(&waiter->id, gettid());
    lock_acquire(&shared_pool.lock);
    lock_release(&shared_pool.lock);
    if (waiter->outer)
        lock_release(waiter->outer);
    return NULL;
}

static pthread_t start_waiter(struct waiter *waiter)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, wait_for_pool, waiter), 0);
    for (unsigned looks = 0; !atomic_load(&waiter->id) || !thread_sleeps(atomic_load(&waiter->id)) || looks < 20;
         looks++)
        usleep(1000);
    return thread;
}

/* One release of the pool's lock, and a signal to the thread that it wakes, which may end before the signal comes. */
static void release_and_signal(struct lock *heap_lock)
{
    struct waiter first = { 0 }, second = { .outer = heap_lock };
    pthread_t threads[2];
    void *ended;

    lock_acquire(&shared_pool.lock);
    threads[0] = start_waiter(&first);
    threads[1] = start_waiter(&second);
    lock_release(&shared_pool.lock);
    assert_int_equal(pthread_kill(threads[0], SIGUSR1), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &ended), 0);
        assert_null(ended);
    }
}

/* The release of the pool's lock wakes a thread that forks in a signal handler before it takes the lock. The fork waits
 * for a heap's lock, and that lock's holder sleeps on the pool's lock. No thread may hang. */
static void test_woken_thread_forks(void)
{
    struct sigaction action = { .sa_handler = fork_on_signal };
    struct lock *heap_lock;
    cpu_set_t one;

    heaps_begin();
    heap_lock = &registry_take_heap()->lock;
    fork_register();
    sigaction(SIGUSR1, &action, NULL);
    alarm(UNIT_HANG);
    assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &one) && found++ > 0)
            CPU_CLR(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    while (atomic_load(&signals) == 0)
        release_and_signal(heap_lock);
    assert_int_equal(atomic_load(&children), 1);
    assert_int_equal(atomic_load(&shared_pool.lock.state), 0);
}

static bool prepared;

/* Runs after the allocator's own prepare handler, because it was registered before it. */
static void check_locks(void)
{
    struct lock *const locks[] = { &process_lock,     &profile_control, &registry.lock,     &huge_lock, &metadata_lock,
                                   &shared_pool.lock, &profile_lock,    &guard_report_lock, &guard_lock };

    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        lock_acquire(locks[i]);
        lock_release(locks[i]);
        if (!lock_is_mine(locks[i]))
            fail_msg("the fork does not hold lock %zu", i);
    }
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        assert_true(lock_is_mine(&heap->lock));
    prepared = true;
}

/* L3: the forking thread holds every lock while the process is copied, whatever its handlers take and release, and none
 * afterwards. */
static void test_every_lock_is_held(void)
{
    int status;
    pid_t child;

    heaps_begin();
    assert_non_null(registry_take_heap());
    assert_int_equal(pthread_atfork(check_locks, NULL, NULL), 0);
    fork_register();
    child = fork();
    if (child == 0)
        _exit(lock_is_held(&huge_lock) || lock_is_held(&registry.lock));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(prepared);
    assert_false(lock_is_held(&guard_lock));
}

static void *do_nothing(void *unused) { return unused; }

/* Replaces the purge thread, which would clear much_waits. */
static int start_nothing(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    (void)run, (void)argument;
    return pthread_create(thread, attributes, do_nothing, NULL);
}

/* The child of a fork has no purge thread, and drops the request that started it. */
static void test_no_purge_thread_in_child(void)
{
    int status;
    pid_t child;

    hak_options.purge_thread = OPTION_ALWAYS;
    assert_non_null(thread_cache_get());
    fork_register();
    purge_thread_at_start(start_nothing);
    atomic_store(&shared_pool.much_waits, true);
    assert_true(purge_thread_is_there());
    child = fork();
    if (child == 0)
        _exit((purge_thread_is_there() ? 1 : 0) | (atomic_load(&shared_pool.much_waits) ? 2 : 0));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(purge_thread_is_there());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_woken_thread_forks),
        core_unit_test(test_every_lock_is_held),
        core_unit_test(test_no_purge_thread_in_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
