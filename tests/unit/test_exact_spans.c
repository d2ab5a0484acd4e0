/* Protects V20 (harden/seal.h): spans without room for a canary, where a guard unit lies behind. */
#include "heaps.h"

#include <stdio.h>
#include <string.h>

#include "front/fast.h"
#include "front/hardened.h"
#include "os/peek.h"
#include "superslab/guard_units.h"

#define SAID(call) (capture_begin(), (void)(call), capture_end())
#define ASSERT_SILENT(call) assert_string_equal(SAID(call), "")

static void begin(void) { core_begin_thread(); }

/* Units of the span with the block; 0: it is a huge block. */
static unsigned units_of(const void *block)
{
    const struct slab *slab = slab_in_use_at(block);

    return slab ? slab->units : 0;
}

static bool can_read(const char *byte) { return os_can_read((uintptr_t)byte & ~(uintptr_t)3); }

/* The block has exactly these units, all of which can be used, and nobody can access the byte behind them. */
static void check_exact(char *block, unsigned units, size_t size)
{
    assert_non_null(block);
    assert_int_equal(units_of(block), units);
    assert_int_equal(front_usable_size(block, "malloc_usable_size"), size);
    memset(block, 0x5a, size);
    assert_false(can_read(block + units * UNIT_SIZE));
}

static void test_each_size(void)
{
    begin();
    for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++)
        for (size_t room = 0; room < SEAL_BYTES; room++) {
            size_t size = units * UNIT_SIZE - room;
            char *block = front_malloc(size);
            check_exact(block, units, size);
            ASSERT_SILENT(front_free(block));
            assert_has(SAID(front_free(block)), "freed already");
            block = front_calloc(1, size);
            for (size_t at = 0; at < size; at += 8)
                assert_int_equal(block[at], 0);
            check_exact(block, units, size);
            ASSERT_SILENT(front_free(block));
        }
    core_check_pool();
}

/* As many bytes of the canary as fit are checked. */
static void test_canary(void)
{
    begin();
    for (size_t room = 0; room < SEAL_BYTES; room++) {
        size_t size = 2 * UNIT_SIZE - room;
        char *block = front_malloc(size);
        for (size_t at = size; at < 2 * UNIT_SIZE; at++) {
            char words[100];
            snprintf(words, sizeof words, "written past its end: %zu bytes were asked for, byte %zu changed", size, at);
            block[at] ^= 0x41;
            assert_has(SAID(front_free(block)), words);
            block[at] ^= 0x41;
        }
        ASSERT_SILENT(front_free(block));
    }
}

/* A block stays where it is for all sizes that its units hold. */
static void test_resizing(void)
{
    char *block, *moved;

    begin();
    block = front_malloc(2 * UNIT_SIZE - 100);
    assert_int_equal(front_expand(block, 2 * UNIT_SIZE), 2 * UNIT_SIZE);
    check_exact(block, 2, 2 * UNIT_SIZE);
    assert_int_equal(front_expand(block, 2 * UNIT_SIZE + 1), 0);
    for (size_t room = 2 * SEAL_BYTES; room-- > 0;) {
        assert_ptr_equal(front_realloc(block, 2 * UNIT_SIZE - room, "realloc"), block);
        check_exact(block, 2, 2 * UNIT_SIZE - room);
    }
    for (size_t room = 0; room < 2 * SEAL_BYTES; room++) {
        assert_ptr_equal(front_realloc(block, 2 * UNIT_SIZE - room, "realloc"), block);
        check_exact(block, 2, 2 * UNIT_SIZE - room);
    }
    moved = front_realloc(block, 2 * UNIT_SIZE + 1, "realloc");
    assert_ptr_not_equal(moved, block);
    assert_int_equal(moved[2 * UNIT_SIZE - 100], 0x5a);
    ASSERT_SILENT(front_free(moved));
}

static void test_heap_and_alignment(void)
{
    struct heap *heap;
    char *block;

    begin();
    heap = front_heap_new();
    block = front_heap_aligned_alloc(heap, 16, UNIT_SIZE, true);
    check_exact(block, 1, UNIT_SIZE);
    assert_ptr_equal(front_heap_of(block), heap);
    ASSERT_SILENT(front_free(block));
    block = front_aligned_alloc(4096, UNIT_SIZE);
    check_exact(block, 1, UNIT_SIZE);
    ASSERT_SILENT(front_free(block));
    block = front_aligned_alloc(2 * UNIT_SIZE, 2 * UNIT_SIZE); /* such slabs may lie side by side */
    assert_int_equal(units_of(block), 3);
    ASSERT_SILENT(front_free(block));
}

/* The kernel refuses each guard unit. The first request finds that out. */
static void test_guards_refused(void)
{
    begin();
    assert_true(guard_units_are_whole());
    fake_fail_from(FAKE_ANY, 1);
    (void)front_malloc(UNIT_SIZE);
    fake_fail_nothing();
    assert_false(guard_units_are_whole());
    assert_int_equal(units_of(front_malloc(UNIT_SIZE)), 2);
    assert_int_equal(units_of(front_malloc(POOLED_MAX)), 0);
}

/* Kernels before 6.13: spans of SuperSlabs that lack guard units are not used without a canary. */
static void test_some_lack_guards(void)
{
    enum { MOST = 16 * 530 };
    unsigned exact = 0, next = 0;

    fake_fail_from(FAKE_GUARD, 1);
    begin();
    for (unsigned i = 0; i < MOST; i++) {
        char *block = front_malloc(UNIT_SIZE);
        assert_non_null(block);
        exact += units_of(block) == 1;
        next += units_of(block) == 2;
        if (units_of(block) == 1)
            assert_true(guard_units_lie_behind(slab_of(block)));
    }
    assert_int_equal(exact + next, MOST);
    assert_in_range(exact, 15 * 500, 15 * 512);
}

/* An aligned span whose neighbour is another span is not used again for an exact request. */
static void test_aligned_neighbours(void)
{
    enum { COUNT = 100 };
    static char *blocks[COUNT];
    unsigned lacking = 0;

    begin();
    for (unsigned i = 0; i < COUNT; i++)
        assert_non_null(blocks[i] = front_aligned_alloc(2 * UNIT_SIZE, 2 * UNIT_SIZE - 100));
    for (unsigned i = 0; i < COUNT; i++) {
        bool lacks = !guard_units_lie_behind(slab_of(blocks[i]));
        assert_int_equal(units_of(blocks[i]), 2);
        if (!lacks)
            continue;
        lacking++;
        ASSERT_SILENT(front_free(blocks[i]));
        cache_flush_all(cache_current(), true); /* its heap keeps it (O6) */
        blocks[i] = front_malloc(2 * UNIT_SIZE);
        assert_true(units_of(blocks[i]) == 3 || guard_units_lie_behind(slab_of(blocks[i])));
        memset(blocks[i], 1, 2 * UNIT_SIZE);
        ASSERT_SILENT(front_free(blocks[i]));
    }
    assert_true(lacking > 0);
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_each_size),       core_unit_test(test_canary),
        core_unit_test(test_resizing),        core_unit_test(test_heap_and_alignment),
        core_unit_test(test_guards_refused),  core_unit_test(test_some_lack_guards),
        core_unit_test(test_aligned_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
