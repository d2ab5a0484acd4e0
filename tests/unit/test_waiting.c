/* Protects N5 and N6: slabs that thread caches pin, and how much free memory may wait for its purge delay. */
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
            front_free(front_malloc(UNIT_SIZE)); /* a slow call, which does due work */
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

/* Thread caches pin slabs of the last sizes, and a flush was requested just before. The next flush comes in time:
 * memory that the caches pin is not live, and does not raise the bound of N2. */
static void test_flush_waits_for_its_time(void)
{
    enum { BLOCKS = 40000, HUGE = 50 };
    static void *held[BLOCKS];
    size_t most = 0, live;
    uint32_t chance = 1;

    hak_options.thp = OPTION_NEVER;
    shared_pool.attended = true; /* nothing leaves by N7, which asks for flushes of its own */
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_non_null(held[i] = front_malloc(1024 + 64 * (i % 17)));
    live = footprint_live();
    for (unsigned i = BLOCKS; i > 0; i--) {
        unsigned other = (unsigned)((uint64_t)(chance = chance * 1664525 + 1013904223) * i >> 32);
        void *block = held[other];
        held[other] = held[i - 1];
        front_free(block);
    }
    lock_acquire(&shared_pool.lock);
    footprint_want_flush();
    lock_release(&shared_pool.lock);
    assert_true(footprint_take_flush());
    fake_advance(17000000);
    for (unsigned i = 0; i < HUGE; i++) {
        assert_non_null(held[i] = front_malloc(live / HUGE));
        most = base_max(most, shared_pool_footprint());
        fake_advance(1000000);
    }
    assert_in_range(most, live, live + live / 4 + FOOTPRINT_SPARE + HAK_MIB);
    for (unsigned i = 0; i < HUGE; i++)
        front_free(held[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_wanted_again),
        core_unit_test(test_bound_that_was_set),
        core_unit_test(test_flush_waits_for_its_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
