/* Protects superslab/limits.h and superslab/footprint.h: when limits are read, their values, and N1 to N3.
 *
 * N1 to N3 say which memory is given back before the footprint grows. test_huge_cache.c has N2 for huge blocks. */
#include "core.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "superslab/footprint.h"
#include "superslab/limits.h"
#include "superslab/metadata.h"
#include "superslab/purge.h"
#include "superslab/ranges.h"

bool limits_await_sandbox = false;

#define RUN_UNITS (SUPERSLAB_UNITS - 1)

static void second_passes(void) { fake_advance(1000 * MILLISECOND); }

/* ---- Reading ---- */

/* Without an option a static program reads the limits once, at its start. */
static void test_default_without_limit(void)
{
    core_begin();
    limits_begin();
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(limits_soft(), 0);
    assert_int_equal(limits_hard(), 0);
    for (unsigned i = 0; i < 10; i++) {
        second_passes();
        purge_run(true);
        assert_true(shared_pool_charge_huge(20 * HAK_MIB));
    }
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_false(atomic_load(&shared_pool.over_soft_limit));
}

/* The smaller of memory.max and memory.high is a soft limit. Pressure has no effect. */
static void test_default_with_limit(void)
{
    fake_set_memory_bounds(1000 * HAK_MIB, 30 * HAK_MIB, 100);
    core_begin();
    limits_begin();
    assert_int_equal(limits_soft(), 30 * HAK_MIB / 100 * 90);
    assert_int_equal(limits_hard(), 0);
    assert_false(limits_pressed());
    fake_set_memory_bounds(800 * HAK_MIB, 500 * HAK_MIB, 100);
    second_passes();
    purge_run(true);
    assert_true(shared_pool_charge_huge(UNIT_SIZE));
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_false(atomic_load(&shared_pool.over_soft_limit));
    assert_true(shared_pool_charge_huge(30 * HAK_MIB));
    assert_true(atomic_load(&shared_pool.over_soft_limit));
}

/* With limits_await_sandbox set, a small process opens no file. */
static void test_default_is_read_late(void)
{
    limits_await_sandbox = true;
    fake_set_memory_bounds(1000 * HAK_MIB, 30 * HAK_MIB, 0);
    core_begin();
    limits_begin();
    assert_true(shared_pool_charge_huge(LIMITS_LATE_BYTES / 2));
    purge_run(true);
    assert_int_equal(fake_memory_bounds_read(), 0);
    assert_int_equal(limits_soft(), 0);
    assert_true(shared_pool_charge_huge(LIMITS_LATE_BYTES));
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(limits_soft(), 30 * HAK_MIB / 100 * 90);
    limits_before_sandbox();
    assert_int_equal(fake_memory_bounds_read(), 1);
}

static void test_default_is_read_late_for_units(void)
{
    struct slab *slab;

    limits_await_sandbox = true;
    core_begin();
    limits_begin();
    for (size_t held = 0; held <= LIMITS_LATE_BYTES; held += RUN_UNITS * UNIT_SIZE) {
        assert_int_equal(fake_memory_bounds_read(), 0);
        core_acquire(RUN_UNITS, 1, 1, &slab);
    }
    core_acquire(RUN_UNITS, 1, 1, &slab);
    assert_int_equal(fake_memory_bounds_read(), 1);
}

static void test_default_is_read_before_a_sandbox(void)
{
    limits_await_sandbox = true;
    core_begin();
    limits_begin();
    assert_int_equal(fake_memory_bounds_read(), 0);
    limits_before_sandbox();
    assert_true(shared_pool_charge_huge(20 * HAK_MIB));
    assert_int_equal(fake_memory_bounds_read(), 1);
}

static void test_auto_hard(void)
{
    hak_options.memory_limit = LIMIT_AUTO;
    fake_set_memory_bounds(8 * HAK_MIB, 4 * HAK_MIB, 0);
    core_begin();
    assert_true(shared_pool_charge_huge(6 * HAK_MIB)); /* the limit is read before the first byte */
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(limits_hard(), 8 * HAK_MIB);
    assert_false(shared_pool_charge_huge(2 * HAK_MIB));
    fake_set_memory_bounds(20 * HAK_MIB, SIZE_MAX, 0);
    assert_false(shared_pool_charge_huge(2 * HAK_MIB));
    second_passes();
    assert_true(shared_pool_charge_huge(2 * HAK_MIB));
    assert_int_equal(fake_memory_bounds_read(), 2);
}

