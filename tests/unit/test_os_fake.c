/* Protects os/fake.c, on which unit tests rely: its bookkeeping (against a byte map), failures, and contract checks. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "os/fake.h"
#include "os/fake_ranges.h"

static size_t page;
static char *place; /* for the functions that must abort */

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    page = os_page_size();
    return 0;
}

/* ---- The list of ranges ---- */

enum { MODEL_BYTES = 64, MODEL_STEPS = 40000 };

static void check_against_model(const struct range_list *list, const uint8_t *model)
{
    size_t bytes[RANGE_STATE_COUNT] = { 0 }, at = 0;
    for (size_t i = 0; i < list->count; i++) { /* A1 */
        const struct range *range = &list->ranges[i];
        assert_true(range->start < range->end && range->start >= at && range->state != RANGE_FREE);
        assert_true(i == 0 || range[-1].end < range->start || range[-1].state != range->state);
        for (; at < range->start; at++)
            assert_int_equal(model[at], RANGE_FREE);
        for (; at < range->end; at++)
            assert_int_equal(model[at], range->state);
        bytes[range->state] += range->end - range->start;
    }
    for (; at < MODEL_BYTES; at++)
        assert_int_equal(model[at], RANGE_FREE);
    for (unsigned i = RANGE_FREE + 1; i < RANGE_STATE_COUNT; i++) /* A2 */
        assert_int_equal(list->bytes[i], bytes[i]);
}

static void test_ranges(void **state)
{
    (void)state;
    struct range room[MODEL_BYTES + 2];
    struct range_list list = { .ranges = room, .capacity = MODEL_BYTES + 2 };
    uint8_t model[MODEL_BYTES] = { RANGE_FREE };
    for (size_t step = 0; step < MODEL_STEPS; step++) {
        uint64_t chance = os_random();
        size_t start = chance % MODEL_BYTES, size = 1 + (chance >> 8) % (MODEL_BYTES / 4);
        size_t end = base_min(start + size, MODEL_BYTES);
        unsigned states = (unsigned)(chance >> 32) % (1u << RANGE_STATE_COUNT);
        enum range_state to = (enum range_state)((chance >> 40) % RANGE_STATE_COUNT);
        bool all = true;
        for (size_t i = start; i < end; i++)
            all &= (states >> model[i] & 1) != 0;
        assert_int_equal(ranges_all(&list, start, end, states), all);
        ranges_set(&list, start, end, to);
        memset(model + start, to, end - start);
        check_against_model(&list, model);
    }
}

/* ---- Memory ---- */

static void test_memory(void **state)
{
    (void)state;
    char *arena = os_find_hole(1024 * page, 64 * page);
    assert_non_null(arena);
    assert_int_equal((uintptr_t)arena % (64 * page), 0);
    assert_int_equal(fake_bytes_mapped(), 0);
    assert_false(fake_is_mapped(arena, page));

    assert_int_equal(os_map_at(arena + 8 * page, 16 * page), OS_PLACE_MAPPED);
    assert_int_equal(os_map_at(arena + 16 * page, 16 * page), OS_PLACE_TAKEN); /* overlaps the first mapping */
    assert_int_equal(os_map_at(arena + 24 * page, 8 * page), OS_PLACE_MAPPED);
    assert_int_equal(fake_bytes_mapped(), 24 * page);
    assert_true(fake_is_mapped(arena + 8 * page, 24 * page));
    assert_false(fake_is_mapped(arena + 8 * page, 25 * page));
    assert_int_equal(fake_bytes_resident(), 0);
    memset(arena + 8 * page, 'x', 4 * page);
    assert_int_equal(fake_bytes_resident(), 4 * page);
    assert_true(os_populate(arena + 8 * page, 8 * page));
    assert_int_equal(fake_bytes_resident(), 8 * page);
    assert_int_equal(arena[8 * page], 'x');
    assert_int_equal(os_resident_memory(), 8 * page);
    assert_true(os_purge(arena + 9 * page, 3 * page));
    assert_int_equal(fake_bytes_resident(), 5 * page);
    assert_int_equal(fake_bytes_mapped(), 24 * page);
    for (size_t i = 0; i < 3 * page; i++)
        assert_int_equal(arena[9 * page + i], 0);

    char *block = os_map(4 * page, page);
    assert_non_null(block);
    assert_int_equal(fake_bytes_mapped(), 28 * page);
    block[0] = 'y';
    char *moved = os_remap(block, 4 * page, 512 * page, true);
    assert_non_null(moved);
    assert_int_equal(moved[0], 'y');
    moved[512 * page - 1] = 'z';
    assert_int_equal(fake_bytes_mapped(), 536 * page);
    assert_true(os_remap(moved, 512 * page, 2 * page, false) == moved);
    assert_int_equal(fake_bytes_mapped(), 26 * page);
    os_unmap(moved, 2 * page);
    assert_true(os_decommit(arena + 16 * page, 16 * page));
    os_unmap(arena + 8 * page, 8 * page);
    assert_int_equal(fake_bytes_mapped(), 0);
    assert_int_equal(os_map_at(arena, page), OS_PLACE_MAPPED);
    assert_int_equal(os_map_at(arena, page), OS_PLACE_TAKEN);
    assert_int_equal(fake_bytes_mapped(), page);

    static const uint64_t calls[FAKE_KIND_COUNT] = {
        [FAKE_MAP] = 1,   [FAKE_MAP_AT] = 5, [FAKE_HOLE] = 1,     [FAKE_REMAP] = 2,
        [FAKE_PURGE] = 2, [FAKE_UNMAP] = 2,  [FAKE_POPULATE] = 1,
    };
    for (unsigned kind = 0; kind < FAKE_KIND_COUNT; kind++)
        assert_int_equal(fake_calls((enum fake_kind)kind), calls[kind]);
    assert_int_equal(fake_calls(FAKE_ANY), 12);
}

