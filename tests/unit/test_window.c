/* Protects superslab/window.h: the window's place, how it grows and shrinks, W1 to W4, and the page map. */
#define _GNU_SOURCE
#include "core.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/thread_cache.h"
#include "pool/slab.h"
#include "superslab/window.h"

#define WINDOW_LEAST (16 * HAK_MIB)
#define HEAD_FIRST (4 * UNIT_SIZE) /* two caches, a unit of page map, a unit of descriptors */

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
    /* The words that malloc and free read (W3, T1). */
    assert_null(cache_current()->heap);
    for (size_t i = 0; i < sizeof cache_current()->class_of; i++)
        assert_int_equal(cache_current()->class_of[i], CLASS_NONE);
    assert_null(cache_current()->slots[cache_current()->bins[CLASS_NONE].top]);
    assert_int_equal(cache_current()->bins[CLASS_NONE].top, cache_current()->bins[CLASS_NONE].limit);
}

/* ---- Its place ---- */

static uint32_t left_out; /* foreign slots */

/* Checks W1, and that nothing else is mapped. */
static void check_window(void)
{
    size_t slots = window_slots_mapped() - window_slots_begin() - left_out;

    assert_int_equal((uintptr_t)window_base() % SUPERSLAB_SIZE, 0);
    assert_true(window_slots_begin() < window_slots_mapped() && window_slots_mapped() <= window_slots_end());
    assert_true(window_slots_mapped() <= window_slots_limit());
    assert_int_equal(window_units(), window_slots_end() * SUPERSLAB_UNITS);
    assert_true(fake_is_mapped(window_page_map(), window_units()));
    assert_true(
        fake_is_mapped(window_slots, base_align_down(window_slots_end() * sizeof(struct slot), os_page_size())));
    assert_true((char *)&window_slots[window_slots_limit()] <= window_slot_address(window_slots_begin()));
    assert_int_equal(fake_bytes_mapped(), window_head_bytes() + slots * SUPERSLAB_SIZE);
}

static void test_init(void)
{
    char *window;

    assert_true(window_init());
    check_window();
    assert_int_equal(window_head_bytes(), HEAD_FIRST);
    assert_int_equal(window_slots_mapped() - window_slots_begin(), 2);
    assert_int_equal(fake_calls(FAKE_MAP_AT), 3);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 1);
    assert_int_equal(fake_calls(FAKE_NAME), 1);
    for (size_t unit = 0; unit < window_units(); unit++)
        assert_int_equal(window_page_map()[unit], CLASS_NONE);
    window = window_base();
    assert_true(window_init());
    assert_ptr_equal(window_base(), window);
    assert_int_equal(fake_calls(FAKE_MAP_AT), 3);
}

/* The window takes only addresses, so its size does not depend on the machine's memory. */
static void test_large(void)
{
    assert_true(window_init());
    assert_in_range(window_slots_limit(), 16 * HAK_GIB / SUPERSLAB_SIZE, 8192 * HAK_GIB / SUPERSLAB_SIZE);
}

static void test_large_pages(void)
{
    fake_set_page_size(64 * HAK_KIB);
    core_begin();
    check_window();
}

static void arena(size_t asked, size_t most)
{
    hak_options.arena_size = asked;
    assert_true(window_init());
    check_window();
    assert_int_equal(window_slots_limit(), most / SUPERSLAB_SIZE);
}

static void test_arena_size(void) { arena(64 * HAK_MIB, 64 * HAK_MIB); }
static void test_arena_rounded(void) { arena(64 * HAK_MIB + 123456, 64 * HAK_MIB); }
static void test_arena_least(void) { arena(1, WINDOW_LEAST); }

