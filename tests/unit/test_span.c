/* Protects spans, 64 KiB to 1 MiB: one block a slab, any alignment, zero until written. */
#include "heaps.h"

#include <string.h>

#include "superslab/purge.h"

static void *take_span(struct heap *heap, unsigned class, bool *zero)
{
    void *block = NULL;

    lock_acquire(&heap->lock);
    assert_int_equal(heap_take_blocks(heap, class, &block, 1, zero), 1);
    lock_release(&heap->lock);
    return block;
}

static void *take_aligned(struct heap *heap, unsigned class, unsigned align_units, bool *zero)
{
    void *block;

    lock_acquire(&heap->lock);
    block = heap_take_aligned_span(heap, class, align_units, zero);
    lock_release(&heap->lock);
    return block;
}

static void check_zero(const char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 256)
        assert_int_equal(block[at], 0);
}

static void test_sizes(void)
{
    struct heap *heap;
    size_t units = 0;

    hak_options.thp = OPTION_NEVER; /* huge pages would touch the whole SuperSlab */
    heap = heaps_begin();
    for (size_t size = 57345; size <= POOLED_MAX; size += 4093) {
        unsigned class = class_of_size(size);
        bool zero = false;
        char *block = take_span(heap, class, &zero);
        assert_true(class_is_span(class));
        assert_true(zero);
        assert_int_equal((uintptr_t)block % UNIT_SIZE, 0);
        assert_ptr_equal(slab_of(block + size - 1), slab_of(block));
        assert_int_equal(slab_of(block)->used, 1);
        assert_int_equal(core_resident(block, class_size(class)), 0);
        units += size_classes[class].units;
        assert_int_equal(shared_pool.units_used, units);
    }
    heaps_check();
}

/* An untouched span is zero and marked so. A used one is marked again only after a purge. */
static void test_zero(void)
{
    struct heap *heap = heaps_begin();

    for (unsigned class = CLASS_SPAN_1; class < CLASS_COUNT; class++) {
        bool zero = false;
        char *block = take_span(heap, class, &zero), *again;
        assert_true(zero);
        check_zero(block, class_size(class));
        memset(block, 1, class_size(class));
        heaps_return(heap, class, (void *[]){ block }, 1);
        again = take_span(heap, class, &zero);
        assert_ptr_equal(again, block);
        assert_false(zero);
        heaps_return(heap, class, (void *[]){ again }, 1);
        heaps_release_warm(heap);
        assert_int_not_equal(purge_run(true), 0);
        zero = false;
        again = take_span(heap, class, &zero);
        assert_ptr_equal(again, block);
        assert_true(zero);
        check_zero(again, class_size(class));
        heaps_return(heap, class, (void *[]){ again }, 1);
        heaps_release_warm(heap);
        purge_run(true);
        heaps_check();
    }
}

/* A span over one written and one fresh unit is not marked as zero. */
static void test_zero_in_part(void)
{
    struct heap *heap = heaps_begin();
    bool zero;
    char *block = take_span(heap, CLASS_SPAN_1, &zero), *wide;

    block[5] = 1;
    heaps_return(heap, CLASS_SPAN_1, (void *[]){ block }, 1);
    wide = take_span(heap, CLASS_SPAN_16, &zero);
    assert_ptr_equal(wide, block);
    assert_int_equal(wide[5], 1);
    assert_false(zero);
}

/* Only spans are marked as zero, small blocks never. */
static void test_zero_of_slabs(void)
{
    struct heap *heap = heaps_begin();

    for (unsigned class = 1; class < CLASS_SPAN_1; class++) {
        bool zero = true;
        take_span(heap, class, &zero);
        assert_false(zero);
    }
}

static void test_aligned(void)
{
    struct heap *heap;
    void *blocks[16 * 5];
    unsigned classes[16 * 5];
    size_t count = 0;

    hak_options.thp = OPTION_NEVER;
    heap = heaps_begin();
    for (unsigned align_units = 1; align_units <= SPAN_MAX_UNITS; align_units *= 2)
        for (unsigned class = CLASS_SPAN_1; class < CLASS_COUNT; class++) {
            bool zero = false;
            char *block = take_aligned(heap, class, align_units, &zero);
            assert_non_null(block);
            assert_true(zero);
            assert_int_equal((uintptr_t)block % (align_units * UNIT_SIZE), 0);
            assert_int_equal(slab_of(block)->used, 1);
            for (size_t unit = 0; unit < size_classes[class].units; unit++) /* W2 */
                assert_int_equal(window_page_map()[window_unit(block) + unit], unit == 0 ? class : CLASS_NONE);
            memset(block, 1, class_size(class));
            classes[count] = class;
            blocks[count] = block;
            count++;
        }
    heaps_check();
    for (size_t i = 0; i < count; i++)
        heaps_return(heap, classes[i], &blocks[i], 1);
    heaps_release_warm(heap);
    assert_int_equal(shared_pool.units_used, 0);
    heaps_check();
}

static void test_aligned_refused(void)
{
    struct heap *heap;
    bool zero;

    heap = heaps_begin();
    hak_options.memory_limit = shared_pool_footprint() + 6 * UNIT_SIZE; /* one for the SuperSlab's header */
    assert_null(take_aligned(heap, CLASS_SPAN_6, 16, &zero));
    assert_non_null(take_aligned(heap, CLASS_SPAN_5, 16, &zero));
    assert_null(take_aligned(heap, CLASS_SPAN_1, 1, &zero));
    heaps_check();
}

/* Contents stay intact while spans of all lengths come and go. */
static void test_mixed(void)
{
    enum { MOST = 60, STEPS = 3000 };
    static struct {
        unsigned char *start;
        unsigned class;
        unsigned char mark;
    } live[MOST];
    struct heap *heap = heaps_begin();
    size_t count = 0;

    chance_begin();
    for (size_t step = 0; step < STEPS; step++) {
        if (count < MOST && chance_below(2)) {
            unsigned class = CLASS_SPAN_1 + (unsigned)chance_below(16);
            bool zero;
            live[count].class = class;
            live[count].start = take_span(heap, class, &zero);
            live[count].mark = (unsigned char)step;
            for (size_t at = 0; at < class_size(class); at += UNIT_SIZE / 2) {
                assert_true(!zero || live[count].start[at] == 0);
                live[count].start[at] = live[count].mark;
            }
            count++;
        } else if (count) {
            size_t index = chance_below(count);
            void *block = live[index].start;
            for (size_t at = 0; at < class_size(live[index].class); at += UNIT_SIZE / 2)
                assert_int_equal(live[index].start[at], live[index].mark);
            heaps_return(heap, live[index].class, &block, 1);
            live[index] = live[--count];
        }
        if (chance_below(100) == 0) {
            fake_advance(chance_below(1000) * MILLISECOND);
            purge_run(false);
        }
        if (step % 32 == 0)
            heaps_check();
    }
    core_check_untouched();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_sizes),
        core_unit_test(test_zero),
        core_unit_test(test_zero_in_part),
        core_unit_test(test_zero_of_slabs),
        core_unit_test(test_aligned),
        core_unit_test(test_aligned_refused),
        core_unit_test(test_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
