/* Protects superslab/strict.h: a write that leaves its slab faults, on kernels with and without cheap guards. */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "observe/stats.h"
#include "superslab/strict.h"
#include "superslab/purge.h"
#include "superslab/superslab.h"

enum { SLABS_OF_A_SUPERSLAB = 15 };

/* Whether the kernel can read the byte: a write of it to a pipe fails with EFAULT if not. */
static bool is_accessible(const char *byte)
{
    static int ends[2];
    char drop;

    if (ends[1] == 0)
        assert_int_equal(pipe(ends), 0);
    if (write(ends[1], byte, 1) != 1) {
        assert_int_equal(errno, EFAULT);
        return false;
    }
    assert_int_equal(read(ends[0], &drop, 1), 1);
    return true;
}

/* The units before and behind the slab cannot be accessed. Each of its own pages can be. */
static void check_enclosed(const struct slab *slab)
{
    const char *start = slab->start, *end = start + slab->units * UNIT_SIZE;

    assert_false(is_accessible(start - 1));
    assert_false(is_accessible(start - UNIT_SIZE));
    assert_false(is_accessible(end));
    assert_false(is_accessible(end + UNIT_SIZE - 1));
    for (const char *page = start; page < end; page += 4096)
        assert_true(is_accessible(page));
}

/* Each unit of the slab's SuperSlab that has no slab and no memory is closed. */
static void check_unused_closed(const struct slab *slab)
{
    const struct slot *slot = &shared_pool.slots[window_slot_of(slab)];

    for (unsigned unit = 1; unit < SUPERSLAB_UNITS; unit++)
        if ((slot->free & ~slot->touched) >> unit & 1)
            assert_false(is_accessible((const char *)superslab_of(slab) + unit * UNIT_SIZE));
}

/* Slabs of each length lie between guard units, and no header lies beside one. */
static void test_slabs_are_enclosed(void)
{
    struct slab *slabs[3];

    core_begin();
    for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++) {
        core_acquire(units, 1, 3, slabs);
        for (size_t i = 0; i < 3; i++) {
            check_enclosed(slabs[i]);
            check_unused_closed(slabs[i]);
        }
        for (size_t i = 0; i < 3; i++)
            core_release(slabs[i]);
    }
    core_check_pool();
    core_check_untouched();
}

/* Behind the last slab of a SuperSlab lies the next one's header. */
static void test_headers_are_enclosed(void)
{
    enum { COUNT = STRICT_FIRST - 1 }; /* one slot has metadata */
    struct slab *slabs[COUNT * SLABS_OF_A_SUPERSLAB];

    core_begin();
    core_acquire(1, 1, sizeof slabs / sizeof slabs[0], slabs);
    assert_int_equal(shared_pool.superslabs, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const char *header = window_slot_address(shared_pool.slots_unused - 1 - i);
        assert_true(is_accessible(header));
        assert_false(is_accessible(header + UNIT_SIZE));
        assert_false(is_accessible(header + SUPERSLAB_SIZE - 1));
    }
    core_check_pool();
}

/* Every run that strict_fits allows finds a place in a SuperSlab, and no other is looked for. */
static void test_aligned_runs(void)
{
    core_begin();
    for (unsigned align_units = 1; align_units <= SPAN_MAX_UNITS; align_units *= 2) {
        for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++) {
            struct slab *slab;
            size_t superslabs = shared_pool.superslabs,
                   got = shared_pool_acquire(units, align_units, 1, POOL_DENSE, &slab);
            assert_int_equal(got, align_units < 16 || units <= 8);
            assert_int_equal(got, strict_fits(units, align_units));
            assert_true(shared_pool.superslabs - superslabs <= 1);
            if (got) {
                assert_int_equal(slab_first_unit(slab) % align_units, 0);
                core_touch(slab);
            }
        }
    }
    core_check_pool();
}

/* A slab is as likely to be in one place of an EMPTY SuperSlab as in another. A span is at either end. */
static void test_places_are_random(void)
{
    enum { TRIES = 3000 };
    size_t first[SUPERSLAB_UNITS] = { 0 };
    struct slab *slab;

    core_begin();
    for (size_t i = 0; i < TRIES; i++) {
        core_acquire(1, 1, 1, &slab);
        first[slab_first_unit(slab)]++;
        core_release(slab);
        purge_run(true); /* units with memory come first */
    }
    for (unsigned unit = 2; unit < SUPERSLAB_UNITS; unit += 2)
        assert_in_range(first[unit], TRIES / SLABS_OF_A_SUPERSLAB / 2, TRIES / SLABS_OF_A_SUPERSLAB * 2);
    memset(first, 0, sizeof first);
    for (size_t i = 0; i < TRIES; i++) {
        core_acquire(9, 1, 1, &slab);
        first[slab_first_unit(slab)]++;
        core_release(slab);
        purge_run(true);
    }
    assert_in_range(first[2], TRIES / 3, TRIES * 2 / 3);
    assert_int_equal(first[2] + first[22], TRIES);
}

