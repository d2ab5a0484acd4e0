/* Protects pool/huge.h: huge blocks' mappings, limits, owners and places (B1, B3). */
#include "huge_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "superslab/purge.h"
#include "superslab/ranges.h"

/* ---- One block ---- */

static void test_allocate_and_free(void)
{
    struct heap *heap = (struct heap *)1;
    char *block;

    core_begin();
    block = huge_take(5 * HAK_MIB + 1);
    huge_check(1, 5 * HAK_MIB + UNIT_SIZE, 0);
    assert_true(fake_is_mapped(block, 5 * HAK_MIB + UNIT_SIZE));
    assert_int_equal(huge_size(block, &heap), 5 * HAK_MIB + UNIT_SIZE);
    assert_null(heap);
    assert_int_equal(huge_size(block + UNIT_SIZE, &heap), 0);
    assert_int_equal(huge_size(block + 16, NULL), 0);
    assert_false(huge_free(block + UNIT_SIZE, NULL) || huge_free(block + 16, NULL) || huge_free(&block, NULL));
    huge_give(block);
    assert_false(huge_free(block, NULL));
    assert_int_equal(huge_size(block, NULL), 0);
    huge_check(0, 0, 5 * HAK_MIB + UNIT_SIZE);
    assert_int_equal(huge_purge(true), 5 * HAK_MIB + UNIT_SIZE);
    huge_check(0, 0, 0);
}

static void test_alignment(void)
{
    char *blocks[16];
    size_t count = 0;

    core_begin();
    for (size_t alignment = BLOCK_ALIGN; alignment <= 64 * HAK_MIB; alignment *= 8)
        blocks[count++] = huge_take_at(3 * HAK_MIB, alignment);
    while (count)
        huge_give(blocks[--count]);
    /* Ranges from the cache are aligned as asked for, too. */
    for (size_t alignment = BLOCK_ALIGN; alignment <= 64 * HAK_MIB; alignment *= 8)
        blocks[count++] = huge_take_at(2 * HAK_MIB, alignment);
}

