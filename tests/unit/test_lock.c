/* Protects os/lock.h: mutual exclusion, sleeping and waking, and the rank checks of debug builds.
 *
 * Built twice: on Linux, and on the fake OS as a one-CPU machine, where no thread spins. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "os/fake.h"
#include "os/lock.h"

#ifndef UNIT_ONE_CPU
#define UNIT_ONE_CPU 0
#endif

enum { THREADS = 4, ROUNDS = 20000 };

static struct lock lock = LOCK_INIT(LOCK_RANK_POOL);
static uint64_t counter, shadow;
static _Atomic unsigned tries;

static void *count(void *rounds)
{
    for (size_t i = 0; i < (size_t)(uintptr_t)rounds; i++) {
        lock_acquire(&lock);
        uint64_t before = counter;
        counter = before + 1;
        if (i % 64 == 0)
            sched_yield(); /* holds the lock while others want it */
        shadow = before + 1;
        lock_release(&lock);
    }
    return NULL;
}

static void test_exclusion(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, (void *)(uintptr_t)ROUNDS), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter, THREADS * ROUNDS);
    assert_int_equal(shadow, THREADS * ROUNDS);
    assert_false(lock_is_held(&lock));
    assert_int_equal(atomic_load(&lock.state), 0);
}

static void *try_and_sleep(void *argument)
{
    bool *tried = argument;
    errno = 4711;
    *tried = lock_try(&lock);
    atomic_fetch_add(&tries, 1);
    if (*tried)
        lock_release(&lock);
    lock_acquire(&lock);
    counter++;
    lock_release(&lock);
    return errno == 4711 ? NULL : argument;
}

static void test_try_and_sleepers(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    bool tried[THREADS] = { false };
    void *ended;
    counter = 0;
    assert_true(lock_try(&lock));
    assert_true(lock_is_held(&lock));
    for (size_t i = 0; i < THREADS; i++) {
        tried[i] = true;
        assert_int_equal(pthread_create(&threads[i], NULL, try_and_sleep, &tried[i]), 0);
    }
    /* Waits until all have tried and one sleeps, which the lock's word says. */
    while (atomic_load(&tries) != THREADS || !(atomic_load(&lock.state) & LOCK_SLEEPERS))
        sched_yield();
    struct timespec pause = { 0, 20000000 };
    nanosleep(&pause, NULL);
    assert_int_equal(counter, 0);
    lock_release(&lock);
    for (size_t i = 0; i < THREADS; i++) { /* each is woken in turn */
        pthread_join(threads[i], &ended);
        assert_null(ended);
        assert_false(tried[i]);
    }
    assert_int_equal(counter, THREADS);
    assert_int_equal(atomic_load(&lock.state), 0);
}

static struct lock registry = LOCK_INIT(LOCK_RANK_REGISTRY), heap, heap_two, pool = LOCK_INIT(LOCK_RANK_POOL);

/* ---- Fork ---- */

static struct lock contended = LOCK_INIT(LOCK_RANK_HEAP);
static _Atomic int sleeper_id; /* the thread that went to sleep last */

static void *acquire_waits(void *unused)
{
    sleeper_id = gettid();
    lock_acquire(&contended);
    lock_release(&contended);
    return unused;
}

static pthread_t start_sleeper(void *(*run)(void *))
{
    pthread_t thread;
    unsigned long looks = 0;

    sleeper_id = 0;
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    /* Waits until the thread sleeps on the lock: LOCK_SLEEPERS tells that apart from waiting for a processor. */
    while (!sleeper_id || !(contended.state & LOCK_SLEEPERS) || !thread_sleeps(sleeper_id) || looks++ < 100)
        usleep(1000);
    return thread;
}

/* Tokens of threads that the next two tests make up. */
enum { ONE_HOLDER = 8, NEXT_HOLDER = 16 };

/* The holder releases the lock after the fork has slept once. The one thread that it wakes is the fork. */
static void holder_releases(void) { atomic_store(&contended.state, 0); }

