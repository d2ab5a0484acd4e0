/* Protects pool/huge.h in libhakmem-secure: freed memory is used again elsewhere, and by chance waits closed. */
#include "huge_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "superslab/ranges.h"

/* A freed block's address is not used again: its memory serves the next block at another one. One in
 * RANGES_CLOSED_SHARE is closed while it waits. */
static void test_reuse(void)
{
    enum { ROUNDS = 640 };
    unsigned closed = 0;

    core_begin();
    for (unsigned round = 0; round < ROUNDS; round++) {
        char *block = huge_take_at(4 * HAK_MIB, 16), *next;
        huge_free(block, NULL);
        assert_int_equal(range_cache.count, 1);
        closed += range_cache.ranges[0].closed;
        huge_check(0, 0, 4 * HAK_MIB);
        next = huge_take_at(4 * HAK_MIB, 16);
        next[0] = next[4 * HAK_MIB - 1] = 1;
        assert_int_equal(next == block, HAK_THREAD_SANITIZER); /* which allows few addresses */
        assert_int_equal(fake_is_mapped(block, 4096), HAK_THREAD_SANITIZER);
        huge_check(1, 4 * HAK_MIB, 0);
        huge_free(next, NULL);
        ranges_purge(true);
        huge_check(0, 0, 0);
    }
    assert_in_range(closed, ROUNDS / RANGES_CLOSED_SHARE / 2, ROUNDS / RANGES_CLOSED_SHARE * 2);
}

/* If the kernel does not move it, the block lies where the freed one lay. */
static void test_reuse_refused(void)
{
    char *block;

    core_begin();
    block = huge_take_at(4 * HAK_MIB, 16);
    huge_free(block, NULL);
    fake_fail_from(FAKE_REMAP, 1);
    assert_ptr_equal(huge_take_at(4 * HAK_MIB, 16), block);
    huge_check(1, 4 * HAK_MIB, 0);
}

/* Blocks lie far from each other, so that a write past or before one meets nothing. */
static void test_places(void)
{
    enum { BLOCKS = 100 };
    char *blocks[BLOCKS];
    size_t near = 0;

    core_begin();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = huge_take_at(2 * HAK_MIB, 4096);
        assert_true(blocks[i] < window_base() || HAK_THREAD_SANITIZER);
        for (size_t j = 0; j < i; j++)
            near += (size_t)labs(blocks[i] - blocks[j]) < 4 * HAK_MIB;
    }
    assert_true(near <= 5 || HAK_THREAD_SANITIZER); /* of 4,950 pairs; an emulator has few addresses */
    huge_check(BLOCKS, BLOCKS * 2 * HAK_MIB, 0);
    huge_take_at(2 * HAK_MIB, 8 * HAK_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_reuse),
        core_unit_test(test_reuse_refused),
        core_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