static void test_page_size(void **state)
{
    (void)state;
    fake_set_page_size(64 * HAK_KIB);
    assert_int_equal(os_page_size(), 64 * HAK_KIB);
    for (int i = 0; i < 8; i++) {
        char *block = os_map(192 * HAK_KIB, 64 * HAK_KIB);
        assert_int_equal((uintptr_t)block % (64 * HAK_KIB), 0);
        char *moved = os_remap(block, 192 * HAK_KIB, 64 * HAK_MIB, true);
        assert_int_equal((uintptr_t)moved % (64 * HAK_KIB), 0);
    }
}

/* ---- Failing ---- */

static void test_fail_nth_of_kind(void **state)
{
    (void)state;
    char *arena = os_find_hole(64 * HAK_MIB, page);
    assert_int_equal(os_map_at(arena, page), OS_PLACE_MAPPED);
    fake_fail_nth(FAKE_MAP_AT, 3);
    errno = 4711;
    for (size_t i = 1; i <= 6; i++) {
        assert_int_equal(os_map_at(arena + i * page, page), i != 3 ? OS_PLACE_MAPPED : OS_PLACE_REFUSED);
        assert_int_equal(fake_is_mapped(arena + i * page, page), i != 3);
        void *block = os_map(page, page); /* a call of another kind */
        assert_non_null(block);
    }
    assert_int_equal(errno, 4711);
    assert_int_equal(fake_failures(), 1);
    assert_int_equal(fake_calls(FAKE_MAP_AT), 7);
}

static void test_fail_from(void **state)
{
    (void)state;
    char *block = os_map(4 * page, page), *arena = os_find_hole(64 * HAK_MIB, page);
    static void (*const nothing)(void) = NULL;
    block[0] = 'x';
    assert_int_equal(os_map_at(arena, page), OS_PLACE_MAPPED);
    fake_fail_from(FAKE_ANY, 2);
    assert_true(os_purge(block + page, page)); /* the first call */
    assert_false(os_purge(block, page));
    assert_int_equal(block[0], 'x');
    assert_null(os_map(page, page));
    assert_null(os_find_hole(page, page));
    assert_int_equal(os_map_at(arena, page), OS_PLACE_REFUSED);
    assert_false(os_decommit(arena, page));
    assert_false(os_populate(block, page));
    assert_null(os_remap(block, 4 * page, page, true));
    assert_false(os_thread_start(pthread_create, nothing, "none"));
    os_advise_huge(block, page, true); /* cannot fail */
    os_name(block, page, "name");
    os_unmap(block + 3 * page, page);
    assert_int_equal(fake_failures(), 8);
    fake_fail_nothing();
    assert_true(os_decommit(arena, page));
    assert_int_equal(fake_bytes_mapped(), 3 * page);
}

static void test_limits(void **state)
{
    (void)state;
    fake_set_address_space_limit(64 * page);
    assert_int_equal(os_address_space_limit(), 64 * page);
    char *block = os_map(32 * page, page), *arena = os_find_hole(32 * page, page);
    assert_non_null(block);
    assert_non_null(arena);
    assert_null(os_find_hole(33 * page, page));
    assert_null(os_map(33 * page, page));
    assert_int_equal(os_map_at(arena, 33 * page), OS_PLACE_REFUSED);
    assert_int_equal(os_map_at(arena, 32 * page), OS_PLACE_MAPPED);
    assert_null(os_remap(block, 32 * page, 33 * page, true));
    assert_true(os_decommit(arena, 8 * page));
    assert_non_null(os_map(8 * page, page));
    assert_int_equal(fake_failures(), 0);
}

/* ---- Time, settings ---- */

