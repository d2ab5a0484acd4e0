/* Protects superslab/arrival.h: what gets huge pages, by lives of memory. */
#include "heaps.h"

#include <string.h>

#include "pool/huge.h"
#include "superslab/arrival.h"

static void test_rule(void **state)
{
    (void)state;
    assert_true(arrival_is_dense((struct arrival_evidence){ 0, 0 }));
    assert_true(arrival_is_dense((struct arrival_evidence){ 800, 100 }));
    assert_false(arrival_is_dense((struct arrival_evidence){ 800, 101 }));
    assert_false(arrival_is_dense((struct arrival_evidence){ 7, 1 }));
    assert_false(arrival_is_probe(15));
    assert_true(arrival_is_probe(16));
    assert_false(arrival_is_probe(17));
}

/* Begins `count` SuperSlabs of two spans each, with so many bytes of each resident. Returns how many got huge pages. */
static size_t begin_superslabs(unsigned count, size_t resident, bool second)
{
    size_t huge = 0;

    for (unsigned i = 0; i < count; i++) {
        struct slab *slab, *rest;
        core_acquire(SPAN_MAX_UNITS, 1, 1, &slab);
        core_use(slab, base_min(resident, SPAN_MAX_UNITS * UNIT_SIZE));
        huge += shared_pool.slots[window_slot_of(slab)].huge_pages == PAGES_HUGE;
        if (second) {
            core_acquire(15, 1, 1, &rest);
            core_use(rest, base_min(resident, 15 * UNIT_SIZE));
        }
    }
    return huge;
}

static void begin(void)
{
    hak_options.thp = OPTION_AUTO;
    core_begin();
}

/* The first never have huge pages. Of the others, one in 16 is a probe. */
static void test_dense(void)
{
    begin();
    assert_int_equal(begin_superslabs(4, SIZE_MAX, true), 0);
    assert_int_equal(begin_superslabs(32, SIZE_MAX, true), 30);
    core_check_pool();
}

static void test_sparse(void)
{
    begin();
    assert_int_equal(begin_superslabs(36, 2048, true), 0);
    core_check_pool();
}

/* Half of each SuperSlab fits nothing. */
static void test_halves(void)
{
    begin();
    assert_int_equal(begin_superslabs(36, SIZE_MAX, false), 0);
    core_check_pool();
}

/* A program that fills its blocks no longer is noticed by the next probe, and one that does again, soon. */
static void test_change(void)
{
    begin();
    assert_int_equal(begin_superslabs(20, SIZE_MAX, true), 15);
    assert_int_equal(begin_superslabs(16, 2048, true), 14); /* the 15th is a probe, and a look at it ends that */
    assert_int_equal(begin_superslabs(16, 2048, true), 0);
    assert_int_equal(begin_superslabs(3, SIZE_MAX, true), 0);
    assert_int_equal(begin_superslabs(8, SIZE_MAX, true), 8);
    core_check_pool();
}

/* Blocks above a page are not faulted in ahead, which would hide that the program writes a part of each. */
static void test_heap(void)
{
    enum { BLOCKS = 60 * 30 };
    static void *blocks[BLOCKS];
    struct heap *heap;
    size_t huge = 0;

    hak_options.thp = OPTION_AUTO;
    heap = heaps_begin();
    begin_superslabs(20, SIZE_MAX, true);
    for (unsigned i = 0; i < BLOCKS; i++) {
        heaps_take_all(heap, CLASS_57344, &blocks[i], 1);
        memset(blocks[i], 1, 40000);
    }
    for (unsigned i = BLOCKS / 2; i < BLOCKS; i += 30)
        huge += shared_pool.slots[window_slot_of(blocks[i])].huge_pages == PAGES_HUGE;
    assert_int_equal(huge, 0);
}

/* In a sandbox that may kill the process for mincore, what was found last holds. */
static void test_blind(void)
{
    begin();
    assert_int_equal(begin_superslabs(8, SIZE_MAX, true), 4);
    arrival_before_sandbox();
    assert_int_equal(begin_superslabs(36, 2048, true), 34);
}

