/* Protects N6: how much free memory may wait for its purge delay. */
#include "heaps.h"

#include "front/fast.h"
#include "front/front.h"
#include "superslab/footprint.h"

/* Batches that exceed the bounds: the first is trimmed, and batches that come again soon find their memory. */
static void test_wanted_again(void)
{
    enum { SPANS = 300, HUGE = 240 };
    static const struct {
        size_t size;
        unsigned count;
    } rows[] = { { 16 * UNIT_SIZE, SPANS }, { 4 * HAK_MIB, HUGE } };
    static void *held[SPANS + HUGE];

    hak_options.thp = OPTION_NEVER;
    for (unsigned row = 0; row < 2; row++) {
        size_t least = SIZE_MAX;
        for (unsigned round = 0; round < 6; round++) {
            for (unsigned i = 0; i < rows[row].count; i++)
                assert_non_null(held[i] = front_malloc(rows[row].size));
            for (unsigned i = 0; i < rows[row].count; i++)
                front_free(held[i]);
            fake_advance(1000000);
            front_free(front_malloc(UNIT_SIZE)); /* a slow call, which does what is due */
            least = shared_pool_footprint();
            if (round == 0)
                assert_in_range(least, 0, rows[row].size * rows[row].count - 8 * HAK_MIB);
        }
        assert_in_range(least, rows[row].size * rows[row].count, SIZE_MAX);
        /* Memory that is unused for a delay leaves, and the bounds return to their first values. */
        for (unsigned i = 0; i < 6; i++) {
            fake_advance(hak_options.purge_delay * 1000000ull);
            front_free(front_malloc(16 * UNIT_SIZE));
            front_free(front_malloc(4 * HAK_MIB));
        }
        assert_in_range(shared_pool_footprint(), 0, 16 * HAK_MIB);
        assert_in_range(shared_pool.may_wait, 0, 16 * HAK_MIB);
    }
}

/* A bound that the user set does not change. */
static void test_bound_that_was_set(void)
{
    static void *held[100];

    hak_options.thp = OPTION_NEVER;
    hak_options.ss_lru_size = 4;
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < 100; i++)
            assert_non_null(held[i] = front_malloc(16 * UNIT_SIZE));
        for (unsigned i = 0; i < 100; i++)
            front_free(held[i]);
        fake_advance(1000000);
        front_free(front_malloc(100));
        assert_in_range(shared_pool_footprint(), 0, 16 * SUPERSLAB_SIZE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_wanted_again),
        core_unit_test(test_bound_that_was_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
