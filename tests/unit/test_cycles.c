/* Protects the cycle profile: each value has one bucket, no wider than a 32nd of its values; threads count apart. */
#include <pthread.h>

#include "os/cycles.h"
#include "support.h"

static void test_buckets_follow_each_other(void **state)
{
    (void)state;
    for (unsigned bucket = 0; bucket < CYCLES_BUCKETS; bucket++) {
        uint64_t low = cycles_bucket_low(bucket), next = cycles_bucket_low(bucket + 1);
        assert_true(low < next);
        assert_int_equal(cycles_bucket(low), bucket);
        assert_int_equal(cycles_bucket(next - 1), bucket);
        assert_true((next - low - 1) * CYCLES_PER_OCTAVE <= low);
    }
    assert_int_equal(cycles_bucket_low(0), 0);
    assert_int_equal(cycles_bucket_low(CYCLES_BUCKETS), UINT64_C(1) << CYCLES_BITS);
}

static void test_more_than_all_is_in_the_last(void **state)
{
    (void)state;
    assert_int_equal(cycles_bucket(UINT64_C(1) << CYCLES_BITS), CYCLES_BUCKETS - 1);
    assert_int_equal(cycles_bucket(UINT64_MAX), CYCLES_BUCKETS - 1);
}

static void test_quantiles(void **state)
{
    static struct cycles_histogram histogram;
    (void)state;
    assert_int_equal(cycles_quantile(&histogram, 50), 0);
    /* The values 1 to 99, and 10,000 in place of 100. */
    for (unsigned value = 1; value <= 100; value++)
        histogram.buckets[cycles_bucket(value < 100 ? value : 10000)]++;
    histogram.most = 10000;
    assert_int_equal(cycles_count(&histogram), 100);
    assert_int_equal(cycles_quantile(&histogram, 1), 1);
    assert_int_equal(cycles_quantile(&histogram, 50), 50);
    assert_in_range(cycles_quantile(&histogram, 99), 98, 100);
    assert_in_range(cycles_quantile(&histogram, 100), 10000 - 10000 / 64, 10000);
    histogram.most = 60; /* no quantile is above `most` */
    assert_int_equal(cycles_quantile(&histogram, 100), 60);
}

static void test_the_counter_advances(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t before = cycles_now();
        assert_true(cycles_now() >= before);
    }
}

/* ---- Counting ---- */

static uint64_t counted(enum cycles_kind kind, uint64_t *sum, uint64_t *most)
{
    static struct cycles_histogram merged;

    cycles_merge(kind, &merged);
    *sum = merged.sum;
    *most = merged.most;
    return cycles_count(&merged);
}

static void assert_counted(enum cycles_kind kind, uint64_t count, uint64_t sum, uint64_t most)
{
    uint64_t its_sum, its_most;

    assert_int_equal(counted(kind, &its_sum, &its_most), count);
    assert_int_equal(its_sum, sum);
    assert_int_equal(its_most, most);
}

/* Counts what a measurement reads that finds `ticks` beyond those of nothing. */
static void add(uint64_t ticks) { cycles_add(CYCLES_FLUSH, ticks + cycles_overhead.empty_least); }

static void *count_once(void *ticks)
{
    cycles_thread_begin();
    add(*(uint64_t *)ticks);
    cycles_thread_end();
    return NULL;
}

static void count_in_a_thread(uint64_t ticks)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, count_once, &ticks), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A thread without a record counts into the shared one, and counts stay when their threads end. */
static void test_threads_count(void **state)
{
    (void)state;
    cycles_thread_begin(); /* nothing, while the profile is off */
    cycles_reset_after_fork();
    assert_false(cycles_on);
    cycles_start();
    assert_true(cycles_on);
    assert_counted(CYCLES_MALLOC_HIT, 0, 0, 0); /* the measurements of the start are no calls */
    assert_counted(CYCLES_FREE_HIT, 0, 0, 0);
    assert_true(cycles_overhead.empty_least <= cycles_overhead.empty_median);
    assert_true(UNIT_EMULATED || cycles_overhead.call_median > 0); /* an emulator's counter moves rarely */

    add(100);
    add(40);
    assert_counted(CYCLES_FLUSH, 2, 140, 100);
    cycles_thread_begin();
    cycles_thread_begin();
    add(300);
    add(7);
    assert_counted(CYCLES_FLUSH, 4, 447, 300);
    count_in_a_thread(1000);
    count_in_a_thread(1);
    assert_counted(CYCLES_FLUSH, 6, 1448, 1000);
    assert_counted(CYCLES_REFILL, 0, 0, 0);
    cycles_add(CYCLES_FLUSH, 0 - UINT64_C(5)); /* another processor's counter is a little behind */
    assert_counted(CYCLES_FLUSH, 7, 1448, 1000);

    cycles_reset_after_fork();
    assert_counted(CYCLES_FLUSH, 0, 0, 0);
    add(9);
    count_in_a_thread(11);
    assert_counted(CYCLES_FLUSH, 2, 20, 11);
    cycles_thread_end();
    cycles_thread_end();
    add(30);
    assert_counted(CYCLES_FLUSH, 3, 50, 30);
    assert_in_range(cycles_frequency(), 1000000, UINT64_C(20000000000));
}

/* A call counts under the kind that it turned out to be, and a call inside it leaves that unchanged. */
static void test_calls_in_calls(void **state)
{
    uint64_t sum, most;
    struct cycles_scope outer, inner, part;

    (void)state;
    outer = cycles_call_begin(CYCLES_MALLOC_MISS);
    inner = cycles_call_begin(CYCLES_FREE_HIT);
    cycles_call = CYCLES_FREE_MISS;
    cycles_call_end(&inner);
    assert_int_equal(cycles_call, CYCLES_MALLOC_MISS);
    part = cycles_part_begin(CYCLES_DRAIN);
    cycles_part_end(&part);
    cycles_call = CYCLES_MALLOC_HUGE;
    cycles_call_end(&outer);
    assert_int_equal(counted(CYCLES_MALLOC_HUGE, &sum, &most), 1);
    assert_int_equal(counted(CYCLES_FREE_MISS, &sum, &most), 1);
    assert_int_equal(counted(CYCLES_DRAIN, &sum, &most), 1);
    assert_int_equal(counted(CYCLES_MALLOC_MISS, &sum, &most), 0);
    assert_int_equal(counted(CYCLES_FREE_HIT, &sum, &most), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_follow_each_other),
        cmocka_unit_test(test_more_than_all_is_in_the_last),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_the_counter_advances),
        cmocka_unit_test(test_threads_count),
        cmocka_unit_test(test_calls_in_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