static void test_time_and_settings(void **state)
{
    (void)state;
    static char *environment[] = { "HAKMEM_A=1", "HAKMEM_AB=2", NULL };
    uint64_t start = os_now(), chance = os_random();
    struct os_memory_bounds bounds;
    assert_true(start > 0);
    usleep(2000);
    assert_true(os_now() == start && os_now_coarse() == start);
    fake_advance(500);
    assert_true(os_now() == start + 500 && os_now_coarse() == start + 500);

    assert_null(os_environment()[0]);
    fake_set_environment(environment);
    assert_ptr_equal(os_environment(), environment);
    fake_set_physical_memory(123 * HAK_MIB);
    fake_set_memory_bounds(99 * HAK_MIB, 98 * HAK_MIB, 7);
    fake_set_cpu_count(7);
    assert_int_equal(os_physical_memory(), 123 * HAK_MIB);
    os_memory_bounds(&bounds, true);
    assert_int_equal(bounds.max, 99 * HAK_MIB);
    assert_int_equal(bounds.high, 98 * HAK_MIB);
    assert_int_equal(bounds.stall_percent, 7);
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(os_cpu_count(), 7);
    fake_reset();
    assert_true(os_now() == start && os_random() == chance);
    assert_int_equal(fake_memory_bounds_read(), 0);
    os_memory_bounds(&bounds, true);
    assert_true(bounds.max == SIZE_MAX && bounds.high == SIZE_MAX && bounds.stall_percent == 0);
    assert_null(os_environment()[0]);
}

static _Atomic uint32_t ran;

static void run(void)
{
    atomic_store(&ran, 1);
    os_futex_wake(&ran, 1);
}

static void test_thread(void **state)
{
    (void)state;
    assert_true(os_thread_start(pthread_create, run, "hak-unit"));
    while (atomic_load(&ran) == 0)
        os_futex_wait(&ran, 0, UINT64_MAX);
    os_futex_wait(&ran, 1, UINT64_C(3600000000000)); /* an hour on a clock that stands still: it wakes soon anyway */
    assert_int_equal(fake_calls(FAKE_THREAD), 1);
}

/* ---- Contract ---- */

static void decommit_unmapped(void) { os_decommit(place, page); }
static void decommit_mapped(void) { os_decommit(os_map(page, page), page); }
static void map_half_page(void) { os_map_at(place, page / 2); }
static void map_at_nothing(void) { os_map_at(place, 0); }
static void purge_unmapped(void) { os_purge(place, page); }
static void purge_partly(void) { os_purge(place + page, 2 * page); }
static void populate_unmapped(void) { os_populate(place, page); }
static void unmap_twice(void) { os_unmap(place, page); os_unmap(place, page); }
static void unmap_too_much(void) { os_unmap(place, 9 * page); }
static void unmap_unaligned(void) { os_unmap(place + 16, page); }
static void remap_too_much(void) { os_remap(place + page, 2 * page, 3 * page, true); }
static void move_to_unmapped(void) { os_move(place + page, page, place + 3 * page); }
static void hole_odd(void) { (void)os_find_hole(page, 3 * page); }
static void map_small_alignment(void) { (void)os_map(page, 64); }
static void map_nothing(void) { (void)os_map(0, page); }
static void long_name(void) { os_thread_start(pthread_create, run, "sixteen letters."); }

static void test_contract(void **state)
{
    (void)state;
    static const struct {
        void (*run)(void);
        const char *message;
    } broken[] = {
        { decommit_unmapped, "not all of it is from os_map_at" },
        { decommit_mapped, "not all of it is from os_map_at" },
        { map_half_page, "not whole pages" },
        { map_at_nothing, "not whole pages" },
        { purge_unmapped, "os_purge(" },
        { purge_partly, "not all of it is mapped" },
        { populate_unmapped, "not all of it is mapped" },
        { unmap_twice, "not all of it is mapped" },
        { unmap_too_much, "not all of it is mapped" },
        { unmap_unaligned, "not whole pages" },
        { remap_too_much, "not all of it is mapped" },
        { move_to_unmapped, "not all of it is from os_map_at" },
        { hole_odd, "no power of two" },
        { map_small_alignment, "no power of two" },
        { map_nothing, "not whole pages" },
        { long_name, "more than 15" },
    };
    place = os_find_hole(64 * HAK_MIB, page);
    assert_int_equal(os_map_at(place + page, page), OS_PLACE_MAPPED);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        assert_aborts(broken[i].run, broken[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ranges, set_up),
        cmocka_unit_test_setup(test_memory, set_up),
        cmocka_unit_test_setup(test_page_size, set_up),
        cmocka_unit_test_setup(test_fail_nth_of_kind, set_up),
        cmocka_unit_test_setup(test_fail_from, set_up),
        cmocka_unit_test_setup(test_limits, set_up),
        cmocka_unit_test_setup(test_time_and_settings, set_up),
        cmocka_unit_test_setup(test_thread, set_up),
        cmocka_unit_test_setup(test_contract, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
