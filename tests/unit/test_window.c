/* superslab/window.h: how the window is reserved and committed, W1 to W3, and the page map's bytes. */
#include "core.h"

#include "front/thread_cache.h"
#include "pool/slab.h"
#include "superslab/window.h"

#define WINDOW_LEAST (16 * HAK_MIB)
#ifdef UNIT_EMULATED
#define LARGEST (16 * HAK_GIB) /* the emulator's time for a reservation grows with its size */
#else
#define LARGEST (1024 * HAK_GIB)
#endif

/* ---- Before it exists ---- */

static void test_before_init(void)
{
    int local = 0;
    const unsigned char *zeros = (const unsigned char *)window_base();

    assert_int_equal(window_units(), 0);
    assert_int_equal(window_slots_end(), 0);
    assert_false(window_contains(&local) || window_contains(NULL) || window_contains(zeros));
    for (size_t i = 0; i < 4096; i++)
        assert_int_equal(zeros[i], 0);
    /* What malloc and free look at (W3, T1) */
    assert_null(cache_current()->heap);
    for (size_t i = 0; i < sizeof cache_current()->class_of; i++)
        assert_int_equal(cache_current()->class_of[i], CLASS_NONE);
    assert_null(cache_current()->slots[cache_current()->bins[CLASS_NONE].top]);
    assert_int_equal(cache_current()->bins[CLASS_NONE].top, cache_current()->bins[CLASS_NONE].limit);
}

/* ---- Reserving ---- */

static void check_window(size_t size)
{
    assert_int_equal(fake_bytes_mapped(), size);
    assert_int_equal((uintptr_t)window_base() % SUPERSLAB_SIZE, 0);
    assert_int_equal(window_head_bytes(), window_slots_begin() * SUPERSLAB_SIZE);
    assert_true(window_head_bytes() >=
                WINDOW_PAGE_MAP + (size >> UNIT_SHIFT) + (size >> SUPERSLAB_SHIFT) * sizeof(struct slot));
    assert_true(window_slots_end() > window_slots_begin());
    assert_int_equal(window_units(), window_slots_end() * SUPERSLAB_UNITS);
    assert_true(fake_is_committed(window_base(), window_units() * UNIT_SIZE));
    assert_int_equal(fake_bytes_committed(), window_units() * UNIT_SIZE);
}

static void test_init(void)
{
    char *window;

    fake_set_physical_memory(4 * HAK_GIB);
    assert_true(window_init());
    check_window(16 * HAK_GIB);
    assert_int_equal(fake_calls(FAKE_RESERVE), 1);
    assert_int_equal(fake_calls(FAKE_COMMIT), 1);
    assert_int_equal(fake_calls(FAKE_NAME), 1);
    for (size_t unit = 0; unit < window_units(); unit++)
        assert_int_equal(window_page_map()[unit], CLASS_NONE);
    window = window_base();
    assert_true(window_init());
    assert_ptr_equal(window_base(), window);
    assert_int_equal(fake_calls(FAKE_ANY), 2);
}

/* The most that a window takes, whatever the machine has; half of it where a sanitizer leaves no such hole. */
static void test_large_machine(void)
{
    size_t most = LARGEST;

    fake_set_physical_memory(1024 * HAK_GIB);
    if (LARGEST < 1024 * HAK_GIB)
        fake_set_address_space_limit(2 * LARGEST);
    assert_true(window_init());
    for (uint64_t refused = fake_calls(FAKE_RESERVE) - 1; refused; refused--)
        most /= 2;
    check_window(most);
    assert_in_range(most, LARGEST / 8, LARGEST);
}

static void test_large_pages(void)
{
    fake_set_page_size(64 * HAK_KIB);
    hak_options.arena_size = 64 * HAK_MIB;
    core_begin();
    check_window(64 * HAK_MIB);
}

static void arena(size_t asked, size_t reserved)
{
    hak_options.arena_size = asked;
    assert_true(window_init());
    check_window(reserved);
}

static void test_arena_size(void) { arena(64 * HAK_MIB, 64 * HAK_MIB); }
static void test_arena_rounded(void) { arena(64 * HAK_MIB + 123456, 64 * HAK_MIB); }
static void test_arena_least(void) { arena(1, WINDOW_LEAST); }

static void test_address_space_limit(void)
{
    fake_set_address_space_limit(100 * HAK_MIB);
    assert_true(window_init());
    check_window(50 * HAK_MIB);
}

static void test_address_space_least(void)
{
    fake_set_address_space_limit(WINDOW_LEAST + HAK_MIB);
    assert_true(window_init());
    check_window(WINDOW_LEAST);
}

static void test_no_address_space(void)
{
    fake_set_address_space_limit(WINDOW_LEAST - 1);
    assert_false(window_init());
    assert_int_equal(fake_bytes_mapped(), 0);
    assert_int_equal(window_units(), 0);
    fake_set_address_space_limit(SIZE_MAX);
    assert_true(window_init());
}

static void test_reserve_refused(void)
{
    fake_set_physical_memory(4 * HAK_GIB);
    fake_fail_nth(FAKE_RESERVE, 1);
    assert_true(window_init());
    check_window(8 * HAK_GIB);
}

static void test_reserve_refused_always(void)
{
    fake_fail_from(FAKE_RESERVE, 1);
    assert_false(window_init());
    assert_int_equal(window_units(), 0);
    fake_fail_nothing();
    assert_true(window_init());
}

static void test_commit_refused(void)
{
    fake_fail_nth(FAKE_COMMIT, 1);
    assert_false(window_init());
    assert_int_equal(fake_bytes_mapped(), 0);
    assert_int_equal(window_units(), 0);
    assert_true(window_init());
    assert_true(window_units() > 0);
}