/* Spans of all lengths share SuperSlabs: two of 14 units fit, or one of 16 and one of 12. */
static void test_ends_leave_room(void)
{
    static const unsigned lengths[][2] = { { 14, 14 }, { 16, 12 }, { 12, 16 }, { 13, 15 }, { 13, 1 } };
    struct slab *slabs[2];

    core_begin();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (unsigned k = 0; k < 2; k++) {
            core_acquire(lengths[i][k], 1, 1, &slabs[k]);
            check_enclosed(slabs[k]);
        }
        assert_int_equal(shared_pool.superslabs, 1);
        core_check_pool();
        for (unsigned k = 0; k < 2; k++)
            core_release(slabs[k]);
    }
}

/* The first SuperSlabs are strict, and one in STRICT_SHARE of the others. These keep huge pages. */
static void test_one_in_eight(void)
{
    enum { COUNT = 2000 };
    size_t strict = 0, huge = 0;

    core_begin();
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(i >= STRICT_FIRST || strict_is(window_slots_begin() + i));
        strict += strict_is(window_slots_begin() + i);
    }
    assert_in_range(strict, COUNT / STRICT_SHARE / 2, COUNT / STRICT_SHARE * 2);
    for (unsigned i = 0; i < 64; i++) {
        struct slab *slab, *rest;
        core_acquire(16, 1, 1, &slab);
        core_use(slab, 16 * UNIT_SIZE);
        core_acquire(15, 1, 1, &rest);
        core_use(rest, 15 * UNIT_SIZE);
        huge += shared_pool.slots[window_slot_of(slab)].huge_pages == PAGES_HUGE;
        assert_true(strict_is(window_slot_of(slab)) ==
                    (shared_pool.slots[window_slot_of(slab)].huge_pages == PAGES_SMALL));
    }
    assert_true(huge > 0);
    core_check_pool();
}

/* What a purge gave back is closed, and a slab that comes there later is open. */
static void test_purged_is_closed(void)
{
    struct slab *slabs[SLABS_OF_A_SUPERSLAB];

    core_begin();
    core_acquire(1, 1, SLABS_OF_A_SUPERSLAB, slabs);
    for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++)
        core_touch(slabs[i]);
    for (size_t i = 1; i < SLABS_OF_A_SUPERSLAB; i++)
        core_release(slabs[i]);
    purge_run(true);
    check_unused_closed(slabs[0]);
    core_check_pool();
    core_check_untouched();
    core_acquire(1, 1, SLABS_OF_A_SUPERSLAB - 1, slabs + 1);
    assert_int_equal(shared_pool.superslabs, 1);
    for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++) {
        check_enclosed(slabs[i]);
        core_touch(slabs[i]);
    }
    core_check_pool();
}

/* Units with memory that come to lie beside a slab are closed, and their memory leaves. */
static void test_dirty_neighbours(void)
{
    struct slab *wide, *narrow, *held;
    size_t dirty;

    core_begin();
    core_acquire(1, 1, 1, &held);
    core_acquire(12, 1, 1, &wide);
    core_touch(wide);
    core_release(wide);
    dirty = shared_pool.units_dirty;
    core_acquire(5, 1, 1, &narrow);
    check_enclosed(narrow);
    assert_in_range(dirty - shared_pool.units_dirty, 5 + 1, 5 + 2);
    core_check_pool();
    core_check_untouched();
}

/* A SuperSlab that was EMPTY serves slabs of another length: its guard units move, also when its header was given back
 * and does not tell where they were, and when it was unmapped (P5). */
static void emptied_serves_others(bool purged, bool unmapped)
{
    struct slab *slabs[SLABS_OF_A_SUPERSLAB], *span;

    core_begin();
    for (unsigned round = 0; round < 4; round++) {
        core_acquire(1, 1, SLABS_OF_A_SUPERSLAB, slabs);
        assert_int_equal(shared_pool.superslabs, 1);
        for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++) {
            core_touch(slabs[i]);
            check_enclosed(slabs[i]);
        }
        for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++)
            core_release(slabs[i]);
        if (purged)
            purge_run(true);
        if (unmapped)
            purge_address_space();
        core_acquire(12, 1, 1, &span);
        assert_int_equal(shared_pool.superslabs, 1);
        core_touch(span);
        check_enclosed(span);
        core_check_pool();
        core_check_untouched();
        core_release(span);
    }
}

