/* Protects the bytes in use that live.c counts without samples, and when it looks at them (Z10). */
#include "heaps.h"

#include <pthread.h>

#include "front/direct.h"
#include "front/fast.h"
#include "front/live.h"
#include "front/sample.h"
#include "front/thread.h"
#include "observe/usage.h"
#include "profile/table.h"

enum { BLOCKS = 600 };
static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];

/* Most blocks are small, some are spans or huge. */
static size_t size_by_chance(void)
{
    size_t kind = chance_below(100);

    return kind == 0 ? 1 + chance_below(4 * HAK_MIB) : kind < 10 ? 1 + chance_below(300000) : 1 + chance_below(2000);
}

/* Adds the new size, without the old one, to *live. */
static void replace(size_t i, size_t *live)
{
    if (blocks[i]) {
        *live -= sizes[i];
        front_free(blocks[i]);
        blocks[i] = NULL;
    }
    if (chance_below(3) == 0)
        return;
    blocks[i] = front_malloc(size_by_chance());
    assert_non_null(blocks[i]);
    sizes[i] = front_usable_size(blocks[i], "test");
    *live += sizes[i];
}

static void *free_half(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < BLOCKS; i += 2) {
        front_free(blocks[i]);
        blocks[i] = NULL;
    }
    return NULL;
}

/* The total is the sum of the blocks' sizes: with blocks in bins and runs, of other heaps, and freed by a thread that
 * ended. mean: of the profile, or 0. */
static void check_total(uint64_t mean)
{
    size_t live = 0;
    pthread_t thread;

    chance_begin();
    core_begin();
    assert_int_equal(front_profile_set(mean), 0);
    front_free(front_malloc(1));
    assert_int_equal(live_total(), 0);
    for (unsigned step = 0; step < 20000; step++) {
        struct usage usage;
        replace(chance_below(BLOCKS), &live);
        if (step % 16)
            continue;
        assert_int_equal(live_total(), live);
        observe_usage(&usage);
        assert_int_equal(usage.live, live);
    }
    assert_int_equal(pthread_create(&thread, NULL, free_half, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    live = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        live += blocks[i] ? sizes[i] : 0;
    assert_int_equal(live_total(), live);
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i])
            front_free(blocks[i]);
    assert_int_equal(live_total(), 0);
}

static void test_total(void) { check_total(0); }
static void test_total_beside_samples(void) { check_total(4096); }
static void test_total_of_samples(void) { check_total(1); }

/* Z10: while blocks are only taken, the peak lacks no more than a 64th and one run. */
static void rise(size_t size)
{
    size_t total = 0, room = front_good_size(size), most = 64 * base_min(room, 2048) + 16 * room;

    core_begin();
    assert_int_equal(front_profile_set(UINT64_C(1) << 40), 0); /* no call is a sample, by all chance */
    front_collect(false);
    while (total < 64 * room || total < 16 * HAK_MIB) {
        assert_non_null(front_malloc(size));
        total += room;
        assert_true(table_peak_bytes() <= total);
        assert_true(table_peak_bytes() + total / 64 + 8 * HAK_KIB + most >= total);
    }
    assert_true(table_peak_bytes() > total - total / 32 - most);
}
static void test_rise_small(void) { rise(48); }
static void test_rise_medium(void) { rise(5000); }
static void test_rise_spans(void) { rise(70000); }

/* The peak is not left behind when less is in use, and rises again with more. */
static void test_falls(void)
{
    enum { COUNT = 2000 };
    static void *held[COUNT];
    size_t peak;

    core_begin();
    assert_int_equal(front_profile_set(UINT64_C(1) << 40), 0);
    front_collect(false);
    for (unsigned i = 0; i < COUNT; i++)
        held[i] = front_malloc(1000);
    live_look();
    peak = table_peak_bytes();
    assert_int_equal(peak, COUNT * front_good_size(1000));
    for (unsigned i = 0; i < COUNT; i++)
        front_free(held[i]);
    for (unsigned i = 0; i < 10 * COUNT; i++)
        front_free(front_malloc(500));
    live_look();
    assert_int_equal(table_peak_bytes(), peak);
    for (unsigned i = 0; i < COUNT; i++)
        held[i] = front_malloc(2000);
    live_look();
    assert_int_equal(table_peak_bytes(), COUNT * front_good_size(2000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_total),        core_unit_test(test_total_beside_samples),
        core_unit_test(test_total_of_samples), core_unit_test(test_rise_small),
        core_unit_test(test_rise_medium),  core_unit_test(test_rise_spans),
        core_unit_test(test_falls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