/* A fork that slept keeps LOCK_SLEEPERS in the lock that it gets: another thread may still sleep. */
static void test_fork_keeps_sleepers(void **state)
{
    struct lock_patience patience = { .wait_ns = UINT64_MAX, .delayed = holder_releases };

    (void)state;
    atomic_store(&contended.state, ONE_HOLDER);
    assert_int_equal(lock_take_for_fork(&contended, &patience), LOCK_TAKEN);
    assert_null(patience.delayed);
    assert_true(lock_is_mine(&contended));
    assert_int_equal(contended.state & LOCK_FLAGS, LOCK_FORK | LOCK_SLEEPERS);
    lock_leave_fork(&contended);
    assert_int_equal(contended.state, 0);
    /* Nobody waits for a lock that is free. */
    assert_int_equal(lock_take_for_fork(&contended, &patience), LOCK_TAKEN);
    assert_int_equal(contended.state & LOCK_FLAGS, LOCK_FORK);
    lock_leave_fork(&contended);
}

/* The same, and another thread takes the lock at once. It knows of no sleeper. The fork must step back now. */
static void holder_passes(void)
{
    atomic_store(&contended.state, NEXT_HOLDER);
    lock_note_interrupted(1);
}

/* A fork that steps back wakes the next sleeper, whose wake it may have had. That thread then announces itself. */
static void test_fork_gives_wake(void **state)
{
    struct lock_patience patience = { .wait_ns = UINT64_MAX, .delayed = holder_passes };
    pthread_t sleeper;

    (void)state;
    alarm(UNIT_HANG);
    atomic_store(&contended.state, ONE_HOLDER);
    sleeper = start_sleeper(acquire_waits);
    assert_int_equal(lock_take_for_fork(&contended, &patience), LOCK_STEP_BACK);
    lock_note_interrupted(-1);
    while (!(contended.state & LOCK_SLEEPERS))
        usleep(1000);
    assert_int_equal(atomic_exchange(&contended.state, 0), NEXT_HOLDER | LOCK_SLEEPERS);
    lock_pass_on(&contended);
    pthread_join(sleeper, NULL);
    alarm(0);
    assert_int_equal(contended.state, 0);
}

static _Atomic bool in_handler, may_pass, second_done;

static void fork_in_handler(int number)
{
    (void)number;
    in_handler = true;
    while (!may_pass)
        usleep(1000);
    lock_pass_on(&contended);
    while (!second_done)
        usleep(1000);
}

static void *second_waits(void *unused)
{
    acquire_waits(unused);
    second_done = true;
    return unused;
}

/* A release wakes a thread whose signal handler forks. The next sleeper gets the lock before the handler returns. */
static void test_fork_passes_wake(void **state)
{
    struct sigaction action = { .sa_handler = fork_in_handler };
    pthread_t first, second;

    (void)state;
    alarm(UNIT_HANG);
    sigaction(SIGUSR1, &action, NULL);
    lock_acquire(&contended);
    first = start_sleeper(acquire_waits);
    second = start_sleeper(second_waits);
    pthread_kill(first, SIGUSR1);
    while (!in_handler)
        usleep(1000);
    if (HAK_DEBUG)
        lock_rank_pop(&contended);
    atomic_store(&contended.state, 0); /* a release, which wakes `first` */
    may_pass = true;
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    alarm(0);
    assert_int_equal(contended.state, 0);
}

static _Atomic bool marked, unmark;

static void *hold_marked(void *unused)
{
    lock_acquire(&contended);
    lock_mark_outer(&contended);
    marked = true;
    while (!unmark)
        usleep(1000);
    lock_leave_fork(&contended);
    lock_release(&contended);
    return unused;
}

/* Two forks each interrupted the allocator and hold a marked lock. A fork gives up soon on a lock that another fork
 * marked. */
static void test_fork_leaves_marked(void **state)
{
    const uint64_t most = UINT64_C(100000000000);
    struct lock_patience patience = { .wait_ns = most };
    pthread_t holder;

    (void)state;
    alarm(UNIT_HANG);
    if (UNIT_ONE_CPU)
        fake_advance_reading(1000000);
    assert_int_equal(pthread_create(&holder, NULL, hold_marked, NULL), 0);
    while (!marked)
        usleep(1000);
    assert_int_equal(lock_take_for_fork(&contended, &patience), LOCK_NOT_TAKEN);
    assert_true(patience.wait_ns > most / 2);
    unmark = true;
    pthread_join(holder, NULL);
    alarm(0);
    if (UNIT_ONE_CPU)
        fake_advance_reading(0);
    assert_int_equal(contended.state, 0);
}

static struct lock wanted = LOCK_INIT(LOCK_RANK_HEAP);
static _Atomic bool has_lock, give_lock;