static void test_emptied_serves_others(void) { emptied_serves_others(false, false); }
static void test_emptied_and_purged_serves_others(void) { emptied_serves_others(true, false); }
static void test_emptied_and_unmapped_serves_others(void) { emptied_serves_others(true, true); }

/* Kernels before 6.13 close a unit by mprotect, at the cost of mappings. */
static void test_without_guards_of_the_kernel(void)
{
    fake_fail_from(FAKE_GUARD, 1);
    emptied_serves_others(true, false);
}

/* Without os_guard, a process has no more mappings than it may: SuperSlabs far behind the first have no guards. */
static void test_mappings_are_bounded(void)
{
    enum { COUNT = 9000, LAST = 8192 };
    size_t closed = 0, behind = 0;

    core_begin();
    fake_fail_from(FAKE_GUARD, 1);
    for (unsigned i = 0; i < COUNT; i++) {
        struct slab *slab;
        bool is_behind;
        core_acquire(16, 1, 1, &slab);
        if (!strict_is(window_slot_of(slab)))
            continue;
        is_behind = window_slot_of(slab) >= window_slots_begin() + LAST;
        assert_true(is_behind == (superslab_of(slab)->guards == 0));
        closed += !is_behind;
        behind += is_behind;
    }
    assert_true(closed > 0 && behind > 0);
    core_check_pool();
}

/* If the kernel refuses os_guard and os_protect, slabs lie without guards beside them, and one line says so. */
static void test_refused(void)
{
    struct slab *slabs[SLABS_OF_A_SUPERSLAB];
    const char *said;

    core_begin();
    fake_fail_from(FAKE_ANY, 1);
    capture_begin();
    core_acquire(1, 1, SLABS_OF_A_SUPERSLAB, slabs);
    strict_say_refused();
    strict_say_refused();
    said = capture_end();
    assert_non_null(strstr(said, "from here on some slabs have none beside them; raise vm.max_map_count"));
    assert_null(strstr(strstr(said, "from here on") + 1, "from here on"));
    for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++)
        core_touch(slabs[i]);
    core_check_pool();
}

/* If units cannot be opened one by one, all of their SuperSlab are; if that fails too, memory is out. */
static void test_cannot_be_opened(void)
{
    struct slab *slab, *other;

    core_begin();
    core_acquire(1, 1, 1, &slab);
    core_touch(slab);
    fake_fail_from(FAKE_GUARD, 1);
    assert_int_equal(shared_pool_acquire(4, 1, 1, POOL_DENSE, &other), 0);
    fake_fail_nothing();
    core_acquire(4, 1, 1, &other);
    check_enclosed(other);
    fake_fail_nth(FAKE_GUARD, 1);
    core_acquire(4, 1, 1, &other);
    fake_fail_nothing();
    core_touch(other);
    assert_int_equal(superslab_of(other)->guards, 0);
    core_check_pool();
}

static size_t superslabs_full(void)
{
    static struct stats_shot shot;

    stats_shoot(&shot);
    return shot.totals.superslabs_full;
}

/* A SuperSlab has 15 slabs of one unit between guard units. With all of them in use it is full, although 16 units are
 * free. */
static void test_guard_units_are_no_room(void)
{
    enum { SLABS = 15 };
    struct hak_stats_superslab row;
    struct slab *slabs[SLABS];
    uint32_t number = 0;

    core_begin();
    core_acquire(1, 1, SLABS, slabs);
    assert_true(stats_superslab(&row, &number));
    assert_int_equal(row.tier, HAK_STATS_FULL);
    assert_int_equal(row.used_units, SLABS);
    assert_int_equal(row.used_units + row.free_units, SUPERSLAB_UNITS - 1);
    assert_int_equal(superslabs_full(), 1);
    core_release(slabs[0]);
    assert_int_equal(superslabs_full(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_slabs_are_enclosed),
        core_unit_test(test_headers_are_enclosed),
        core_unit_test(test_aligned_runs),
        core_unit_test(test_places_are_random),
        core_unit_test(test_emptied_serves_others),
        core_unit_test(test_emptied_and_purged_serves_others),
        core_unit_test(test_emptied_and_unmapped_serves_others),
        core_unit_test(test_without_guards_of_the_kernel),
        core_unit_test(test_mappings_are_bounded),
        core_unit_test(test_ends_leave_room),
        core_unit_test(test_one_in_eight),
        core_unit_test(test_purged_is_closed),
        core_unit_test(test_dirty_neighbours),
        core_unit_test(test_refused),
        core_unit_test(test_cannot_be_opened),
        core_unit_test(test_guard_units_are_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
