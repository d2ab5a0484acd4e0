/* Protects pool/huge.h against a model: random calls in any order, compared with a list of the live blocks. */
#include "huge_blocks.h"

#include <string.h>

#include "front/housekeeping.h"
#include "superslab/ranges.h"

enum { MODEL_STEPS = 4000, MODEL_MOST = 40 };

static struct {
    char *start;
    size_t size, mark;
} live[MODEL_MOST];
static size_t live_count;

static char *model_middle(size_t index)
{
    return live[index].start + UNIT_SIZE - sizeof live[index].mark;
}

/* Marks the block at its start, at its end, and in the part that blocks of all sizes have. */
static void model_mark(size_t index)
{
    live[index].mark = chance_next();
    memcpy(live[index].start, &live[index].mark, sizeof live[index].mark);
    memcpy(model_middle(index), &live[index].mark, sizeof live[index].mark);
    live[index].start[live[index].size - 1] = (char)live[index].mark;
}

static void model_verify(size_t index, size_t size)
{
    assert_memory_equal(live[index].start, &live[index].mark, sizeof live[index].mark);
    assert_memory_equal(model_middle(index), &live[index].mark, sizeof live[index].mark);
    if (size >= live[index].size)
        assert_int_equal(live[index].start[live[index].size - 1], (char)live[index].mark);
}

static void model_resize(size_t index, size_t size)
{
    char *resized = huge_resize(live[index].start, size, chance_below(2));

    if (!resized) {
        assert_true(size > live[index].size);
        return;
    }
    if (size < live[index].size)
        assert_ptr_equal(resized, live[index].start);
    live[index].start = resized;
    model_verify(index, size);
    live[index].size = base_align_up(size, UNIT_SIZE);
    model_mark(index);
}

static void model_check(void)
{
    size_t bytes = 0;

    for (size_t i = 0; i < live_count; i++) {
        bytes += live[i].size;
        assert_int_equal(huge_size(live[i].start, NULL), live[i].size);
        assert_true(huge_covers(live[i].start + live[i].size - 1, true));
        assert_false(huge_covers(live[i].start, false));
        for (size_t j = 0; j < i; j++)
            assert_true(live[i].start >= live[j].start + live[j].size || live[j].start >= live[i].start + live[i].size);
    }
    assert_true(huge_cached() <= hak_options.huge_cache);
    huge_check(live_count, bytes, huge_cached());
}

static void test_model(void)
{
    chance_begin();
    hak_options.huge_cache = 64 * HAK_MIB;
    core_begin();
    for (size_t step = 0; step < MODEL_STEPS; step++) {
        size_t size = UNIT_SIZE + chance_below(chance_below(4) ? 4 * HAK_MIB : 30 * HAK_MIB);
        size_t index = live_count ? chance_below(live_count) : 0;
        unsigned what = (unsigned)chance_below(10);
        bool zero;
        if (live_count == 0 || (what < 4 && live_count < MODEL_MOST)) {
            char *start = huge_allocate(size, (size_t)1 << (4 + chance_below(19)), &zero, NULL);
            assert_non_null(start);
            live[live_count].start = start;
            live[live_count].size = base_align_up(size, UNIT_SIZE);
            model_mark(live_count++);
        } else if (what < 6) {
            model_resize(index, size);
        } else if (what < 9) {
            model_verify(index, live[index].size);
            assert_true(huge_free(live[index].start, NULL));
            live[index] = live[--live_count];
        } else if (chance_below(10) == 0) {
            fake_advance(chance_below(2 * hak_options.purge_delay) * MILLISECOND);
            huge_purge(chance_below(4) == 0);
        }
        model_check();
    }
    while (live_count)
        assert_true(huge_free(live[--live_count].start, NULL));
    huge_purge(true);
    huge_check(0, 0, 0);
}

/* A range that was taken is not found again, although the table still holds its bytes. */
static void test_taken_once(void)
{
    enum { RANGES = 3, SIZE = 2 * HAK_MIB };
    char *places[RANGES] = { NULL };
    bool zero, closed;

    core_begin();
    for (unsigned i = 0; i < RANGES; i++) {
        unsigned at = i;
        char *place = huge_allocate(SIZE, BLOCK_ALIGN, &zero, NULL);
        assert_non_null(place);
        assert_non_null(huge_allocate(SIZE, BLOCK_ALIGN, &zero, NULL)); /* the ranges do not touch */
        for (; at > 0 && places[at - 1] > place; at--)
            places[at] = places[at - 1];
        places[at] = place;
    }
    for (unsigned i = 0; i < RANGES; i++)
        assert_true(huge_free(places[i], NULL));
    lock_acquire(&huge_lock);
    assert_int_equal(range_cache.count, RANGES);
    assert_false(ranges_take_at(places[0] + UNIT_SIZE, UNIT_SIZE, &closed));
    assert_false(ranges_take_at(places[1], SIZE + UNIT_SIZE, &closed));
    for (unsigned i = RANGES; i-- > 0;) {
        assert_true(ranges_take_at(places[i], SIZE, &closed));
        for (unsigned gone = i; gone < RANGES; gone++)
            assert_false(ranges_take_at(places[gone], SIZE, &closed));
    }
    assert_int_equal(range_cache.bytes, 0);
    lock_release(&huge_lock);
}

/* When the window cannot grow, freed ranges go back to the system, since they may hold the addresses that it needs. */
static void test_window_needs_room(void)
{
    char *place;
    bool zero;

    core_begin();
    place = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_true(huge_free(place, NULL));
    housekeep_make_room();
    assert_int_equal(range_cache.count, 1);
    assert_true(fake_is_mapped(place, 2 * HAK_MIB));
    atomic_store(&shared_pool.shortage, SHORTAGE_SYSTEM);
    housekeep_make_room();
    assert_int_equal(range_cache.count, 0);
    assert_false(fake_is_mapped(place, 2 * HAK_MIB));
}

int main(void)
{
    const struct CMUnitTest tests[] = { core_unit_test(test_model), core_unit_test(test_taken_once),
                                        core_unit_test(test_window_needs_room) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