static void *hold_wanted(void *marks)
{
    lock_acquire(&wanted);
    if (marks)
        lock_mark_outer(&wanted);
    has_lock = true;
    while (!give_lock)
        usleep(1000);
    if (marks)
        lock_leave_fork(&wanted);
    lock_release(&wanted);
    return NULL;
}

static void give_wanted(void) { give_lock = true; }

/* Waits without a bound, as a fork does, for a lock that another thread holds. Returns the result. */
static enum lock_taken fork_takes(bool is_marked)
{
    struct lock_patience patience = { .wait_ns = UINT64_MAX, .delayed = give_wanted };
    enum lock_taken taken;
    pthread_t holder;

    has_lock = give_lock = false;
    assert_int_equal(pthread_create(&holder, NULL, hold_wanted, is_marked ? &wanted : NULL), 0);
    while (!has_lock)
        usleep(1000);
    taken = lock_take_for_fork(&wanted, &patience);
    if (taken == LOCK_TAKEN)
        lock_leave_fork(&wanted);
    give_lock = true;
    pthread_join(holder, NULL);
    assert_int_equal(wanted.state, 0);
    return taken;
}

/* A fork steps back from a marked lock. It steps back from any lock that it must wait for while another fork is under
 * way that interrupted the allocator. When that fork has ended, or in a child, it waits for its turn. */
static void test_fork_steps_back(void **state)
{
    (void)state;
    alarm(UNIT_HANG);
    assert_int_equal(fork_takes(false), LOCK_TAKEN);
    assert_int_equal(fork_takes(true), LOCK_STEP_BACK);
    lock_note_interrupted(1);
    assert_int_equal(fork_takes(false), LOCK_STEP_BACK);
    lock_note_interrupted(-1);
    assert_int_equal(fork_takes(false), LOCK_TAKEN);
    lock_note_interrupted(1);
    lock_no_interrupted();
    assert_int_equal(fork_takes(false), LOCK_TAKEN);
    alarm(0);
}

static void test_order_kept(void **state)
{
    (void)state;
    lock_init(&heap, LOCK_RANK_HEAP);
    lock_init(&heap_two, LOCK_RANK_HEAP);
    lock_acquire(&registry);
    lock_acquire(&heap);
    assert_true(lock_try(&heap_two)); /* lock_try may break the order */
    lock_acquire(&pool);
    lock_release(&heap); /* locks may be released in any order */
    lock_release(&pool);
    lock_release(&registry);
    lock_release(&heap_two);
    assert_false(lock_is_held(&registry) || lock_is_held(&heap) || lock_is_held(&heap_two) || lock_is_held(&pool));
    lock_acquire(&heap); /* the thread's set of held locks is empty again */
    lock_release(&heap);
}

static void take_upwards(void)
{
    lock_acquire(&pool);
    lock_acquire(&registry);
}

static void take_equal_rank(void)
{
    lock_init(&heap, LOCK_RANK_HEAP);
    lock_init(&heap_two, LOCK_RANK_HEAP);
    lock_acquire(&heap);
    lock_acquire(&heap_two);
}

static void take_twice(void)
{
    lock_acquire(&pool);
    lock_acquire(&pool);
}

static void release_without(void)
{
    lock_release(&pool);
}

static void test_order_broken(void **state)
{
    (void)state;
    assert_aborts(take_upwards, "a lock of rank 4 is taken under one of rank 8");
    assert_aborts(take_equal_rank, "a lock of rank 5 is taken under one of rank 5");
    assert_aborts(take_twice, "is taken twice by one thread");
    assert_aborts(release_without, "released by a thread that does not hold it");
}

/* A release build does not check the order. */
static void test_order_unchecked(void **state)
{
    (void)state;
    assert_int_equal(signal_of(take_upwards), 0);
    assert_int_equal(signal_of(take_equal_rank), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exclusion),
        cmocka_unit_test(test_try_and_sleepers),
        cmocka_unit_test(test_fork_keeps_sleepers),
        cmocka_unit_test(test_fork_gives_wake),
        cmocka_unit_test(test_fork_passes_wake),
        cmocka_unit_test(test_fork_leaves_marked),
        cmocka_unit_test(test_fork_steps_back),
        cmocka_unit_test(test_order_kept),
        cmocka_unit_test(HAK_DEBUG ? test_order_broken : test_order_unchecked),
    };
    if (UNIT_ONE_CPU)
        fake_set_cpu_count(1);
    lock_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
