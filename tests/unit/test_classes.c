/* Protects the mapping of sizes and offsets to classes (config/classes.h), exhaustively, and S1 to S3. */
#include "support.h"

#include "config/classes.h"
#include "front/direct.h"

enum { SPAN_STRIDE = 61 }; /* distance of the offsets tested inside a span */

static void test_class_of_size(void **state)
{
    unsigned before = 1, worst_class = 0;
    size_t worst_size = 0;
    double worst = 0;

    (void)state;
    for (size_t size = 0; size <= POOLED_MAX; size++) {
        unsigned class = class_of_size(size);
        size_t spare;
        if (class < 1 || class >= CLASS_COUNT || class < before || class > before + 1)
            fail_msg("%zu: class %u after %u", size, class, before);
        before = class;
        /* the smallest class that fits */
        if (class_size(class) < size || (class > 1 && class_size(class - 1) >= size))
            fail_msg("%zu: class %u of %zu", size, class, class_size(class));
        spare = class_size(class) - size;
        if (class_is_span(class))
            assert_true(spare < UNIT_SIZE);
        else if (size <= 128)
            assert_true(spare < BLOCK_ALIGN || size == 0);
        else if ((double)spare / (double)class_size(class) > worst) {
            worst = (double)spare / (double)class_size(class);
            worst_size = size;
            worst_class = class;
        }
    }
    assert_int_equal(before, CLASS_COUNT - 1);
    print_message("the most wasted above 128 bytes: %.2f %%, of %zu for %zu\n", worst * 100, class_size(worst_class),
                  worst_size);
    assert_true(worst <= 0.20);
}

/* A class fits exactly the sizes that it serves. An aligned block may be of any class that is large enough. */
static void test_class_fits(void **state)
{
    const void *address = (const void *)(uintptr_t)(3 * UNIT_SIZE + 4096);
    (void)state;
    for (unsigned class = CLASS_NONE; class < CLASS_COUNT; class++) {
        size_t most = class_size(class), least = class <= CLASS_16 ? 0 : class_size(class - 1) + 1;
        const size_t sizes[] = { 0, 1, least, least - 1, most, most + 1, POOLED_MAX, POOLED_MAX + 1, SIZE_MAX };
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            bool serves = class != CLASS_NONE && sizes[i] <= POOLED_MAX && class_of_size(sizes[i]) == class;
            assert_int_equal(class_fits(class, address, sizes[i], 1), serves);
            assert_int_equal(class_fits(class, address, sizes[i], 4096), sizes[i] <= most);
            assert_false(class_fits(class, address, sizes[i], 8192));
        }
    }
}

static void test_table(void **state)
{
    (void)state;
    assert_int_equal(class_size(CLASS_NONE), 0);
    assert_int_equal(size_classes[CLASS_NONE].slot_limit, 0);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct size_class *row = &size_classes[class];
        size_t bytes = row->units * UNIT_SIZE;
        assert_true(row->size > row[-1].size); /* S1 */
        assert_int_equal(row->size % BLOCK_ALIGN, 0);
        assert_int_equal(row->blocks, bytes / row->size);
        if (class_is_span(class)) {
            assert_int_equal(row->units, class - CLASS_SPAN_1 + 1);
            assert_int_equal(row->size, bytes);
        } else { /* S3 */
            assert_in_range(row->blocks, 1, SLAB_MAX_BLOCKS);
            assert_true((bytes - (size_t)row->blocks * row->size) * 8 <= bytes);
        }
    }
    assert_int_equal(class_size(CLASS_COUNT - 1), POOLED_MAX);
    assert_int_equal(size_classes[CLASS_COUNT - 1].units, SPAN_MAX_UNITS);
}

static void check_index(unsigned class, size_t offset)
{
    if (class_block_index(class, offset) != offset / class_size(class))
        fail_msg("class %u, offset %zu: block %u", class, offset, class_block_index(class, offset));
}

static void test_block_index(void **state)
{
    (void)state;
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        size_t bytes = size_classes[class].units * UNIT_SIZE, stride = class_is_span(class) ? SPAN_STRIDE : 1;
        for (size_t offset = 0; offset < bytes; offset += stride)
            check_index(class, offset);
        check_index(class, bytes - 1);
        for (size_t block = 0; block < size_classes[class].blocks; block++) {
            assert_int_equal(class_block_index(class, block * class_size(class)), block);
            assert_int_equal(class_block_index(class, (block + 1) * class_size(class) - 1), block);
        }
    }
}