static char *take_huge(size_t resident)
{
    bool zero;
    char *block = huge_allocate(4 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);

    assert_non_null(block);
    memset(block, 1, resident);
    return block;
}

static void test_huge_blocks(void)
{
    uint64_t before;
    char *block;

    begin();
    take_huge(0);
    for (unsigned i = 0; i < 3; i++)
        take_huge(0); /* 16 MiB are held */
    before = fake_calls(FAKE_ADVISE_HUGE);
    for (unsigned i = 0; i < 10; i++)
        take_huge(2048);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before);
    block = take_huge(2 * HAK_MIB);
    take_huge(2 * HAK_MIB); /* what the one before tells */
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
    assert_true(huge_free(block, NULL));
    take_huge(2 * HAK_MIB);
    assert_true(fake_calls(FAKE_ADVISE_HUGE) >= before + 1);
}

/* A look as the block is freed. */
static void test_huge_block_that_ends(void)
{
    uint64_t before;
    char *block;

    begin();
    for (unsigned i = 0; i < 4; i++)
        take_huge(0);
    before = fake_calls(FAKE_ADVISE_HUGE);
    block = take_huge(4 * HAK_MIB);
    assert_true(huge_free(block, NULL));
    for (unsigned i = 0; i < 2; i++)
        take_huge(0); /* one has the freed block's memory */
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
}

/* Whether the page is resident. */
static bool is_resident(const char *page)
{
    unsigned char resident;

    assert_true(os_resident_pages((const void *)((uintptr_t)page & -os_page_size()), os_page_size(), &resident));
    return resident & 1;
}

/* Fills the pages whose number has a bit of `mask`, clears all but `rest` bytes at each end, and looks at them. */
static void clear(size_t size, size_t mask, size_t rest)
{
    size_t page = os_page_size();
    char *block = os_map(size, page);

    assert_non_null(block);
    for (size_t at = 0; at < size; at += page)
        if (at / page & mask)
            memset(block + at, 1, page);
    arrival_clear(block + rest, size - 2 * rest);
    for (size_t at = 0; at < size; at += page) {
        bool in_part = rest && (at == 0 || at + page == size);
        assert_true(is_resident(block + at) == ((at / page & mask) != 0 || in_part));
    }
    for (size_t at = 0; at < size; at++) {
        bool cleared = at >= rest && at < size - rest;
        assert_int_equal(block[at], !cleared && (at / page & mask) ? 1 : 0);
    }
    os_unmap(block, size);
}

/* N11, at the borders of the parts that are looked at. */
static void test_clear(void)
{
    core_begin();
    for (size_t size = 320 * HAK_KIB; size <= 5 * HAK_MIB; size = size * 2 + 64 * HAK_KIB)
        for (size_t mask = 0; mask <= 0x600; mask = mask * 2 + 1)
            for (size_t rest = 0; rest <= 100; rest += 100)
                clear(size, mask, rest);
}

/* In a sandbox all is written, and nothing asked. */
static void test_clear_blind(void)
{
    char *block = os_map(HAK_MIB, os_page_size());

    memset(block, 1, HAK_MIB / 2);
    arrival_before_sandbox();
    arrival_clear(block, HAK_MIB);
    for (size_t at = 0; at < HAK_MIB; at++)
        assert_int_equal(block[at], 0);
    assert_true(is_resident(block + HAK_MIB - os_page_size()));
    os_unmap(block, HAK_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        core_unit_test(test_dense),
        core_unit_test(test_sparse),
        core_unit_test(test_halves),
        core_unit_test(test_change),
        core_unit_test(test_heap),
        core_unit_test(test_blind),
        core_unit_test(test_huge_blocks),
        core_unit_test(test_huge_block_that_ends),
        core_unit_test(test_clear),
        core_unit_test(test_clear_blind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
