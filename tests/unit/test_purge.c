/* Protects superslab/purge.h: which memory is purged, when, in how many calls, and the state after a refused purge.
 *
 * The clock stands still. */
#include "core.h"

#include <stdio.h>
#include <string.h>

#include "pool/slab.h"
#include "superslab/purge.h"

#define RUN_UNITS (SUPERSLAB_UNITS - 1)
/* Times are stored in steps of two milliseconds. */
#define STEP 2

static struct slab *slabs[80 * RUN_UNITS];

static uint64_t delay(void)
{
    return hak_options.purge_delay;
}

static void advance(uint64_t milliseconds)
{
    fake_advance(milliseconds * MILLISECOND);
}

static bool purge_due(void)
{
    return purge_is_due(shared_pool_now_ms());
}

/* Takes `count` whole SuperSlabs, and writes to every unit. */
static void take_superslabs(size_t count)
{
    core_acquire(1, 1, count * RUN_UNITS, slabs);
    for (size_t i = 0; i < count * RUN_UNITS; i++)
        core_touch(slabs[i]);
}

static void release(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        core_release(slabs[i]);
}

/* ---- When ---- */

static void test_delay(void)
{
    core_begin();
    take_superslabs(1);
    assert_false(purge_due());
    advance(10 * delay());
    release(3, 5);
    assert_false(purge_due());
    advance(delay() - STEP);
    assert_false(purge_due());
    assert_int_equal(purge_run(false), 0);
    assert_int_equal(fake_calls(FAKE_PURGE), 0);
    assert_int_equal(shared_pool.units_dirty, 5);
    advance(2 * STEP);
    assert_int_equal(purge_run(false), 5 * UNIT_SIZE);
    assert_int_equal(fake_calls(FAKE_PURGE), 1);
    assert_int_equal(shared_pool.units_dirty, 0);
    core_check_pool();
    core_check_untouched();
    /* Nothing is left to purge. */
    assert_int_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    advance(10 * delay());
    assert_int_equal(purge_run(false), 0);
    assert_int_equal(fake_calls(FAKE_PURGE), 1);
}

/* A release announces the purge, which is due a delay later. */
static void test_due(void)
{
    core_begin();
    take_superslabs(1);
    release(0, 1);
    advance(delay() / 2);
    release(1, 1);
    advance(delay() / 2 + STEP);
    assert_true(purge_due());
    /* A later release postponed the SuperSlab's purge, so it becomes due again. */
    assert_int_equal(purge_run(false), 0);
    assert_false(purge_due());
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    advance(delay() + STEP);
    assert_true(purge_due());
    assert_int_equal(purge_run(false), 2 * UNIT_SIZE);
}

static void test_no_delay(void)
{
    hak_options.purge_delay = 0;
    core_begin();
    take_superslabs(1);
    release(4, 4);
    assert_true(purge_due());
    assert_int_equal(purge_run(false), 4 * UNIT_SIZE);
    core_check_untouched();
}

/* In a SuperSlab with frequent frees, unused units are purged all the same. The unit that is reused is not. */
static void test_aged(void)
{
    struct slab *wanted;
    size_t purged = 0;

    core_begin();
    take_superslabs(1);
    release(10, 3);
    core_release(slabs[20]);
    for (unsigned i = 0; i < 12; i++) {
        core_acquire(1, 1, 1, &wanted);
        if (i == 0) /* the shortest free stretch */
            assert_ptr_equal(wanted, slabs[20]);
        core_touch(wanted);
        advance(delay() / 4);
        core_release(wanted);
        purged += purge_run(false);
        assert_int_equal(purged, i < 4 ? 0 : 3 * UNIT_SIZE);
        core_check_pool();
    }
    assert_int_equal(purged, 3 * UNIT_SIZE);
    for (size_t i = 10; i < 13; i++)
        assert_int_equal(core_resident(slabs[i]->start, UNIT_SIZE), 0);
    assert_int_equal(core_resident(slabs[20]->start, UNIT_SIZE), UNIT_SIZE);
}

static void test_all(void)
{
    core_begin();
    take_superslabs(3);
    release(0, 40);
    assert_int_equal(purge_run(true), 31 * UNIT_SIZE + UNIT_SIZE + 9 * UNIT_SIZE);
    assert_int_equal(shared_pool.units_dirty, 0);
    core_check_untouched();
}

static void test_stale(void)
{
    core_begin();
    take_superslabs(1);
    advance(2 * delay());
    atomic_store(&shared_pool.stale, true); /* memory released now counts as a delay old */
    release(0, 7);
    atomic_store(&shared_pool.stale, false);
    assert_int_equal(purge_run(false), 7 * UNIT_SIZE);
}