/* Where the window lies when nothing is in the way. A child finds out, because a process cannot give up the place. */
static char *place_of_window(void)
{
    char **place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();

    if (child == 0) {
        *place = window_init() ? window_base() : NULL;
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return *place;
}

/* If the place is partly taken, the next place serves, or a hole that the kernel finds. */
static void test_place_taken(void)
{
    char *place = place_of_window();

    assert_non_null(place);
    assert_true(mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == place);
    assert_true(window_init());
    check_window();
    assert_ptr_not_equal(window_base(), place);
}

/* The window finds a place although one of its first eight mappings is refused. */
static void test_places_refused(void)
{
    for (uint64_t n = 1; n <= 8; n++) {
        pid_t child = fork();
        int status = 0;
        if (child == 0) {
            fake_fail_nth(FAKE_MAP_AT, n);
            assert_true(window_init());
            check_window();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void check_limit(size_t least)
{
    fake_set_address_space_limit(least - UNIT_SIZE);
    assert_false(window_init());
    assert_int_equal(fake_bytes_mapped(), 0);
    assert_int_equal(window_units(), 0);
    fake_set_address_space_limit(least);
    assert_true(window_init());
    check_window();
}

/* Only mapped addresses count against the limit of address space. */
static void test_address_space_limit(void)
{
    check_limit(HEAD_FIRST + SUPERSLAB_SIZE);
    assert_int_equal(window_slots_mapped() - window_slots_begin(), 1);
    fake_set_address_space_limit(SIZE_MAX);
}

static void test_refused_always(void)
{
    fake_fail_from(FAKE_ANY, 1);
    assert_false(window_init());
    assert_int_equal(window_units(), 0);
    assert_int_equal(fake_bytes_mapped(), 0);
    fake_fail_nothing();
    assert_true(window_init());
}

/* ---- Growing ---- */

static size_t grow(uint32_t *first)
{
    bool huge_pages;
    return window_grow(first, &huge_pages);
}

static void test_steps(void)
{
    static const size_t steps[] = { 2, 4, 8, 16, 32, 32 };
    size_t total = 256 * HAK_MIB, slots;
    uint32_t first = 0, end;

    hak_options.arena_size = total;
    assert_true(window_init());
    slots = (total >> SUPERSLAB_SHIFT) - window_slots_begin();
    end = window_slots_end();
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(grow(&first), steps[i]);
        assert_int_equal(first, end);
        end += (uint32_t)steps[i];
        check_window();
        assert_int_equal(window_slots_end(), end);
        assert_int_equal(fake_calls(FAKE_MAP_AT), i + 4); /* one call for each step */
    }
    while (grow(&first))
        end = window_slots_end();
    assert_int_equal(end - window_slots_begin(), slots);
    assert_int_equal(grow(&first), 0);
    check_window();
}

static void test_smaller_steps(void)
{
    uint32_t first = 0, end;

    assert_true(window_init());
    while (window_slots_end() - window_slots_begin() < 16)
        assert_true(grow(&first) > 0);
    end = window_slots_end();
    fake_fail_nth(FAKE_MAP_AT, 1);
    assert_int_equal(grow(&first), 8);
    assert_int_equal(first, end);
    fake_set_address_space_limit(fake_bytes_mapped() + 3 * SUPERSLAB_SIZE);
    assert_int_equal(grow(&first), 3);
    assert_int_equal(grow(&first), 0);
    fake_fail_from(FAKE_MAP_AT, 1);
    fake_set_address_space_limit(SIZE_MAX);
    end = window_slots_end();
    assert_int_equal(grow(&first), 0);
    assert_int_equal(window_slots_end(), end);
    check_window();
}

/* The page map and the descriptors grow with the slots, a unit of each for 4 GiB. */
static void test_head_grows(void)
{
    enum { SLOTS = 5000 };
    uint32_t first;

    assert_true(window_init());
    for (size_t failing = 0; window_slots_mapped() < window_slots_begin() + SLOTS; failing++) {
        if (failing % 8 == 0)
            fake_fail_nth(FAKE_MAP_AT, 1 + failing / 8 % 3);
        assert_true(grow(&first) > 0);
        fake_fail_nothing();
    }
    check_window();
    assert_true(window_head_bytes() > HEAD_FIRST + 3 * UNIT_SIZE);
    for (size_t unit = 0; unit < window_units(); unit += 7)
        assert_int_equal(window_page_map()[unit], CLASS_NONE);
    assert_int_equal(window_slots[window_slots_end() - 1].kind, SLOT_UNUSED);
}

static void block_place(char *address, size_t size)
{
    assert_true(mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == address);
}

/* Another mapping where the page map would grow ends the window there. The slots that the window has stay. */
static void test_head_blocked(void)
{
    uint32_t first, end;

    assert_true(window_init());
    block_place((char *)window_page_map() + UNIT_SIZE, UNIT_SIZE);
    while (grow(&first) > 0)
        check_window();
    end = window_slots_end();
    assert_in_range(end, UNIT_SIZE / SUPERSLAB_UNITS - 32, UNIT_SIZE / SUPERSLAB_UNITS);
    fake_fail_from(FAKE_MAP_AT, 1);
    assert_int_equal(grow(&first), 0);
    assert_int_equal(fake_failures(), 0); /* the system is not asked again */
}

/* W4: another mapping in the way is left out, whatever its size and place. */
static void test_foreign(void)
{
    chance_begin();
    assert_true(window_init());
    for (unsigned round = 0; round < 30; round++) {
        uint32_t end = window_slots_mapped(), first = 0, gap = (uint32_t)chance_below(20);
        size_t size = UNIT_SIZE * (1 + chance_below(500)), count, behind;
        char *foreign = window_slot_address(end + gap) + chance_below(30) * UNIT_SIZE;
        block_place(foreign, size);
        behind = window_slot_of(foreign + size - 1) + 1;
        do {
            uint64_t calls = fake_calls(FAKE_MAP_AT);
            uint32_t before = window_slots_mapped();
            count = grow(&first);
            assert_true(count > 0);
            left_out += first - before;
            assert_true(fake_calls(FAKE_MAP_AT) - calls <= 32);
            assert_true(window_slot_address(first) + count * SUPERSLAB_SIZE <= foreign || first >= behind);
            assert_true(first <= base_max(2 * behind - end, end + gap)); /* at most twice its size is left out */
        } while (first < behind);
        munmap(foreign, size);
        check_window();
    }
}

static void test_foreign_to_the_end(void)
{
    uint32_t first;

    hak_options.arena_size = 64 * HAK_MIB;
    assert_true(window_init());
    block_place(window_slot_address(window_slots_mapped() + 1),
                64 * HAK_MIB - (window_slots_mapped() + 1) * SUPERSLAB_SIZE);
    assert_int_equal(grow(&first), 1);
    assert_int_equal(grow(&first), 0);
    fake_fail_from(FAKE_MAP_AT, 1);
    assert_int_equal(grow(&first), 0);
    assert_int_equal(fake_failures(), 0);
    check_window();
}

static void test_shrink(void)
{
    uint32_t first, end;

    assert_true(window_init());
    while (grow(&first) < 16)
        ;
    end = window_slots_end();
    fake_fail_nth(FAKE_PURGE, 1);
    assert_false(window_shrink(first + 3));
    check_window();
    assert_true(window_shrink(first + 3));
    assert_int_equal(window_slots_mapped(), first + 3);
    assert_int_equal(window_slots_end(), end); /* W1 */
    check_window();
    assert_true(grow(&first) > 0);
    assert_int_equal(first, end - 13);
    check_window();
}

/* ---- Asking ---- */

/* W4: window_contains is true for the part in use, and for nothing else. */
static void test_contains(void)
{
    struct slab *slab;
    char *base, *metadata;
    int local = 0;

    core_begin(); /* takes a slot for metadata */
    metadata = window_slot_address(window_slots_begin());
    core_acquire(1, 1, 1, &slab);
    base = (char *)superslab_of(slab);
    assert_true(window_contains(base) && window_contains(base + SUPERSLAB_SIZE - 1) && window_in_superslab(base));
    assert_true(window_contains(metadata) && !window_in_superslab(metadata));
    assert_false(window_contains(window_base()) || window_contains(metadata - 1) ||
                 window_contains(base + SUPERSLAB_SIZE));
    assert_false(window_contains(NULL) || window_contains(&local) || window_contains((void *)UINTPTR_MAX) ||
                 window_contains((void *)(uintptr_t)test_contains) || window_contains(window_base() - 1) ||
                 window_contains(window_base() + window_units() * UNIT_SIZE));
    assert_ptr_equal(window_slot_address(window_slot_of(base + SUPERSLAB_SIZE - 1)), base);
    assert_int_equal(window_unit(base), (size_t)window_slot_of(base) * SUPERSLAB_UNITS);
}

/* A slot that was left out is foreign, and the slots behind it serve. */
static void test_foreign_slots(void)
{
    static struct slab *slabs[4 * (SUPERSLAB_UNITS - 1)];
    uint32_t end;

    core_begin();
    end = window_slots_mapped();
    block_place(window_slot_address(end) + UNIT_SIZE, 3 * SUPERSLAB_SIZE);
    core_acquire(1, 1, sizeof slabs / sizeof slabs[0], slabs);
    core_check_pool();
    assert_true(shared_pool.slots_foreign >= 4);
    for (uint32_t number = end; number < end + 4; number++) {
        assert_int_equal(window_slots[number].kind, SLOT_FOREIGN);
        assert_false(window_contains(window_slot_address(number)) || window_in_superslab(window_slot_address(number)));
    }
    assert_true(window_slot_of(slabs[sizeof slabs / sizeof slabs[0] - 1]) >= end + 4);
}

/* W2: only a span's first unit has its class. */
static void check_map(const struct slab *slab, unsigned class)
{
    size_t start = window_unit(slab->start), end = start + (class_is_span(class) ? 1 : slab->units);

    for (size_t unit = 0; unit < window_units(); unit++)
        assert_int_equal(window_page_map()[unit], unit >= start && unit < end ? class : CLASS_NONE);
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

/* Each step of the window's growth asks for huge pages, or refuses them. */
static void huge_pages(enum option_choice thp, bool early, bool late)
{
    uint32_t first;
    bool huge;
    size_t have = 2, refused = !early;

    hak_options.thp = thp;
    assert_true(window_init());
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 1);
    for (unsigned step = 0; step < 5; step++) {
        size_t count = window_grow(&first, &huge);
        assert_int_equal(huge, have < 4 ? early : late);
        have += count;
        refused += !huge;
    }
    assert_int_equal(have, 64);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 6);
    assert_int_equal(fake_calls(FAKE_ADVISE_SMALL), refused);
}

static void test_huge_pages_auto(void) { huge_pages(OPTION_AUTO, false, true); }
static void test_huge_pages_never(void) { huge_pages(OPTION_NEVER, false, false); }
static void test_huge_pages_always(void) { huge_pages(OPTION_ALWAYS, true, true); }

/* The unit of a block, by which free finds its class. An address that is no multiple of 16 is beyond the window. */
static void test_block_unit(void)
{
    const char *window;

    assert_true(window_init());
    window = window_base();
    for (size_t unit = 0; unit < 4 * SUPERSLAB_UNITS; unit++)
        for (size_t at = 0; at < UNIT_SIZE; at += UNIT_SIZE / 2 - BLOCK_ALIGN) {
            const char *block = window + unit * UNIT_SIZE + at;
            assert_int_equal(window_block_unit(window, block), unit);
            for (size_t off = 1; off < BLOCK_ALIGN; off++)
                assert_true(window_block_unit(window, block + off) >= (size_t)1 << 40); /* no window has so many */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_before_init),
        core_unit_test(test_init),
        core_unit_test(test_large),
        core_unit_test(test_block_unit),
        core_unit_test(test_large_pages),
        core_unit_test(test_arena_size),
        core_unit_test(test_arena_rounded),
        core_unit_test(test_arena_least),
        core_unit_test(test_place_taken),
        core_unit_test(test_places_refused),
        core_unit_test(test_address_space_limit),
        core_unit_test(test_refused_always),
        core_unit_test(test_steps),
        core_unit_test(test_smaller_steps),
        core_unit_test(test_head_grows),
        core_unit_test(test_head_blocked),
        core_unit_test(test_foreign),
        core_unit_test(test_foreign_to_the_end),
        core_unit_test(test_shrink),
        core_unit_test(test_contains),
        core_unit_test(test_foreign_slots),
        core_unit_test(test_page_map),
        core_unit_test(test_huge_pages_auto),
        core_unit_test(test_huge_pages_never),
        core_unit_test(test_huge_pages_always),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
