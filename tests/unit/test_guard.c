/* Protects profile/guard on the real OS: places of blocks, the queue of places, margins, heaps, and protected bytes. */
#include "support.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "front/control.h"
#include "front/guarded.h"
#include "front/process.h"
#include "front/thread.h"
#include "options/options.h"
#include "os/os.h"
#include "os/unwind.h"
#include "profile/profile.h"

enum { SLOTS = 32, KEPT = SLOTS / 4, LIVE_MOST = SLOTS - KEPT };

static const struct guard_origin nowhere = { .class = CLASS_NONE };

static void *take(size_t size, size_t alignment) { return guard_allocate(size, alignment, &nowhere); }

static void give(void *block)
{
    struct guard_origin origin;

    assert_true(guard_free(block, "free", &origin));
}

static int begin(void **state)
{
    (void)state;
    assert_true(process_init());
    hak_options.guard_slots = SLOTS; /* options were read just now */
    hak_options.abort_on_misuse = 0;
    return front_guard_set(1);
}

static void test_range(void **state)
{
    (void)state;
    assert_int_equal(guard.count, SLOTS);
    assert_int_equal(guard.bytes, (2 * SLOTS + 1) * guard.page);
    assert_int_equal(guard.waiting, SLOTS);
    assert_int_equal(front_guard_set(1), 0); /* a second call keeps the same range */
    assert_int_equal(guard.waiting, SLOTS);
    assert_true(guard_covers((void *)guard.start) && guard_covers((char *)guard.start + guard.bytes - 1));
    assert_false(guard_covers((char *)guard.start + guard.bytes) || guard_covers((char *)guard.start - 1) ||
                 guard_covers(NULL));
}

/* A block lies aligned at one end of its page and fits in it. Both ends occur. */
static void test_places(void **state)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 15, 16, 17, 100, 1000, 4095, 4096 };
    unsigned left = 0, right = 0;

    (void)state;
    for (unsigned round = 0; round < 40; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t alignment = 1; alignment <= guard.page; alignment *= 4) {
                size_t size = sizes[i], usable = base_max(size, 1), least = base_max(alignment, usable < 16 ? 8 : 16);
                char *block = take(size, alignment);
                uintptr_t place = ((uintptr_t)block - guard.start) % (2 * guard.page) - guard.page;
                assert_non_null(block);
                assert_int_equal((uintptr_t)block % least, 0);
                assert_true(place + usable <= guard.page);
                assert_true(place == 0 || guard.page - place - usable < least);
                left += place == 0;
                right += place != 0;
                assert_int_equal(guard_size(block, NULL), usable);
                assert_int_equal(guard_size(block + 1, NULL), 0);
                memset(block, 0x55, usable);
                give(block);
                assert_int_equal(guard_size(block, NULL), 0);
            }
    assert_true(left > 500 && right > 500);
    assert_null(take(guard.page + 1, 1));
    assert_null(take(16, 2 * guard.page));
}

/* Z7: a quarter of the places stays in the queue. The place that was freed last is reused last. */
static void test_queue(void **state)
{
    void *blocks[SLOTS], *freed[SLOTS];
    size_t live;

    (void)state;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < LIVE_MOST; i++)
            assert_non_null(blocks[i] = take(64, 1));
        assert_int_equal(guard.waiting, KEPT);
        assert_null(take(64, 1));
        assert_int_equal(guard_bytes_in_use(&live), LIVE_MOST * guard.page);
        assert_int_equal(live, LIVE_MOST * 64);
        for (unsigned i = 0; i < LIVE_MOST; i++) {
            freed[i] = blocks[(i * 7) % LIVE_MOST];
            give(freed[i]);
        }
        assert_int_equal(guard_bytes_in_use(&live) + live, 0);
        for (unsigned i = 0; i < KEPT; i++)
            give(take(64, 1)); /* places that were free all the time come first */
        for (unsigned i = 0; i < LIVE_MOST; i++) {
            char *block = take(64, 1);
            assert_int_equal(((uintptr_t)block - guard.start) / (2 * guard.page),
                             ((uintptr_t)freed[i] - guard.start) / (2 * guard.page));
            blocks[i] = block;
        }
        for (unsigned i = 0; i < LIVE_MOST; i++)
            give(blocks[i]);
    }
}

static char *volatile wild;

static void touch(void) { *(volatile char *)wild = 1; }

/* Z6: a write to either neighbouring page, or to a freed block's page, ends the process (here a child). */
static void test_closed(void **state)
{
    char *block = take(guard.page, 1);

    (void)state;
    for (int side = 0; side < 2; side++) {
        wild = side ? block + guard.page : block - 1;
        assert_int_equal(signal_of(touch), SIGSEGV);
    }
    wild = block;
    assert_int_equal(signal_of(touch), 0);
    give(block);
    assert_int_equal(signal_of(touch), SIGSEGV);
}