/* ---- Which memory ---- */

static void test_neighbours_keep_contents(void)
{
    core_begin();
    take_superslabs(1);
    for (size_t i = 0; i < RUN_UNITS; i++)
        memset(slabs[i]->start, (int)i, UNIT_SIZE);
    for (size_t i = 1; i < RUN_UNITS; i += 3)
        core_release(slabs[i]);
    purge_run(true);
    assert_int_equal(fake_calls(FAKE_PURGE), 10);
    for (size_t i = 0; i < RUN_UNITS; i++)
        for (size_t at = 0; at < UNIT_SIZE; at += 512)
            if (i % 3 != 1)
                assert_int_equal(slabs[i]->start[at], i);
    core_check_untouched();
}

/* After a purge the pool marks a unit as zero, and it is zero. Before the purge it is not marked. */
static void test_zero_after(void)
{
    struct slab *slab;

    core_begin();
    take_superslabs(1);
    release(0, 2);
    core_acquire(2, 1, 1, &slab);
    assert_false(slab->zero);
    slab->units = 1;
    core_release(slab);
    purge_run(true);
    core_acquire(1, 1, 1, &slab);
    assert_true(slab->zero);
    for (size_t at = 0; at < UNIT_SIZE; at++)
        assert_int_equal(slab->start[at], 0);
}

/* An empty SuperSlab is purged with its header: nothing of it stays resident. */
static void test_empty_with_header(void)
{
    char *start;

    core_begin();
    take_superslabs(1);
    start = (char *)superslab_of(slabs[0]->start);
    release(0, RUN_UNITS);
    assert_int_equal(shared_pool.dirty_empties, 1);
    assert_int_not_equal(core_resident(start, UNIT_SIZE), 0);
    advance(delay() + STEP);
    assert_int_equal(purge_run(false), SUPERSLAB_SIZE);
    assert_int_equal(fake_calls(FAKE_PURGE), 1);
    assert_int_equal(core_resident(start, SUPERSLAB_SIZE), 0);
    assert_int_equal(shared_pool.dirty_empties, 0);
    core_check_pool();
    take_superslabs(1);
    assert_int_equal(shared_pool.superslabs, 1);
    for (size_t i = 0; i < RUN_UNITS; i++)
        assert_ptr_equal(slab_of(slabs[i]->start + UNIT_SIZE - 1), slabs[i]);
}

/* Neighbouring units leave in one call, even across SuperSlabs, at most 32 SuperSlabs under one hold of the lock. */
static void test_merged(void)
{
    core_begin();
    take_superslabs(40);
    /* The last 10 units of the first, the next two whole, and the first 5 units of the fourth. */
    release(21, 10 + 2 * RUN_UNITS);
    release(3 * RUN_UNITS, 5);
    assert_int_equal(purge_run(true), (10 + 64 + 5) * UNIT_SIZE);
    /* The fourth SuperSlab's header lies between. */
    assert_int_equal(fake_calls(FAKE_PURGE), 2);
    release(4 * RUN_UNITS, 36 * RUN_UNITS);
    assert_int_equal(purge_run(true), 36 * SUPERSLAB_SIZE);
    assert_int_equal(fake_calls(FAKE_PURGE), 4);
    core_check_pool();
    core_check_untouched();
}

/* ---- P7: huge pages ---- */

static struct slot *huge_slot(uint64_t advised)
{
    core_check_pool();
    core_check_untouched();
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), advised);
    return &shared_pool.slots[window_slot_of(slabs[0])];
}

static void begin_with_huge_pages(void)
{
    hak_options.thp = OPTION_ALWAYS;
    core_begin();
    take_superslabs(1);
    assert_int_equal(huge_slot(1)->huge_pages, PAGES_HUGE);
}

/* Huge pages are refused for a SuperSlab before a part of it is purged. */
static void test_split(void)
{
    begin_with_huge_pages();
    release(0, 20);
    purge_run(true);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    /* From now on taking a unit touches only that unit, and purging another part costs no further advice. */
    core_acquire(1, 1, 1, slabs);
    assert_true(slabs[0]->zero);
    assert_int_equal(shared_pool.units_dirty, 0);
    core_touch(slabs[0]);
    release(25, 3);
    purge_run(true);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    /* Huge pages are not requested again when all units are in use, because a unit in use may be mostly untouched. */
    core_acquire(1, 1, 19, slabs + 1);
    core_acquire(1, 1, 3, slabs + 25);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    assert_int_equal(shared_pool.units_dirty, 0);
}

