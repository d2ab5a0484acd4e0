/* Protects the cycle profile's histogram: each value has one bucket, no wider than a 32nd of its values. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_follow_each_other),
        cmocka_unit_test(test_more_than_all_is_in_the_last),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_the_counter_advances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