/* ---- Committing ---- */

static size_t commit(uint32_t *first)
{
    bool huge_pages;
    return window_commit_slots(first, &huge_pages);
}

static void test_commit_steps(void)
{
    static const size_t steps[] = { 2, 4, 8, 16, 32, 32 };
    size_t total = 256 * HAK_MIB, slots;
    uint32_t first = 0, end;

    hak_options.arena_size = total;
    assert_true(window_init());
    slots = (total >> SUPERSLAB_SHIFT) - window_slots_begin();
    end = window_slots_end();
    assert_int_equal(end - window_slots_begin(), 2);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(commit(&first), steps[i]);
        assert_int_equal(first, end);
        end += (uint32_t)steps[i];
        check_window(total); /* W1 */
        assert_int_equal(window_slots_end(), end);
        assert_int_equal(fake_calls(FAKE_COMMIT), i + 2);
    }
    while (commit(&first))
        end = window_slots_end();
    assert_int_equal(end - window_slots_begin(), slots);
    assert_int_equal(fake_bytes_committed(), total);
    assert_int_equal(commit(&first), 0);
}

static void test_commit_smaller(void)
{
    uint32_t first = 0, end;

    assert_true(window_init());
    while (window_slots_end() - window_slots_begin() < 16)
        assert_true(commit(&first) > 0);
    end = window_slots_end();
    fake_fail_nth(FAKE_COMMIT, 1);
    assert_int_equal(commit(&first), 8);
    assert_int_equal(first, end);
    fake_set_commit_limit(fake_bytes_committed() + 3 * SUPERSLAB_SIZE);
    assert_int_equal(commit(&first), 3);
    assert_int_equal(commit(&first), 0);
    fake_fail_from(FAKE_COMMIT, 1);
    fake_set_commit_limit(SIZE_MAX);
    end = window_slots_end();
    assert_int_equal(commit(&first), 0);
    assert_int_equal(window_slots_end(), end);
}

/* ---- Asking ---- */

static void test_contains(void)
{
    char *base, *end;
    uint32_t first;
    int local = 0;

    assert_true(window_init());
    for (unsigned round = 0; round < 3; round++) {
        base = window_base();
        end = base + window_units() * UNIT_SIZE;
        assert_true(window_contains(base) && window_contains(base + 1) && window_contains(end - 1));
        assert_false(window_contains(base - 1) || window_contains(end) || window_contains(end + SUPERSLAB_SIZE));
        assert_false(window_contains(NULL) || window_contains(&local) || window_contains((void *)UINTPTR_MAX) ||
                     window_contains((void *)(uintptr_t)test_contains));
        assert_int_equal(window_unit(end - 1), window_units() - 1);
        assert_int_equal(window_slot_of(end - 1), window_slots_end() - 1);
        assert_ptr_equal(window_slot_address(window_slot_of(end - 1)) + SUPERSLAB_SIZE, end);
        assert_true(commit(&first) > 0);
    }
}

static void check_map(const struct slab *slab, unsigned class)
{
    size_t start = window_unit(slab->start);

    for (size_t unit = 0; unit < window_units(); unit++)
        assert_int_equal(window_page_map()[unit], unit >= start && unit < start + slab->units ? class : CLASS_NONE);
}

static void test_page_map(void)
{
    core_begin();
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        struct slab *slab, *neighbours[2];
        core_acquire(1, 1, 1, &neighbours[0]);
        core_acquire(size_classes[class].units, 1, 1, &slab);
        core_acquire(1, 1, 1, &neighbours[1]);
        slab_carve(slab, class, NULL);
        slab_set_page_map(slab, class);
        check_map(slab, class);
        slab_set_page_map(slab, CLASS_NONE);
        check_map(slab, CLASS_NONE);
        core_release(slab);
        core_release(neighbours[0]);
        core_release(neighbours[1]);
    }
}

/* Which steps get huge pages; `advised` is the calls for it beside the one that window_init makes. */
static void huge_pages(enum option_choice thp, bool early, bool late, uint64_t advised)
{
    uint32_t first;
    bool huge;
    size_t have = 2;

    hak_options.thp = thp;
    assert_true(window_init());
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 1);
    for (unsigned step = 0; step < 5; step++) {
        size_t count = window_commit_slots(&first, &huge);
        assert_int_equal(huge, have < 4 ? early : late);
        have += count;
    }
    assert_int_equal(have, 64);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 1 + advised);
}

static void test_huge_pages_auto(void) { huge_pages(OPTION_AUTO, false, true, 4); }
static void test_huge_pages_never(void) { huge_pages(OPTION_NEVER, false, false, 0); }
static void test_huge_pages_always(void) { huge_pages(OPTION_ALWAYS, true, true, 0); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_before_init),
        core_unit_test(test_init),
        core_unit_test(test_large_machine),
        core_unit_test(test_large_pages),
        core_unit_test(test_arena_size),
        core_unit_test(test_arena_rounded),
        core_unit_test(test_arena_least),
        core_unit_test(test_address_space_limit),
        core_unit_test(test_address_space_least),
        core_unit_test(test_no_address_space),
        core_unit_test(test_reserve_refused),
        core_unit_test(test_reserve_refused_always),
        core_unit_test(test_commit_refused),
        core_unit_test(test_commit_steps),
        core_unit_test(test_commit_smaller),
        core_unit_test(test_contains),
        core_unit_test(test_page_map),
        core_unit_test(test_huge_pages_auto),
        core_unit_test(test_huge_pages_never),
        core_unit_test(test_huge_pages_always),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
