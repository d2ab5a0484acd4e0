/* os/lock.h: mutual exclusion, sleeping and waking, and the rank checks of debug builds. Built twice: on Linux, and on the
 * fake OS as a machine of one CPU, where no thread spins. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
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
            sched_yield(); /* holds it while others come */
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
    /* Until all have tried, and one sleeps; the word says so. */
    while (atomic_load(&tries) != THREADS || !(atomic_load(&lock.state) & LOCK_SLEEPERS))
        sched_yield();
    struct timespec pause = { 0, 20000000 };
    nanosleep(&pause, NULL);
    assert_int_equal(counter, 0);
    lock_release(&lock);
    for (size_t i = 0; i < THREADS; i++) { /* all are woken, one after another */
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
static _Atomic int sleeper_id; /* of the thread that goes to sleep last */

static void *fork_waits(void *unused)
{
    uint64_t patience = UINT64_MAX;

    sleeper_id = gettid();
    assert_true(lock_take_for_fork(&contended, &patience));
    lock_leave_fork(&contended);
    return unused;
}

static void *acquire_waits(void *unused)
{
    sleeper_id = gettid();
    lock_acquire(&contended);
    lock_release(&contended);
    return unused;
}

static bool sleeps(int thread)
{
    char path[64], kind = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &kind), 1);
    fclose(file);
    return kind == 'S';
}

static pthread_t start_sleeper(void *(*run)(void *))
{
    pthread_t thread;
    unsigned long looks = 0;

    sleeper_id = 0;
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    /* Asleep on the lock: it says so in the lock, and is not merely waiting for a processor. */
    while (!sleeper_id || !(contended.state & LOCK_SLEEPERS) || !sleeps(sleeper_id) || looks++ < 100)
        usleep(1000);
    return thread;
}

/* The kernel wakes the first of two sleepers, which is the fork; it wakes the other. */
static void test_fork_wakes_next(void **state)
{
    pthread_t first, next;

    (void)state;
    alarm(120);
    lock_acquire(&contended);
    first = start_sleeper(fork_waits);
    next = start_sleeper(acquire_waits);
    lock_release(&contended);
    pthread_join(first, NULL);
    pthread_join(next, NULL);
    alarm(0);
    assert_int_equal(contended.state, 0);
}

static void test_order_kept(void **state)
{
    (void)state;
    lock_init(&heap, LOCK_RANK_HEAP);
    lock_init(&heap_two, LOCK_RANK_HEAP);
    lock_acquire(&registry);
    lock_acquire(&heap);
    assert_true(lock_try(&heap_two)); /* a try may break the order */
    lock_acquire(&pool);
    lock_release(&heap); /* the order of release is free */
    lock_release(&pool);
    lock_release(&registry);
    lock_release(&heap_two);
    assert_false(lock_is_held(&registry) || lock_is_held(&heap) || lock_is_held(&heap_two) || lock_is_held(&pool));
    lock_acquire(&heap); /* nothing is left behind in the thread's set */
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
    assert_aborts(take_upwards, "a lock of rank 3 is taken under one of rank 7");
    assert_aborts(take_equal_rank, "a lock of rank 4 is taken under one of rank 4");
    assert_aborts(take_twice, "is taken twice by one thread");
    assert_aborts(release_without, "released by a thread that does not hold it");
}

/* A release build checks nothing, and so does not fail here. */
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
        cmocka_unit_test(test_fork_wakes_next),
        cmocka_unit_test(test_order_kept),
        cmocka_unit_test(HAK_DEBUG ? test_order_broken : test_order_unchecked),
    };
    if (UNIT_ONE_CPU)
        fake_set_cpu_count(1);
    lock_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