/* Each byte of both margins is checked, and no byte beyond them. */
static void test_margins(void **state)
{
    enum { SIZE = 1000 };
    unsigned seen = 0;

    (void)state;
    for (int offset = -80; offset < SIZE + 80; offset++) {
        char *block = take(SIZE, 1), *page = (char *)base_align_down((uintptr_t)block, guard.page);
        uint64_t before = guard.reports;
        bool inside = offset >= 0 && offset < SIZE;
        bool in_page = block + offset >= page && block + offset < page + guard.page;
        const char *said;
        if (!in_page) {
            give(block);
            continue;
        }
        block[offset] = 1;
        capture_begin();
        give(block);
        said = capture_end();
        if (!inside && offset >= -64 && offset < SIZE + 64) {
            assert_int_equal(guard.reports, before + 1);
            assert_has(said, offset < 0 ? "before the start of a block of 1000 bytes"
                                        : "behind the end of a block of 1000 bytes");
            seen++;
        } else {
            assert_int_equal(guard.reports, before);
            assert_int_equal(strlen(said), 0);
        }
    }
    assert_true(seen > 24); /* about half of the 128: chance puts each block at either end of its page */
}

static void test_wrong_calls(void **state)
{
    struct guard_origin origin;
    char *block = take(100, 1), *other = take(100, 1);
    uint64_t before = guard.reports;

    (void)state;
    capture_begin();
    assert_false(guard_free(block + 16, "free", &origin));
    assert_has(capture_end(), "not the start of a block: at byte 16 of a block of 100 bytes");
    give(block);
    capture_begin();
    assert_false(guard_free(block, "free", &origin));
    assert_has(capture_end(), "freed already: a block of 100 bytes");
    capture_begin();
    guard_misused((char *)guard.start + guard.bytes - 1, "realloc");
    assert_has(capture_end(), "realloc(");
    assert_int_equal(guard.reports, before + 3);
    assert_int_equal(guard_size(other, NULL), 100);
    give(other);
}

static void test_heaps(void **state)
{
    struct heap *one = (struct heap *)64, *two = (struct heap *)128, *found;
    struct guard_origin origin = { .heap = one, .class = CLASS_NONE };
    void *mine[3], *other;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        mine[i] = guard_allocate(50, 1, &origin);
    origin.heap = two;
    other = guard_allocate(50, 1, &origin);
    assert_int_equal(guard_size(mine[1], &found), 50);
    assert_ptr_equal(found, one);
    guard_free_heap(one);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(guard_size(mine[i], NULL), 0);
    assert_int_equal(guard_size(other, &found), 50);
    assert_ptr_equal(found, two);
    assert_true(guard_free(other, "free", &origin));
    assert_ptr_equal(origin.heap, two);
    assert_int_equal(guard.waiting, SLOTS);
}

/* Requests from outside turn guards on and off, and leave the heap profile as it is. See test_control.c, too. */
static void ask(uint64_t profile_mean, uint64_t guard_mean)
{
    hak_outside.profile_mean = profile_mean;
    hak_outside.profile_ms = 0;
    hak_outside.guard_mean = guard_mean;
    atomic_store(&hak_outside.word.asked, (uint8_t)(atomic_load(&hak_outside.word.asked) + 1)); /* one thread */
    control_poll();
}

/* The first request for guards prepares the walk of stacks. One that turns them off does not. */
static void first_request(void)
{
    assert_true(process_init());
    ask(UINT64_MAX, 0);
    assert_false(os_unwind_by_tables());
    ask(UINT64_MAX, 100000);
    assert_true(os_unwind_by_tables());
    _exit(guard_on() ? 7 : 1);
}

static void test_first_request(void **state)
{
    (void)state;
    assert_int_equal(status_of(first_request), 7);
}

static void test_requests(void **state)
{
    (void)state;
    ask(UINT64_MAX, 0);
    assert_false(guard_on());
    assert_int_equal(atomic_load(&hak_outside.answered), atomic_load(&hak_outside.word.asked));
    assert_int_equal(atomic_load(&hak_outside.error), 0);
    ask(4096, UINT64_MAX);
    assert_true(profile_on());
    assert_false(guard_on());
    ask(UINT64_MAX, 100000);
    assert_true(guard_on());
    assert_int_equal(profile.guard_mean, 100000);
    assert_int_equal(profile.record_mean, 4096);
    lock_acquire(&profile_control); /* another thread writes the profile */
    ask(0, 0);
    assert_true(guard_on());
    assert_true(profile_on());
    lock_release(&profile_control);
    control_poll();
    assert_false(guard_on());
    assert_false(profile_on());
    assert_int_equal(front_guard_set(1), 0);
}

int main(void)
{
    const struct CMUnitTest fresh[] = { cmocka_unit_test(test_first_request) }, tests[] = {
        cmocka_unit_test(test_range),  cmocka_unit_test(test_places),  cmocka_unit_test(test_queue),
        cmocka_unit_test(test_closed), cmocka_unit_test(test_margins), cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_heaps),  cmocka_unit_test(test_requests),
    };

    return cmocka_run_group_tests(fresh, NULL, NULL) | cmocka_run_group_tests(tests, begin, NULL);
}