/* A soft limit of `auto` is read again even without a limit. Under pressure free memory does not wait. */
static void test_auto_soft_heeds_pressure(void)
{
    struct slab *slabs[8];

    hak_options.memory_limit_soft = LIMIT_AUTO;
    core_begin();
    core_acquire(1, 1, 8, slabs);
    assert_int_equal(fake_memory_bounds_read(), 1);
    fake_set_memory_bounds(SIZE_MAX, SIZE_MAX, LIMITS_STALL_PERCENT - 1);
    second_passes();
    purge_run(false);
    assert_int_equal(fake_memory_bounds_read(), 2);
    assert_false(limits_pressed());
    for (unsigned i = 0; i < 4; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    assert_int_equal(purge_run(false), 0);
    fake_set_memory_bounds(SIZE_MAX, SIZE_MAX, LIMITS_STALL_PERCENT);
    second_passes();
    assert_int_equal(purge_run(false), 4 * UNIT_SIZE);
    assert_true(limits_pressed());
    core_touch(slabs[4]);
    core_release(slabs[4]);
    assert_true(shared_pool_charge_huge(2 * HAK_MIB));
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_true(shared_pool_charge_huge(2 * HAK_MIB)); /* nothing to give back: calls the pressure handler */
    assert_true(atomic_load(&shared_pool.over_soft_limit));
    fake_set_memory_bounds(SIZE_MAX, SIZE_MAX, 0);
    second_passes();
    purge_run(false);
    assert_false(limits_pressed());
}

static void test_numbers_read_no_file(void)
{
    hak_options.memory_limit_soft = 0;
    fake_set_memory_bounds(HAK_MIB, HAK_MIB, 100);
    core_begin();
    assert_true(shared_pool_charge_huge(100 * HAK_MIB));
    second_passes();
    purge_run(true);
    assert_true(shared_pool_charge_huge(100 * HAK_MIB));
    assert_int_equal(fake_memory_bounds_read(), 0);
    hak_options.memory_limit_soft = 300 * HAK_MIB;
    hak_options.memory_limit = 400 * HAK_MIB;
    assert_int_equal(limits_soft(), 300 * HAK_MIB);
    assert_int_equal(limits_hard(), 400 * HAK_MIB);
    assert_false(limits_pressed());
}

/* X1: one thread at a time reads the limits. A reader that a fork lost is waited for at most a minute. */
static void test_one_reads(void)
{
    hak_options.memory_limit = LIMIT_AUTO;
    fake_set_memory_bounds(HAK_GIB, SIZE_MAX, 0);
    core_begin();
    atomic_store(&limits.reading, (uint32_t)(os_now_coarse() / 1000000) | 1);
    limits_read();
    assert_int_equal(fake_memory_bounds_read(), 0);
    fake_advance((LIMITS_READING_MS + 1) * MILLISECOND);
    limits_read();
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(limits_hard(), HAK_GIB);
    second_passes();
    limits_read();
    assert_int_equal(fake_memory_bounds_read(), 2);
}

/* ---- The footprint ---- */

static size_t unit_bytes(void)
{
    return (shared_pool.units_used + shared_pool.units_dirty + shared_pool.headers) * UNIT_SIZE;
}

static void test_account(void)
{
    size_t metadata, before;
    struct slab *slabs[40];

    core_begin();
    metadata = shared_pool.metadata_touched;
    assert_in_range(metadata, 1, metadata_bytes());
    core_acquire(1, 1, 40, slabs);
    assert_int_equal(shared_pool.headers, 2);
    assert_int_equal(shared_pool_footprint(), 42 * UNIT_SIZE + metadata);
    assert_true(shared_pool_charge_huge(3 * UNIT_SIZE));
    assert_int_equal(shared_pool_footprint(), 45 * UNIT_SIZE + metadata);
    footprint_huge_waits(2 * UNIT_SIZE);
    assert_int_equal(footprint_waiting(), 2 * UNIT_SIZE);
    footprint_huge_taken(UNIT_SIZE);
    footprint_huge_leaves(UNIT_SIZE);
    assert_int_equal(footprint_waiting(), 0);
    assert_int_equal(shared_pool_footprint(), 45 * UNIT_SIZE + metadata); /* N4 */
    footprint_huge_left(UNIT_SIZE);
    assert_int_equal(shared_pool_footprint(), 44 * UNIT_SIZE + metadata);
    assert_int_equal(footprint_waiting(), 0);
    for (unsigned i = 0; i < 40; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    assert_int_equal(shared_pool_footprint(), 44 * UNIT_SIZE + metadata);
    purge_run(true);
    assert_int_equal(shared_pool_footprint(), 2 * UNIT_SIZE + metadata);
    before = metadata_bytes();
    assert_non_null(metadata_allocate(100, 16));
    assert_int_equal(metadata_bytes(), before);
    assert_int_equal(shared_pool.metadata_touched, metadata + 100);
    footprint_metadata_purged(100);
    assert_int_equal(shared_pool.metadata_touched, metadata);
    core_check_pool();
}

/* N4: a refused request waits for memory that another thread is giving back, and no longer. */
static void *leave_later(void *unused)
{
    (void)unused;
    usleep(30000);
    footprint_huge_left(4 * HAK_MIB);
    return NULL;
}

/* A request waits a second at most. Returns false if it was refused after that time: the other thread had no processor
 * for so long. */
static bool served_in_time(bool served, const struct timespec *since)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!served)
        assert_true((now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000 >= 900);
    return served;
}

static void test_refused_waits(void)
{
    pthread_t other;
    struct timespec start;
    struct slab *slab;
    bool served;

    core_begin();
    alarm(UNIT_HANG);
    hak_options.memory_limit = shared_pool_footprint() + 4 * HAK_MIB;
    assert_true(shared_pool_charge_huge(4 * HAK_MIB));
    assert_false(shared_pool_charge_huge(UNIT_SIZE));
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slab), 0);
    shared_pool_uncharge_huge(4 * HAK_MIB);
    do {
        assert_true(shared_pool_charge_huge(4 * HAK_MIB));
        footprint_huge_waits(4 * HAK_MIB);
        footprint_huge_leaves(4 * HAK_MIB);
        assert_int_equal(pthread_create(&other, NULL, leave_later, NULL), 0);
        clock_gettime(CLOCK_MONOTONIC, &start);
        served = served_in_time(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slab) == 1, &start);
        pthread_join(other, NULL);
    } while (!served);
    core_release(slab);
    do {
        footprint_leaves(4 * HAK_MIB);
        assert_int_equal(pthread_create(&other, NULL, leave_later, NULL), 0);
        clock_gettime(CLOCK_MONOTONIC, &start);
        served = served_in_time(shared_pool_charge_huge(2 * HAK_MIB), &start);
        pthread_join(other, NULL);
    } while (!served);
    alarm(0);
    /* The child of a fork forgets the bytes that another thread of the parent was giving back. */
    footprint_leaves(4 * HAK_MIB);
    assert_false(shared_pool_charge_huge(HAK_MIB));
    footprint_reset_after_fork();
    assert_true(shared_pool_charge_huge(HAK_MIB));
}

