/* Protects front/resize.c: how a huge block grows, and which blocks change their size in place. */
#include "heaps.h"

#include <string.h>

#include "front/fast.h"
#include "front/front.h"
#include "superslab/ranges.h"

static char *filled(size_t size)
{
    char *block = front_malloc(size);

    assert_non_null(block);
    memset(block, 'x', size);
    return block;
}

static void check_filled(const char *block, size_t size)
{
    for (size_t i = 0; i < size; i += 1000)
        assert_int_equal(block[i], 'x');
}

static char *grow(char *block, size_t from, size_t to)
{
    char *grown = front_realloc(block, to, "realloc");

    assert_non_null(grown);
    check_filled(grown, from);
    return grown;
}

/* A block that doubles is copied into freed memory that fits, and its own memory serves the next block. */
static void test_grows_into_freed_memory(void)
{
    char *block = filled(2 * HAK_MIB), *wall = filled(2 * HAK_MIB), *freed = filled(6 * HAK_MIB), *grown;
    uint64_t maps = fake_calls(FAKE_MAP);

    front_free(freed);
    assert_true(ranges_fit(6 * HAK_MIB));
    assert_false(ranges_fit(7 * HAK_MIB));
    grown = grow(block, 2 * HAK_MIB, 5 * HAK_MIB);
    assert_ptr_equal(grown, freed);
    assert_true(ranges_fit(2 * HAK_MIB));
    assert_int_equal(fake_calls(FAKE_MAP), maps);
    front_free(grown);
    front_free(wall);
}

/* A block grows by mremap, without a copy, if the step is small, the block large, or no freed memory fits. */
static void test_grows_by_mremap(void)
{
    static const struct {
        size_t from, to, freed;
    } rows[] = {
        { 4 * HAK_MIB, 4 * HAK_MIB + 512 * HAK_KIB, 12 * HAK_MIB },
        { 5 * HAK_MIB, 10 * HAK_MIB, 12 * HAK_MIB },
        { 2 * HAK_MIB, 4 * HAK_MIB, 3 * HAK_MIB },
    };

    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *block = filled(rows[i].from), *wall = filled(2 * HAK_MIB), *freed = filled(rows[i].freed), *grown;
        uint64_t remaps = fake_calls(FAKE_REMAP);
        front_free(freed);
        grown = grow(block, rows[i].from, rows[i].to);
        assert_ptr_not_equal(grown, freed);
        assert_true(fake_calls(FAKE_REMAP) > remaps);
        front_free(grown);
        front_free(wall);
        front_collect(true);
    }
}

/* ---- In place ---- */

static size_t in_place(void *block, size_t size) { return front_resize_in_place(block, size, "xallocx"); }

/* A block of a slab keeps its size, whatever size is requested. */
static void test_pooled_in_place(void)
{
    char *block;
    size_t usable;

    block = front_malloc(100);
    usable = front_usable_size(block, "malloc_usable_size");
    assert_int_equal(in_place(block, 10), usable);
    assert_int_equal(in_place(block, usable), usable);
    assert_int_equal(in_place(block, 3 * POOLED_MAX), usable);
    assert_int_equal(in_place(block, SIZE_MAX), usable);
    front_free(block);
}

static void test_huge_in_place(void)
{
    char *block;
    size_t whole;

    block = front_malloc(8 * HAK_MIB);
    memset(block, 1, 8 * HAK_MIB);
    whole = front_usable_size(block, "malloc_usable_size");
    assert_int_equal(in_place(block, POOLED_MAX), whole);
    assert_int_equal(in_place(block, 0), whole);
    assert_int_equal(in_place(block, SIZE_MAX), whole);
    assert_int_equal(in_place(block, PTRDIFF_MAX), whole);
    assert_int_equal(in_place(block, 4 * HAK_MIB), 4 * HAK_MIB);
    assert_int_equal(front_usable_size(block, "malloc_usable_size"), 4 * HAK_MIB);
    assert_int_equal(in_place(block, 8 * HAK_MIB), 8 * HAK_MIB); /* into the part that it left */
    memset(block, 2, 8 * HAK_MIB);
    front_free(block);
}

static void test_misused_in_place(void)
{
    static char no_block[64] __attribute__((aligned(16)));

    (void)core_begin_thread();
    capture_begin();
    assert_int_equal(in_place(no_block, 3 * POOLED_MAX), 0);
    assert_has(capture_end(), "xallocx(");
}

/* Addresses in a slab at which no block starts have no usable size: inside a block, and behind the slab's last block.
 * realloc also finds a block that lies free in the slab. */
static void test_no_block(void)
{
    char *block, *unit, *at[3];

    (void)core_begin_thread();
    block = front_malloc(14336);
    assert_int_equal(front_usable_size(block, "malloc_usable_size"), 14336);
    unit = (char *)((uintptr_t)block & ~(UNIT_SIZE - 1));
    at[0] = block + 1024;
    at[1] = unit + 4 * (size_t)14336;
    at[2] = block == unit ? unit + (size_t)3 * 14336 : unit;
    (void)front_collect(false); /* what the thread's cache held goes to its slab */
    for (unsigned i = 0; i < 3; i++) {
        bool looks_alive = i == 2;
        capture_begin();
        assert_int_equal(front_usable_size(at[i], "malloc_usable_size"), looks_alive ? 14336 : 0);
        assert_int_equal(strstr(capture_end(), "malloc_usable_size(") == NULL, looks_alive);
        capture_begin();
        assert_null(front_realloc(at[i], 20000, "realloc"));
        assert_has(capture_end(), "realloc(");
    }
    front_free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_grows_into_freed_memory),
        core_unit_test(test_grows_by_mremap),
        core_unit_test(test_pooled_in_place),
        core_unit_test(test_huge_in_place),
        core_unit_test(test_misused_in_place),
        core_unit_test(test_no_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