static void check_start(unsigned class, size_t offset)
{
    const struct size_class *row = &size_classes[class];
    const void *address = (const void *)(uintptr_t)(7 * UNIT_SIZE + offset);
    bool starts = offset % row->size == 0 && offset / row->size < row->blocks;

    if (row->units > 1 && !class_is_span(class))
        starts = false; /* the place in a unit does not tell */
    if (class_starts_at(class, address) != starts)
        fail_msg("class %u, offset %zu: a block %s there", class, offset, starts ? "starts" : "does not start");
}

static void test_starts(void **state)
{
    (void)state;
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        for (size_t offset = 0; offset < UNIT_SIZE; offset++)
            check_start(class, offset);
    for (size_t offset = 0; offset < UNIT_SIZE; offset++)
        assert_false(class_starts_at(CLASS_NONE, (const void *)(uintptr_t)offset));
}

/* S2: offsets imply the alignment, because slabs begin at unit boundaries. */
static void test_alignment(void **state)
{
    (void)state;
    for (size_t alignment = BLOCK_ALIGN; alignment <= UNIT_SIZE; alignment *= 2) {
        bool served = false;
        for (unsigned class = 1; class < CLASS_COUNT; class++) {
            if (class_size(class) % alignment != 0)
                continue;
            served = true;
            for (size_t block = 0; block < size_classes[class].blocks; block++)
                assert_int_equal(block * class_size(class) % alignment, 0);
        }
        assert_true(served);
    }
}

static void test_slots(void **state)
{
    static uint8_t taken[CACHE_SLOTS];

    (void)state;
    taken[CLASS_NONE_SLOT] = 1;
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct size_class *row = &size_classes[class];
        /* slots[base] is the sentinel. The blocks follow it. */
        for (unsigned slot = row->slot_base; slot <= (unsigned)row->slot_base + row->slot_limit; slot++) {
            assert_true(slot < CACHE_SLOTS);
            assert_int_equal(taken[slot]++, 0);
        }
        for (unsigned slot = row->first_base; slot <= (unsigned)row->first_base + row->first_limit; slot++) {
            assert_true(slot < CACHE_SLOTS_FIRST);
            assert_int_equal(taken[slot]++, 0);
        }
        assert_true(row->first_limit >= 1 && row->first_limit <= base_max(row->slot_limit, 1));
        assert_true(row->slot_limit <= 256);
        if (class_is_span(class) && class_size(class) > 512 * HAK_KIB)
            assert_int_equal(row->slot_limit, 0);
        else
            assert_true(row->slot_limit > 0);
    }
    for (size_t slot = 0; slot < CACHE_SLOTS; slot++)
        assert_int_equal(taken[slot], slot < CACHE_SLOTS_FIRST || slot >= CACHE_SLOTS_FIRST + COUNTDOWN_SLOTS);
}

/* S4: the class for an alignment is the smallest that fits the size and whose blocks are all aligned. */
static void test_direct_class(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= UNIT_SIZE; alignment *= 2)
        for (size_t size = 0; size <= POOLED_MAX; size += size < 2 * UNIT_SIZE ? 1 : UNIT_SIZE / 2) {
            unsigned class = direct_class(alignment, size), wanted = class_of_size(size);
            while (class_size(wanted) % alignment != 0)
                wanted++;
            if (class != wanted)
                fail_msg("%zu bytes at a multiple of %zu: class %u, not %u", size, alignment, class, wanted);
        }
    assert_int_equal(direct_class(1, POOLED_MAX + 1), CLASS_NONE);
    assert_int_equal(direct_class(2 * UNIT_SIZE, 1), CLASS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class_of_size), cmocka_unit_test(test_class_fits),  cmocka_unit_test(test_table),
        cmocka_unit_test(test_block_index),   cmocka_unit_test(test_alignment), cmocka_unit_test(test_slots),
        cmocka_unit_test(test_direct_class),  cmocka_unit_test(test_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
