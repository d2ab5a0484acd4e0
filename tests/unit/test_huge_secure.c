/* Protects pool/huge.h in libhakmem-secure: nobody can access freed memory, which then is zero and lies elsewhere. */
#include "huge_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "superslab/ranges.h"

/* A freed block's address is not used again: its memory serves the next block at another one. */
static void test_reuse(void)
{
    char *block, *next;

    core_begin();
    for (unsigned round = 0; round < 20; round++) {
        block = huge_take_at(4 * HAK_MIB, 16);
        memset(block, 1, 4 * HAK_MIB);
        huge_free(block);
        huge_check(0, 0, 4 * HAK_MIB);
        next = huge_take_at(4 * HAK_MIB, 16);
        assert_int_equal(next == block, HAK_THREAD_SANITIZER); /* which allows few addresses */
        assert_int_equal(fake_is_mapped(block, 4096), HAK_THREAD_SANITIZER);
        huge_check(1, 4 * HAK_MIB, 0);
        huge_free(next);
        ranges_purge(true);
        huge_check(0, 0, 0);
    }
}

/* If the kernel does not move it, the block lies where the freed one lay. */
static void test_reuse_refused(void)
{
    char *block;

    core_begin();
    block = huge_take_at(4 * HAK_MIB, 16);
    huge_free(block);
    fake_fail_from(FAKE_REMAP, 1);
    assert_ptr_equal(huge_take_at(4 * HAK_MIB, 16), block);
    huge_check(1, 4 * HAK_MIB, 0);
}

/* Frees a block of 4 MiB of which one page in `one_in` is written, and checks how often the range was opened or closed
 * and purged. */
static void check_freeing(size_t one_in, unsigned protects, unsigned purges)
{
    uint64_t protected, purged, before, after, hard;
    bool zero;
    char *block = huge_allocate(4 * HAK_MIB, 16, &zero, NULL);

    assert_true(zero);
    for (size_t at = 0; at < 4 * HAK_MIB; at += one_in * 4096)
        block[at] = 1;
    protected = fake_calls(FAKE_PROTECT);
    purged = fake_calls(FAKE_PURGE);
    os_page_faults(&before, &hard);
    huge_free(block);
    os_page_faults(&after, &hard);
    assert_int_equal(fake_calls(FAKE_PROTECT) - protected, protects);
    assert_int_equal(fake_calls(FAKE_PURGE) - purged, purges);
    /* A look at 16 pages would take 15 faults, or none if all have memory. Emulators and ThreadSanitizer add more. */
    assert_true(after - before <= 8 || purges == 0 || UNIT_EMULATED || HAK_THREAD_SANITIZER);
    huge_check(0, 0, 4 * HAK_MIB);
}

/* A freed block with little memory is purged without a look at its pages, each of which would cost a fault. One with
 * much keeps it. */
static void test_little_memory(void)
{
    core_begin();
    check_freeing(1000, 1, 1);
    check_freeing(3, 1, 1);
    check_freeing(1, 2, 0);
    huge_take_at(4 * HAK_MIB, 16);
}

/* A page in swap space seems to have no memory. It is purged, so that the next block is zero. */
static void test_swapped(void)
{
    core_begin();
    fake_set_memory_swapped(true);
    check_freeing(1, 1, 1);
    huge_take_at(4 * HAK_MIB, 16);
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
        core_unit_test(test_little_memory),
        core_unit_test(test_swapped),
        core_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
