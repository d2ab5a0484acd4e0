/* Protects the freed ranges that wait for the next huge block: which one serves, how many bytes wait (B2, B4). */
#include "huge_blocks.h"

#include "superslab/footprint.h"
#include "superslab/metadata.h"
#include "superslab/purge.h"

static void advance(uint64_t milliseconds)
{
    fake_advance(milliseconds * MILLISECOND);
}

static void test_reuse(void)
{
    char *block;
    uint64_t maps;

    core_begin();
    block = huge_take(7 * HAK_MIB);
    maps = fake_calls(FAKE_MAP);
    for (unsigned i = 0; i < 50; i++) {
        huge_give(block);
        assert_ptr_equal(huge_take(7 * HAK_MIB - i * 1000), block);
        assert_int_equal(huge_size(block, NULL), base_align_up(7 * HAK_MIB - i * 1000, UNIT_SIZE));
        huge_give(block);
        assert_ptr_equal(huge_take(7 * HAK_MIB), block);
    }
    assert_int_equal(fake_calls(FAKE_MAP), maps);
    assert_int_equal(fake_calls(FAKE_UNMAP), 0);
}

static void test_best_fit(void)
{
    /* The best fit is neither the first in address order, whichever way addresses grow, nor the range freed first. */
    static const size_t sizes[] = { 5 * HAK_MIB, 8 * HAK_MIB, 4 * HAK_MIB, 3 * HAK_MIB, 6 * HAK_MIB };
    char *blocks[5];
    uint64_t maps;

    core_begin();
    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    huge_take_apart(sizes, 5, blocks);
    for (size_t i = 0; i < 5; i++)
        huge_give(blocks[i]);
    maps = fake_calls(FAKE_MAP);
    assert_ptr_equal(huge_take(4 * HAK_MIB), blocks[2]);
    assert_ptr_equal(huge_take(2 * HAK_MIB), blocks[3]); /* leaves 1 MiB */
    assert_ptr_equal(huge_take(5 * HAK_MIB), blocks[0]);
    assert_ptr_equal(huge_take(2 * HAK_MIB), blocks[4]); /* leaves 4 MiB */
    assert_ptr_equal(huge_take(4 * HAK_MIB), blocks[4] + 2 * HAK_MIB);
    assert_ptr_equal(huge_take(7 * HAK_MIB), blocks[1]); /* leaves 1 MiB */
    assert_int_equal(huge_cached(), 2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_MAP), maps);
    huge_take(2 * HAK_MIB); /* the two ranges of 1 MiB do not touch */
    assert_int_equal(fake_calls(FAKE_MAP), maps + 1);
}

/* B2: a range is cut to size, and its parts join again in whatever order they come back. */
static void test_split_and_join(void)
{
    static const unsigned orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
    };
    char *whole, *parts[3];
    uint64_t maps;

    core_begin();
    whole = huge_take(9 * HAK_MIB);
    maps = fake_calls(FAKE_MAP);
    for (size_t order = 0; order < 6; order++) {
        huge_give(whole);
        for (size_t i = 0; i < 3; i++) {
            parts[i] = huge_take(3 * HAK_MIB);
            assert_ptr_equal(parts[i], whole + i * 3 * HAK_MIB);
        }
        huge_check(3, 9 * HAK_MIB, 0);
        for (size_t i = 0; i < 3; i++)
            huge_give(parts[orders[order][i]]);
        huge_check(0, 0, 9 * HAK_MIB);
        assert_ptr_equal(huge_take(9 * HAK_MIB), whole);
        huge_check(1, 9 * HAK_MIB, 0);
    }
    assert_int_equal(fake_calls(FAKE_MAP), maps);
}

static void test_byte_bound(void)
{
    static const size_t sizes[] = { 6 * HAK_MIB, 4 * HAK_MIB, 5 * HAK_MIB, 3 * HAK_MIB };
    char *blocks[4], *large;

    hak_options.huge_cache = 16 * HAK_MIB;
    core_begin();
    large = huge_take(9 * HAK_MIB);
    huge_take_apart(sizes, 4, blocks);
    for (size_t i = 0; i < 4; i++) {
        huge_give(blocks[i]);
        advance(10);
        assert_true(huge_cached() <= 16 * HAK_MIB);
    }
    /* Only the oldest range, the first, has left. */
    assert_false(huge_covers(blocks[0], false));
    assert_int_equal(huge_cached(), 12 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_UNMAP), 1);
    /* A block above half of the bound does not enter the cache, and evicts nothing. */
    huge_give(large);
    assert_false(huge_covers(large, false));
    assert_int_equal(huge_cached(), 12 * HAK_MIB);
    for (size_t i = 1; i < 4; i++)
        assert_true(huge_covers(blocks[i], false));
    huge_check(4, 4 * UNIT_SIZE, 12 * HAK_MIB);
}