/* The units that a huge page's first touch brings memory behind wait for a purge delay, as freed ones do. */
static void test_touched_with_huge_page_waits(void)
{
    hak_options.thp = OPTION_ALWAYS;
    core_begin();
    core_acquire(1, 1, 1, slabs);
    assert_int_equal(shared_pool.units_dirty, RUN_UNITS - 1);
    fake_advance((hak_options.purge_delay - 4) * MILLISECOND);
    purge_run(false);
    assert_int_equal(huge_slot(1)->huge_pages, PAGES_HUGE);
    assert_int_equal(shared_pool.units_dirty, RUN_UNITS - 1);
    fake_advance(8 * MILLISECOND);
    purge_run(false);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    assert_int_equal(shared_pool.units_dirty, 0);
}

/* A SuperSlab purged whole keeps its huge pages. One that was split gets them again after all of it was purged. */
static void test_split_begins_anew(void)
{
    begin_with_huge_pages();
    release(0, RUN_UNITS);
    purge_run(true);
    assert_int_equal(huge_slot(1)->huge_pages, PAGES_HUGE);
    take_superslabs(1);
    release(0, 9);
    purge_run(true);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    release(9, RUN_UNITS - 9);
    purge_run(true);
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    core_acquire(3, 1, 1, slabs);
    assert_int_equal(huge_slot(3)->huge_pages, PAGES_HUGE);
    assert_int_equal(shared_pool.units_dirty, RUN_UNITS - 3);
}

/* When the system refuses the purge, the part stays split, with memory behind it. */
static void test_split_refused(void)
{
    begin_with_huge_pages();
    release(5, 4);
    fake_fail_nth(FAKE_PURGE, 1);
    assert_int_equal(purge_run(true), 0);
    fake_fail_nothing();
    assert_int_equal(huge_slot(2)->huge_pages, PAGES_SPLIT);
    assert_int_equal(shared_pool.units_dirty, 4);
}

/* Refusing huge pages costs a mapping, of which a process has few. Beyond POOL_SPLIT_MAX it is not done. */
static void test_split_limit(void)
{
    begin_with_huge_pages();
    shared_pool.split = POOL_SPLIT_MAX;
    release(5, 4);
    assert_int_equal(purge_run(true), 4 * UNIT_SIZE);
    shared_pool.split -= POOL_SPLIT_MAX;
    assert_int_equal(huge_slot(1)->huge_pages, PAGES_SPLIT);
    core_acquire(1, 1, 4, slabs + 5);
    assert_true(slabs[5]->zero);
}

/* ---- The LRU of empties ---- */

static void test_lru(void)
{
    static const unsigned emptied[] = { 3, 0, 4, 1, 2 };
    uint32_t first;

    hak_options.ss_lru_size = 3;
    core_begin();
    take_superslabs(6);
    first = window_slot_of(slabs[0]->start);
    for (size_t i = 0; i < 3; i++)
        release(emptied[i] * RUN_UNITS, RUN_UNITS);
    assert_false(purge_due());
    for (size_t i = 3; i < 5; i++)
        release(emptied[i] * RUN_UNITS, RUN_UNITS);
    assert_int_equal(shared_pool.dirty_empties, 5);
    assert_true(purge_due());
    advance(STEP);
    assert_int_equal(purge_run(false), 2 * SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.dirty_empties, 3);
    core_check_pool();
    /* The SuperSlabs that were emptied first have left. */
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(core_resident(window_slot_address(first + emptied[i]), SUPERSLAB_SIZE) == 0, i < 2);
    advance(delay() + STEP);
    assert_int_equal(purge_run(false), 3 * SUPERSLAB_SIZE);
}

/* HAKMEM_SS_LRU_DEBUG: one line for each SuperSlab that leaves, the oldest first, with how many stay behind it. */
static void test_lru_tells(void)
{
    const char *said;
    char words[80];

    hak_options.ss_lru_size = 2;
    hak_options.ss_lru_debug = 1;
    core_begin();
    take_superslabs(5);
    for (size_t i = 0; i < 5; i++)
        release(i * RUN_UNITS, RUN_UNITS);
    advance(STEP);
    capture_begin();
    assert_int_equal(purge_run(false), 3 * SUPERSLAB_SIZE);
    said = capture_end();
    assert_int_equal(count_of(said, " leaves, "), 3);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t number = window_slot_of(slabs[i * RUN_UNITS]);
        snprintf(words, sizeof words, "LRU: SuperSlab %u leaves, %u stay\n", number, 4 - i);
        assert_has(said, words);
    }
    assert_int_equal(shared_pool.dirty_empties, 2);
}

static void test_lru_of_none(void)
{
    hak_options.ss_lru_size = 0;
    core_begin();
    take_superslabs(2);
    release(0, RUN_UNITS - 1);
    assert_false(purge_due());
    core_release(slabs[RUN_UNITS - 1]);
    assert_true(purge_due());
    assert_int_equal(purge_run(false), SUPERSLAB_SIZE);
    core_check_pool();
}

