/* Protects huge_resize: a huge block keeps its contents, grows in place or moves, and is unchanged after a refusal. */
#include "huge_blocks.h"

#include <string.h>

static void fill(char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        *(size_t *)(void *)(block + at) = at ^ 0x5a5a;
}

static void check_filled(const char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        assert_int_equal(*(const size_t *)(const void *)(block + at), at ^ 0x5a5a);
}

static void test_shrink(void)
{
    char *block;

    core_begin();
    block = huge_take(8 * HAK_MIB);
    fill(block, 8 * HAK_MIB);
    assert_ptr_equal(huge_resize(block, 5 * HAK_MIB + 1, false), block);
    huge_check(1, 5 * HAK_MIB + UNIT_SIZE, 3 * HAK_MIB - UNIT_SIZE);
    assert_int_equal(huge_size(block, NULL), 5 * HAK_MIB + UNIT_SIZE);
    check_filled(block, 5 * HAK_MIB + UNIT_SIZE);
    assert_ptr_equal(huge_resize(block, 5 * HAK_MIB + 2, true), block);
    /* The tail that was cut off serves another block. */
    assert_ptr_equal(huge_take(2 * HAK_MIB), block + 5 * HAK_MIB + UNIT_SIZE);
    huge_give(block);
    huge_check(1, 2 * HAK_MIB, 6 * HAK_MIB);
}

static void test_grow(void)
{
    char *block, *grown;

    core_begin();
    block = huge_take(2 * HAK_MIB);
    for (size_t size = 3 * HAK_MIB; size <= 40 * HAK_MIB; size += size / 2) {
        size_t before = huge_size(block, NULL);
        fill(block, before);
        grown = huge_resize(block, size, true);
        assert_non_null(grown);
        check_filled(grown, before);
        for (size_t at = before; at < size; at += 4096)
            assert_int_equal(grown[at], 0);
        assert_int_equal(huge_size(grown, NULL), base_align_up(size, UNIT_SIZE));
        if (grown != block)
            assert_int_equal(huge_size(block, NULL), 0);
        huge_check(1, base_align_up(size, UNIT_SIZE), 0);
        block = grown;
    }
    huge_give(block);
}

/* Growing in place fails when another block follows, and the block stays unchanged. */
static void test_grow_in_place(void)
{
    char *whole, *block;
    uint64_t remaps;

    core_begin();
    whole = huge_take(8 * HAK_MIB);
    huge_give(whole);
    block = huge_take(4 * HAK_MIB);
    assert_ptr_equal(block, whole);
    assert_ptr_equal(huge_take(4 * HAK_MIB), whole + 4 * HAK_MIB);
    fill(block, 4 * HAK_MIB);
    remaps = fake_calls(FAKE_REMAP);
    assert_null(huge_resize(block, 5 * HAK_MIB, false));
    assert_int_equal(fake_calls(FAKE_REMAP), remaps + 1);
    huge_check(2, 8 * HAK_MIB, 0);
    check_filled(block, 4 * HAK_MIB);
    assert_int_equal(huge_size(block, NULL), 4 * HAK_MIB);
    block = huge_resize(block, 5 * HAK_MIB, true);
    assert_non_null(block);
    assert_ptr_not_equal(block, whole);
    check_filled(block, 4 * HAK_MIB);
    huge_check(2, 9 * HAK_MIB, 0);
}

/* A block grows into the freed range behind it without a system call. */
static void test_grow_into_range(void)
{
    char *whole, *first, *second;
    uint64_t remaps;

    core_begin();
    whole = huge_take(8 * HAK_MIB);
    huge_give(whole);
    first = huge_take(3 * HAK_MIB);
    second = huge_take(5 * HAK_MIB);
    assert_ptr_equal(first, whole);
    assert_ptr_equal(second, whole + 3 * HAK_MIB);
    huge_give(second);
    remaps = fake_calls(FAKE_REMAP);
    memset(first, 7, 3 * HAK_MIB);
    assert_ptr_equal(huge_resize(first, 4 * HAK_MIB, true), first);
    huge_check(1, 4 * HAK_MIB, 4 * HAK_MIB);
    assert_ptr_equal(huge_resize(first, 8 * HAK_MIB, false), first);
    huge_check(1, 8 * HAK_MIB, 0);
    assert_int_equal(fake_calls(FAKE_REMAP), remaps);
    for (size_t at = 0; at < 3 * HAK_MIB; at += 1024)
        assert_int_equal(first[at], 7);
    /* Nothing is left behind the block. */
    (void)huge_resize(first, 9 * HAK_MIB, true);
    assert_int_equal(fake_calls(FAKE_REMAP), remaps + 1);
}

static void test_resize_refused(void)
{
    char *block;

    hak_options.memory_limit = 10 * HAK_MIB;
    core_begin();
    block = huge_take(4 * HAK_MIB);
    fill(block, 4 * HAK_MIB);
    assert_null(huge_resize(block, 11 * HAK_MIB, true));
    assert_null(huge_resize(block, REQUEST_MAX, true));
    assert_null(huge_resize(block, SIZE_MAX, true));
    fake_fail_nth(FAKE_REMAP, 1);
    assert_null(huge_resize(block, 5 * HAK_MIB, true));
    assert_null(huge_resize(block + UNIT_SIZE, 2 * HAK_MIB, true));
    assert_null(huge_resize(&block, 2 * HAK_MIB, true));
    huge_check(1, 4 * HAK_MIB, 0);
    check_filled(block, 4 * HAK_MIB);
    assert_non_null(huge_resize(block, 5 * HAK_MIB, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_shrink),
        core_unit_test(test_grow),
        core_unit_test(test_grow_in_place),
        core_unit_test(test_grow_into_range),
        core_unit_test(test_resize_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