/* The byte bound holds also when many old ranges are small. */
static void test_byte_bound_small_ranges(void)
{
    enum { SMALL = 40, LARGE = 3 };
    size_t sizes[SMALL + LARGE];
    char *blocks[SMALL + LARGE];

    hak_options.huge_cache = 32 * HAK_MIB;
    core_begin();
    for (size_t i = 0; i < SMALL + LARGE; i++)
        sizes[i] = i < SMALL ? UNIT_SIZE : 15 * HAK_MIB;
    huge_take_apart(sizes, SMALL + LARGE, blocks);
    for (size_t i = 0; i < SMALL + LARGE; i++) {
        huge_give(blocks[i]);
        advance(10);
        assert_in_range(huge_cached(), 0, hak_options.huge_cache);
    }
}

/* The footprint that B4 allows for a live peak. The slack is halved once nothing of that peak is live. */
static size_t allowed(size_t peak, bool changed)
{
    size_t slack = peak / 4 + FOOTPRINT_SPARE;
    return peak + (changed ? slack / 2 : slack);
}

/* B4: when no cached range fits, a block is mapped, and ranges leave as far as the sum exceeds the bound. */
static void test_live_bound(void)
{
    enum { BLOCKS = 10, SIZE = 8 * HAK_MIB };
    size_t sizes[BLOCKS], live, mapped = BLOCKS * (SIZE + UNIT_SIZE);
    char *blocks[BLOCKS];

    core_begin();
    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    for (size_t i = 0; i < BLOCKS; i++)
        sizes[i] = SIZE;
    huge_take_apart(sizes, BLOCKS, blocks);
    live = mapped + metadata_bytes();
    for (size_t i = 0; i < BLOCKS; i++)
        huge_give(blocks[i]);
    assert_int_equal(huge_cached(), BLOCKS * SIZE);
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = huge_take(SIZE + (i + 1) * UNIT_SIZE);
        assert_true(shared_pool.huge_bytes <= allowed(live, true));
    }
    assert_true(huge_cached() < BLOCKS * SIZE);
    /* The peak is forgotten after two purge delays. */
    for (size_t i = 0; i < 8; i++)
        huge_give(blocks[i]);
    for (unsigned i = 0; i < 3; i++) {
        advance(hak_options.purge_delay + 1);
        purge_run(false);
        huge_purge(true);
    }
    blocks[0] = huge_take(SIZE);
    blocks[1] = huge_take(3 * SIZE);
    live = 4 * SIZE + BLOCKS * UNIT_SIZE + metadata_bytes();
    huge_give(blocks[1]);
    blocks[1] = huge_take(3 * SIZE + UNIT_SIZE);
    assert_true(shared_pool.huge_bytes <= allowed(live + UNIT_SIZE, false));
}

/* While most memory is live and blocks take turns, ranges wait for a block that fits: nothing is unmapped. */
static void test_turns_are_free(void)
{
    enum { BLOCKS = 10, SIZE = 4 * HAK_MIB };
    size_t sizes[BLOCKS];
    char *blocks[BLOCKS];
    uint64_t unmaps, maps;

    core_begin();
    for (size_t i = 0; i < BLOCKS; i++)
        sizes[i] = SIZE + i % 2 * HAK_MIB;
    huge_take_apart(sizes, BLOCKS, blocks);
    unmaps = fake_calls(FAKE_UNMAP);
    maps = fake_calls(FAKE_MAP);
    for (size_t turn = 0; turn < 1000; turn++) {
        size_t i = turn % BLOCKS;
        huge_give(blocks[i]);
        blocks[i] = huge_take(sizes[i]);
    }
    assert_int_equal(fake_calls(FAKE_UNMAP), unmaps);
    assert_int_equal(fake_calls(FAKE_MAP), maps);
}

/* Free units leave before a block is mapped, and ranges leave before units are touched. */
static void test_sizes_share_the_bound(void)
{
    enum { MEBIBYTES = 64, UNITS = MEBIBYTES * HAK_MIB / UNIT_SIZE };
    static struct slab *slabs[UNITS];
    char *blocks[MEBIBYTES / 4];
    size_t live;

    core_begin();
    core_acquire(1, 1, UNITS, slabs);
    live = shared_pool_footprint();
    for (size_t i = 0; i < UNITS; i++)
        core_release(slabs[i]);
    for (size_t i = 0; i < MEBIBYTES / 4; i++) {
        blocks[i] = huge_take(4 * HAK_MIB);
        assert_true(shared_pool_footprint() <= allowed(live, true));
    }
    core_check_pool();
    for (size_t i = 0; i < MEBIBYTES / 4; i++)
        huge_give(blocks[i]);
    for (size_t i = 0; i < UNITS; i++) {
        core_acquire(1, 1, 1, &slabs[i]);
        assert_true(shared_pool_footprint() <= allowed(live, true));
    }
    core_check_pool();
    assert_int_equal(shared_pool.huge_bytes, huge_cached());
    assert_int_equal(shared_pool.huge_waiting, huge_cached());
}