/* ---- Refused ---- */

static void test_refused(void)
{
    struct slab *slab;

    core_begin();
    take_superslabs(3);
    release(0, RUN_UNITS);
    release(2 * RUN_UNITS, RUN_UNITS);
    fake_fail_nth(FAKE_PURGE, 1);
    assert_int_equal(purge_run(true), SUPERSLAB_SIZE);
    fake_fail_nothing();
    core_check_pool();
    core_check_untouched();
    assert_int_equal(shared_pool.units_dirty, RUN_UNITS);
    assert_int_equal(shared_pool.dirty_empties, 1);
    core_acquire(1, 1, 1, &slab);
    assert_false(slab->zero);
    core_release(slab);
    assert_int_equal(purge_run(true), SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.units_dirty, 0);
    core_check_pool();
    core_check_untouched();
}

/* ---- P5: when the system maps no more ---- */

static void test_tight(void)
{
    struct slab *slab, *more[RUN_UNITS];
    char *start;

    core_begin();
    take_superslabs(3); /* all slots that are mapped */
    fake_fail_from(FAKE_MAP_AT, 1);
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slab), 0);
    start = (char *)superslab_of(slabs[0]->start);
    release(0, RUN_UNITS);
    assert_true(purge_due());
    purge_run(false);
    assert_false(fake_is_mapped(start, SUPERSLAB_SIZE));
    /* A stale pointer into the slot is distinguished from a pointer that never was HAKMEM's. */
    assert_true(window_in_superslab(start + UNIT_SIZE) && !window_contains(start + UNIT_SIZE));
    core_check_pool();
    /* The slot cannot be taken until it is mapped again. */
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slab), 0);
    core_check_pool();
    fake_fail_nothing();
    core_acquire(1, 1, RUN_UNITS, more);
    assert_true(fake_is_mapped(start, SUPERSLAB_SIZE) && window_contains(start + UNIT_SIZE));
    for (size_t i = 0; i < RUN_UNITS; i++) {
        assert_true(more[i]->zero);
        core_touch(more[i]);
    }
    core_check_pool();
}

static void test_shortage_refused(void)
{
    core_begin();
    take_superslabs(2);
    atomic_store(&shared_pool.shortage, SHORTAGE_SYSTEM);
    release(0, RUN_UNITS);
    fake_fail_nth(FAKE_PURGE, 2); /* the purge succeeds, the unmapping fails */
    assert_int_equal(purge_run(false), SUPERSLAB_SIZE);
    fake_fail_nothing();
    core_check_pool();
    core_check_untouched();
    take_superslabs(1);
    core_check_pool();
}

/* ---- mlockall ---- */

/* mlockall puts memory behind everything mapped, so purging everything also purges pages that nobody touched. */
static void test_locked(void)
{
    static char *starts[4 * RUN_UNITS];

    core_begin();
    take_superslabs(4);
    for (size_t i = 0; i < 4 * RUN_UNITS; i++)
        starts[i] = slabs[i]->start;
    release(0, 3 * RUN_UNITS + 7);
    purge_run(true);
    core_check_untouched();
    for (uint32_t number = window_slots_begin(); number < window_slots_mapped(); number++)
        assert_true(os_populate(window_slot_address(number), SUPERSLAB_SIZE));
    assert_true(shared_pool.slots_unused < window_slots_mapped());
    fake_set_memory_locked(true);
    purge_run(true);
    assert_int_equal(shared_pool.slots_unused, window_slots_mapped());
    for (size_t i = 0; i < 4 * RUN_UNITS; i++)
        assert_int_equal(core_resident(starts[i], UNIT_SIZE), i < 3 * RUN_UNITS + 7 ? 0 : UNIT_SIZE);
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_delay),
        core_unit_test(test_due),
        core_unit_test(test_no_delay),
        core_unit_test(test_aged),
        core_unit_test(test_all),
        core_unit_test(test_stale),
        core_unit_test(test_neighbours_keep_contents),
        core_unit_test(test_zero_after),
        core_unit_test(test_empty_with_header),
        core_unit_test(test_merged),
        core_unit_test(test_touched_with_huge_page_waits),
        core_unit_test(test_split),
        core_unit_test(test_split_begins_anew),
        core_unit_test(test_split_refused),
        core_unit_test(test_split_limit),
        core_unit_test(test_lru),
        core_unit_test(test_lru_tells),
        core_unit_test(test_lru_of_none),
        core_unit_test(test_refused),
        core_unit_test(test_tight),
        core_unit_test(test_shortage_refused),
        core_unit_test(test_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