enum { MANY = 32 * RUN_UNITS };

/* Takes and frees `units` units, so that the peak is theirs. */
static size_t make_peak(struct slab **slabs, size_t units)
{
    size_t live;

    core_acquire(1, 1, units, slabs);
    live = shared_pool_footprint();
    for (size_t i = 0; i < units; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    return live;
}

/* Spans that fit no freed unit take fresh memory. Freed units leave meanwhile in few calls; the footprint stays. */
static void test_growth_gives_back(void)
{
    static struct slab *slabs[MANY], *spans[MANY / 2];
    size_t live, most = 0;
    uint64_t calls;

    core_begin();
    live = make_peak(slabs, MANY);
    /* Every second unit stays free, so that no two free units are neighbours. */
    core_acquire(1, 1, MANY, slabs);
    for (size_t i = 0; i < MANY; i += 2)
        core_release(slabs[i]);
    calls = fake_calls(FAKE_PURGE);
    for (size_t i = 0; i < MANY / 4; i++) {
        core_acquire(2, 1, 1, &spans[i]);
        core_touch(spans[i]);
        most = base_max(most, shared_pool_footprint());
    }
    /* Half stayed live, so the wide bound applies. */
    assert_in_range(most, live, live + live / 4 + FOOTPRINT_SPARE);
    /* The free units do not touch, so each takes one call, and each leaves at most once. */
    assert_in_range(fake_calls(FAKE_PURGE) - calls, 1, MANY / 2);
    core_check_pool();
    core_check_untouched();
}

/* After nearly all was freed, whole SuperSlabs leave, several in one call. */
static void test_change_gives_back(void)
{
    static struct slab *slabs[MANY];
    size_t live, mapped = 0;
    uint64_t calls;

    core_begin();
    live = make_peak(slabs, MANY);
    calls = fake_calls(FAKE_PURGE);
    while (mapped < live) {
        assert_true(shared_pool_charge_huge(HAK_MIB));
        mapped += HAK_MIB;
        assert_true(shared_pool_footprint() <=
                    base_max(live, mapped) + live / 8 + FOOTPRINT_SPARE / 2 + SUPERSLAB_SIZE);
    }
    assert_in_range(fake_calls(FAKE_PURGE) - calls, 1, 20);
    core_check_pool();
    core_check_untouched();
}

/* Waiting memory that is used again is not given back, however large it is. */
static void test_reuse_gives_nothing_back(void)
{
    static struct slab *slabs[MANY];

    core_begin();
    make_peak(slabs, MANY);
    for (unsigned round = 0; round < 10; round++)
        make_peak(slabs, MANY);
    assert_int_equal(fake_calls(FAKE_PURGE), 0);
    assert_int_equal(shared_pool.purged_bytes, 0);
}

/* When no memory waits, growth gives nothing back. */
static void test_growth_alone_gives_nothing_back(void)
{
    static struct slab *slabs[MANY];

    core_begin();
    core_acquire(1, 1, MANY, slabs);
    assert_int_equal(fake_calls(FAKE_PURGE), 0);
    assert_int_equal(fake_calls(FAKE_UNMAP), 0);
}

/* N3: a peak that is two purge delays old is forgotten. */
static void test_peak_decays(void)
{
    static struct slab *slabs[MANY];
    size_t live;

    core_begin();
    live = make_peak(slabs, MANY);
    assert_int_equal(base_max(shared_pool.live_peak, shared_pool.live_peak_before), live);
    purge_run(false);
    assert_int_equal(base_max(shared_pool.live_peak, shared_pool.live_peak_before), live);
    fake_advance(hak_options.purge_delay * MILLISECOND);
    purge_run(false);
    fake_advance(hak_options.purge_delay * MILLISECOND);
    purge_run(false);
    assert_true(base_max(shared_pool.live_peak, shared_pool.live_peak_before) < live / 8);
}

/* Memory that the system refuses to take stays accounted, and no request waits for it. */
static void test_refused(void)
{
    static struct slab *slabs[MANY];
    size_t held;

    core_begin();
    make_peak(slabs, MANY);
    held = shared_pool_footprint();
    fake_fail_from(FAKE_PURGE, 1);
    assert_int_equal(purge_make_room(held), 0);
    assert_true(shared_pool_charge_huge(MANY * UNIT_SIZE));
    assert_int_equal(shared_pool_footprint(), held + MANY * UNIT_SIZE);
    core_check_pool();
    fake_fail_nothing();
    assert_true(purge_make_room(SIZE_MAX) >= MANY * UNIT_SIZE);
    assert_int_equal(footprint_waiting(), 0);
    assert_int_equal(purge_make_room(SIZE_MAX), 0);
    core_check_pool();
}

/* Freed ranges and free units leave in order of age. */
static void test_oldest_first(void)
{
    static struct slab *slabs[4 * RUN_UNITS];
    char *range = os_map(8 * HAK_MIB, UNIT_SIZE);

    core_begin();
    assert_true(shared_pool_charge_huge(8 * HAK_MIB));
    make_peak(slabs, 4 * RUN_UNITS);
    fake_advance(20 * MILLISECOND);
    ranges_put(range, 8 * HAK_MIB);
    assert_true(purge_make_room(HAK_MIB) >= HAK_MIB);
    assert_int_equal(shared_pool.huge_waiting, 8 * HAK_MIB);
    assert_int_equal(shared_pool.units_dirty, 3 * RUN_UNITS);
    purge_make_room(3 * RUN_UNITS * UNIT_SIZE);
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_int_equal(shared_pool.huge_waiting, 8 * HAK_MIB);
    /* The other way round: the range is older, and a part of it is enough. */
    fake_advance(20 * MILLISECOND);
    make_peak(slabs, 4 * RUN_UNITS);
    purge_make_room(HAK_MIB);
    assert_int_equal(shared_pool.huge_waiting, 7 * HAK_MIB);
    assert_int_equal(range_cache.bytes, 7 * HAK_MIB);
    assert_int_equal(shared_pool.units_dirty, 4 * RUN_UNITS);
    assert_int_equal(unit_bytes(), (4 * RUN_UNITS + 4) * UNIT_SIZE);
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_default_without_limit),
        core_unit_test(test_default_with_limit),
        core_unit_test(test_default_is_read_late),
        core_unit_test(test_default_is_read_late_for_units),
        core_unit_test(test_default_is_read_before_a_sandbox),
        core_unit_test(test_auto_hard),
        core_unit_test(test_auto_soft_heeds_pressure),
        core_unit_test(test_numbers_read_no_file),
        core_unit_test(test_one_reads),
        core_unit_test(test_account),
        core_unit_test(test_refused_waits),
        core_unit_test(test_growth_gives_back),
        core_unit_test(test_change_gives_back),
        core_unit_test(test_reuse_gives_nothing_back),
        core_unit_test(test_growth_alone_gives_nothing_back),
        core_unit_test(test_peak_decays),
        core_unit_test(test_refused),
        core_unit_test(test_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