static void no_cache(void)
{
    char *block;

    core_begin();
    block = huge_take(2 * HAK_MIB);
    huge_give(block);
    huge_check(0, 0, 0);
    assert_int_equal(fake_calls(FAKE_UNMAP), 1);
}

static void test_no_cache(void)
{
    hak_options.huge_cache = 0;
    no_cache();
}

static void test_no_delay(void)
{
    hak_options.purge_delay = 0;
    no_cache();
}

/* The table of ranges overflows: old ranges leave, and none is lost. */
static void test_table_full(void)
{
    enum { BLOCKS = 700 };
    static char *blocks[BLOCKS];
    size_t cached;

    core_begin();
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = huge_take(UNIT_SIZE);
    /* Every second block by address, so that no two ranges touch. */
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t j = i + 1; j < BLOCKS; j++)
            if (blocks[j] < blocks[i]) {
                char *block = blocks[i];
                blocks[i] = blocks[j];
                blocks[j] = block;
            }
    for (size_t i = 0; i < BLOCKS; i += 2) {
        huge_give(blocks[i]);
        advance(1);
    }
    cached = huge_cached();
    assert_in_range(cached, UNIT_SIZE, 256 * UNIT_SIZE);
    huge_check(BLOCKS / 2, BLOCKS / 2 * UNIT_SIZE, cached);
    assert_true(huge_covers(blocks[BLOCKS - 2], false));
    for (size_t i = 1; i < BLOCKS; i += 2)
        huge_give(blocks[i]);
    cached = huge_cached();
    assert_int_equal(huge_purge(true), cached);
    huge_check(0, 0, 0);
}

static void test_purge_delay(void)
{
    static const size_t sizes[] = { 2 * HAK_MIB, 3 * HAK_MIB };
    char *blocks[2];

    core_begin();
    huge_take_apart(sizes, 2, blocks);
    huge_give(blocks[0]);
    advance(hak_options.purge_delay / 2);
    huge_give(blocks[1]);
    advance(hak_options.purge_delay / 2 - 4);
    assert_false(purge_is_due(shared_pool_now_ms()));
    assert_int_equal(huge_purge(false), 0);
    advance(8);
    assert_true(purge_is_due(shared_pool_now_ms()));
    assert_int_equal(huge_purge(false), 2 * HAK_MIB);
    assert_int_equal(huge_purge(false), 0);
    advance(hak_options.purge_delay / 2);
    assert_int_equal(huge_purge(false), 3 * HAK_MIB);
    huge_check(2, 2 * UNIT_SIZE, 0);
}

/* A block that no machine has costs no freed memory: neither ranges nor units of the pool. */
static void test_impossible(void)
{
    enum { BLOCKS = 20 };
    size_t sizes[BLOCKS];
    char *blocks[BLOCKS];
    struct slab *slab;
    size_t cached;

    core_begin();
    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    core_acquire(4, 1, 1, &slab);
    core_touch(slab);
    core_release(slab);
    for (unsigned i = 0; i < BLOCKS; i++)
        sizes[i] = 4 * HAK_MIB;
    huge_take_apart(sizes, BLOCKS, blocks);
    for (unsigned i = 0; i < BLOCKS; i++)
        huge_give(blocks[i]);
    cached = huge_cached();
    assert_true(cached >= 32 * HAK_MIB); /* so much that a block of usual size would make room first */
    fake_fail_from(FAKE_MAP, 1);
    for (unsigned shift = 36; shift < 47; shift++) {
        bool zero;
        assert_null(huge_allocate((size_t)1 << shift, BLOCK_ALIGN, &zero, NULL));
    }
    assert_int_equal(huge_cached(), cached);
    assert_int_equal(shared_pool.units_dirty, 4);
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_reuse),
        core_unit_test(test_best_fit),
        core_unit_test(test_split_and_join),
        core_unit_test(test_byte_bound),
        core_unit_test(test_byte_bound_small_ranges),
        core_unit_test(test_live_bound),
        core_unit_test(test_turns_are_free),
        core_unit_test(test_sizes_share_the_bound),
        core_unit_test(test_no_cache),
        core_unit_test(test_no_delay),
        core_unit_test(test_table_full),
        core_unit_test(test_purge_delay),
        core_unit_test(test_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
