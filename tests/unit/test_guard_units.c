/* Protects superslab/guard_units.h: a write that leaves its slab faults, on kernels with and without cheap guards. */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "observe/stats.h"
#include "superslab/guard_units.h"
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

/* The bytes directly behind the slab cannot be accessed, nor those before it unless no slab has their unit. Each of its
 * own pages can be. */
static void check_enclosed(const struct slab *slab)
{
    const char *start = slab->start, *end = start + slab->units * UNIT_SIZE, *before = start;
    uint32_t number = window_slot_of(slab), guards = superslab_of(slab)->guards;

    for (unsigned unit = slab_first_unit(slab) - 1; !((guards >> unit) & 1); unit--) {
        assert_true((shared_pool.slots[number].free >> unit) & 1);
        before -= UNIT_SIZE;
    }
    assert_false(is_accessible(before - 1));
    assert_false(is_accessible(before - UNIT_SIZE));
    assert_true(start - before < slab->units * (ptrdiff_t)UNIT_SIZE);
    assert_false(is_accessible(end));
    assert_false(is_accessible(end + UNIT_SIZE - 1));
    for (const char *page = start; page < end; page += 4096)
        assert_true(is_accessible(page));
}

/* Slabs of each length lie between guard units, and no header lies beside one. */
static void test_slabs_are_enclosed(void)
{
    struct slab *slabs[3];

    core_begin();
    for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++) {
        core_acquire(units, 1, 3, slabs);
        for (size_t i = 0; i < 3; i++)
            check_enclosed(slabs[i]);
    }
    core_check_pool();
    core_check_untouched();
}

/* Behind the last slab of a SuperSlab lies the next one's header. */
static void test_headers_are_enclosed(void)
{
    struct slab *slabs[4 * SLABS_OF_A_SUPERSLAB];

    core_begin();
    core_acquire(1, 1, sizeof slabs / sizeof slabs[0], slabs);
    assert_int_equal(shared_pool.superslabs, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const char *header = window_slot_address(shared_pool.slots_unused - 1 - i);
        assert_true(is_accessible(header));
        assert_false(is_accessible(header + UNIT_SIZE));
        assert_false(is_accessible(header + SUPERSLAB_SIZE - 1));
    }
    core_check_pool();
}

/* Every run that guard_units_fit allows finds a place in a SuperSlab, and no other is looked for. */
static void test_aligned_runs(void)
{
    core_begin();
    for (unsigned align_units = 1; align_units <= SPAN_MAX_UNITS; align_units *= 2) {
        for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++) {
            struct slab *slab;
            size_t superslabs = shared_pool.superslabs,
                   got = shared_pool_acquire(units, align_units, 1, POOL_DENSE, &slab);
            assert_int_equal(got, align_units < 16 || units <= 8);
            assert_int_equal(got, guard_units_fit(units, align_units));
            assert_true(shared_pool.superslabs - superslabs <= 1);
            if (got) {
                assert_int_equal(slab_first_unit(slab) % align_units, 0);
                core_touch(slab);
            }
        }
    }
    core_check_pool();
}

/* A slab is as likely to be in one place of a SuperSlab as in another, and SuperSlabs of spans differ. */
static void test_places_are_random(void)
{
    enum { TRIES = 3000 };
    size_t first[SUPERSLAB_UNITS] = { 0 }, spans = 0;
    struct slab *slab;

    core_begin();
    for (size_t i = 0; i < TRIES; i++) {
        core_acquire(1, 1, 1, &slab);
        first[slab_first_unit(slab)]++;
        core_release(slab);
    }
    for (unsigned unit = 2; unit < SUPERSLAB_UNITS; unit += 2)
        assert_in_range(first[unit], TRIES / SLABS_OF_A_SUPERSLAB / 2, TRIES / SLABS_OF_A_SUPERSLAB * 2);
    memset(first, 0, sizeof first);
    for (size_t i = 0; i < 200; i++) {
        core_acquire(16, 1, 1, &slab);
        first[slab_first_unit(slab)]++;
    }
    for (unsigned unit = 2; unit < SUPERSLAB_UNITS; unit++)
        spans += first[unit] != 0;
    assert_int_equal(spans, 14); /* 2 to 15 */
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
            purge_address_space(SUPERSLAB_SIZE);
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

/* Without os_guard, the first SuperSlabs have all guard units, and later ones those beside headers. */
static void test_mappings_are_bounded(void)
{
    enum { COUNT = 700 };
    static struct slab *slabs[COUNT * SLABS_OF_A_SUPERSLAB];
    const struct slab *last;

    core_begin();
    fake_fail_from(FAKE_GUARD, 1);
    core_acquire(1, 1, COUNT * SLABS_OF_A_SUPERSLAB, slabs);
    assert_int_equal(shared_pool.superslabs, COUNT);
    assert_true(fake_calls(FAKE_PROTECT) <= 512 * 16 + (COUNT - 512) * 2);
    last = slabs[0];
    for (size_t i = 0; i < COUNT * SLABS_OF_A_SUPERSLAB; i++) {
        if (window_slot_of(slabs[i]) < window_slots_begin() + 512)
            check_enclosed(slabs[i]);
        if (slab_first_unit(slabs[i]) == 30)
            last = slabs[i];
    }
    assert_int_equal(slab_first_unit(last), 30);
    assert_false(is_accessible(last->start + UNIT_SIZE)); /* the next header lies behind */
    core_check_pool();
}

/* Slabs that differ little in length use the same memory: a freed one's serves the next. */
static void test_lengths_share_memory(void)
{
    static const unsigned lengths[][2] = { { 9, 7 }, { 9, 8 }, { 14, 10 }, { 14, 13 }, { 16, 15 } };
    struct slab *longer[2], *shorter;

    core_begin();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t dirty;
        core_acquire(lengths[i][0], 1, 2, longer); /* the second holds the SuperSlab */
        core_touch(longer[0]);
        core_touch(longer[1]);
        core_release(longer[0]);
        dirty = shared_pool.units_dirty;
        core_acquire(lengths[i][1], 1, 1, &shorter);
        assert_int_equal(dirty - shared_pool.units_dirty, lengths[i][1]);
        check_enclosed(shorter);
        core_release(shorter);
        core_release(longer[1]);
        purge_run(true);
        core_check_pool();
    }
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
    guard_units_say_refused();
    guard_units_say_refused();
    said = capture_end();
    assert_non_null(strstr(said, "from here on some slabs have no guard beside them; raise vm.max_map_count"));
    assert_null(strstr(strstr(said, "from here on") + 1, "from here on"));
    for (size_t i = 0; i < SLABS_OF_A_SUPERSLAB; i++)
        core_touch(slabs[i]);
    core_check_pool();
}

/* If the guard units of a SuperSlab cannot be opened, it is not used for other slabs: memory is out. */
static void test_cannot_be_opened(void)
{
    struct slab *slab;

    core_begin();
    core_acquire(1, 1, 1, &slab);
    core_touch(slab);
    core_release(slab);
    fake_fail_from(FAKE_GUARD, 1);
    assert_int_equal(shared_pool_acquire(4, 1, 1, POOL_DENSE, &slab), 0);
    fake_fail_nothing();
    core_acquire(4, 1, 1, &slab);
    check_enclosed(slab);
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
        core_unit_test(test_lengths_share_memory),
        core_unit_test(test_refused),
        core_unit_test(test_cannot_be_opened),
        core_unit_test(test_guard_units_are_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