/* Under `auto` a block of 2 MiB or more is advised huge pages once 16 MiB of other memory are mapped. */
static void test_huge_pages(void)
{
    uint64_t before;
    char *block;

    hak_options.thp = OPTION_AUTO;
    core_begin();
    before = fake_calls(FAKE_ADVISE_HUGE);
    huge_take(15 * HAK_MIB);
    huge_take(2 * HAK_MIB);
    block = huge_take(2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before);
    memset(block, 1, 2 * HAK_MIB);
    huge_take(2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
    huge_take(2 * HAK_MIB - UNIT_SIZE);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
}

static void test_impossible(void)
{
    bool zero;

    core_begin();
    assert_null(huge_allocate(REQUEST_MAX, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(SIZE_MAX, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(REQUEST_MAX / 2, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(2 * HAK_MIB, (size_t)1 << 63, &zero, NULL));
    huge_check(0, 0, 0);
}

static void test_zero(void)
{
    bool zero = false;
    char *block;

    core_begin();
    block = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_true(zero);
    memset(block, 1, 2 * HAK_MIB);
    huge_give(block);
    assert_ptr_equal(huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL), block);
    assert_false(zero);
    huge_give(block);
    huge_purge(true);
    block = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_true(zero);
    for (size_t at = 0; at < 2 * HAK_MIB; at += 512)
        assert_int_equal(block[at], 0);
}

static void test_covers(void)
{
    char *block, *other;

    core_begin();
    block = huge_take(3 * HAK_MIB);
    other = huge_take(UNIT_SIZE);
    assert_true(huge_covers(block, true) && huge_covers(block + 100, true));
    assert_true(huge_covers(block + 3 * HAK_MIB - 1, true));
    /* The kernel chooses both addresses. No block lies below the lower one. */
    assert_false(huge_covers((block < other ? block : other) - 1, true));
    assert_false(huge_covers(&block, true) || huge_covers(block, false));
    huge_give(block);
    assert_false(huge_covers(block, true));
    assert_true(huge_covers(block, false) && huge_covers(block + 3 * HAK_MIB - 1, false));
    assert_false(huge_covers(block + 3 * HAK_MIB, false) || huge_covers(block - 1, false));
}

/* ---- Short of memory ---- */

static void test_memory_limit(void)
{
    char *blocks[3];
    bool zero;

    hak_options.memory_limit = 12 * HAK_MIB + HAK_MIB / 2; /* the half for metadata */
    core_begin();
    for (size_t i = 0; i < 3; i++)
        blocks[i] = huge_take(4 * HAK_MIB);
    assert_null(huge_allocate(HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    huge_check(3, 12 * HAK_MIB, 0);
    huge_give(blocks[0]);
    huge_give(blocks[2]);
    /* Cached ranges leave when the limit needs room, as far as needed. */
    huge_take(8 * HAK_MIB);
    huge_check(2, 12 * HAK_MIB, huge_cached());
    assert_in_range(shared_pool_footprint(), 12 * HAK_MIB, hak_options.memory_limit);
}

static void test_map_refused(void)
{
    char *block;
    bool zero;

    core_begin();
    fake_fail_from(FAKE_MAP, 1);
    assert_null(huge_allocate(3 * HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    huge_check(0, 0, 0);
    fake_fail_nothing();
    block = huge_take(3 * HAK_MIB);
    huge_give(block);
    /* huge_allocate gives the cache back, and asks the system again. */
    fake_fail_nth(FAKE_MAP, 1);
    huge_take(4 * HAK_MIB);
    huge_check(1, 4 * HAK_MIB, 0);
}

/* P5: a huge block may take the address space of empty SuperSlabs and of waiting slots; SuperSlabs may take it back. */
static void test_address_space(void)
{
    enum { SLABS = 10 * (SUPERSLAB_UNITS - 1) };
    static struct slab *slabs[SLABS];
    char *block;
    bool zero;

    core_begin();
    core_acquire(1, 1, SLABS, slabs);
    for (size_t i = 0; i < SLABS; i++)
        core_touch(slabs[i]);
    for (size_t i = SUPERSLAB_UNITS; i < SLABS; i++)
        core_release(slabs[i]);
    fake_set_address_space_limit(fake_bytes_mapped() + HAK_MIB);
    /* A request that can never succeed gives nothing back. */
    assert_null(huge_allocate(fake_bytes_mapped() + 2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    assert_int_equal(shared_pool.decommitted, 0);
    block = huge_take(18 * HAK_MIB);
    assert_int_equal(shared_pool.decommitted, 8);
    huge_check(1, 18 * HAK_MIB, 0);
    core_check_pool();
    assert_int_equal(slabs[0]->start[0], 1);
    huge_give(block);
    huge_purge(true);
    core_acquire(1, 1, SLABS - SUPERSLAB_UNITS, &slabs[SUPERSLAB_UNITS]);
    for (size_t i = SUPERSLAB_UNITS; i < SLABS; i++)
        assert_int_equal(slabs[i]->start[0], 0);
    core_check_pool();
    huge_check(0, 0, 0);
}

/* W4: another mapping that takes the place of an unmapped SuperSlab keeps it. The slot is foreign from then on. */
static void test_address_space_taken(void)
{
    enum { SLABS = 4 * (SUPERSLAB_UNITS - 1) };
    static struct slab *slabs[SLABS];
    uint32_t number;

    core_begin();
    core_acquire(1, 1, SLABS, slabs);
    number = window_slot_of(slabs[0]);
    for (size_t i = 0; i < SLABS; i++)
        core_release(slabs[i]);
    assert_true(purge_address_space() >= 4 * SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.decommitted, 4);
    assert_int_equal(os_map_at(window_slot_address(number) + UNIT_SIZE, UNIT_SIZE), OS_PLACE_MAPPED);
    assert_false(window_contains(window_slot_address(number) + UNIT_SIZE));
    core_acquire(1, 1, SLABS, slabs);
    assert_int_equal(slot_kind(&window_slots[number]), SLOT_FOREIGN);
    assert_int_equal(shared_pool.slots_foreign, 1);
    assert_int_equal(shared_pool.decommitted, 0);
    for (size_t i = 0; i < SLABS; i++)
        assert_int_not_equal(window_slot_of(slabs[i]), number);
    core_check_pool();
}

/* ---- First-class heaps ---- */

static void test_heaps(void)
{
    static struct heap one, two;
    struct heap *heap;
    char *blocks[60];
    bool zero;

    core_begin();
    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    for (size_t i = 0; i < 60; i++)
        blocks[i] = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, i % 3 == 0 ? &one : i % 3 == 1 ? &two : NULL);
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(huge_size(blocks[i], &heap), 2 * HAK_MIB);
        assert_ptr_equal(heap, i % 3 == 0 ? &one : i % 3 == 1 ? &two : NULL);
    }
    huge_free_heap(&one);
    for (size_t i = 0; i < 60; i++)
        assert_int_equal(huge_size(blocks[i], NULL), i % 3 == 0 ? 0 : 2 * HAK_MIB);
    huge_check(40, 80 * HAK_MIB, 40 * HAK_MIB);
    huge_free_heap(&one);
    huge_check(40, 80 * HAK_MIB, 40 * HAK_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_allocate_and_free),
        core_unit_test(test_alignment),
        core_unit_test(test_huge_pages),
        core_unit_test(test_impossible),
        core_unit_test(test_zero),
        core_unit_test(test_covers),
        core_unit_test(test_memory_limit),
        core_unit_test(test_map_refused),
        core_unit_test(test_address_space),
        core_unit_test(test_address_space_taken),
        core_unit_test(test_heaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
