/* Protects front/control.c: requests from outside and tracers turn the heap profile on and off, and are answered once.
 *
 * test_guard.c has the requests for guards, which need the real system.
 */
#include "heaps.h"

#include <errno.h>
#include <string.h>

#include "front/control.h"
#include "front/process.h"
#include "front/thread.h"
#include "os/unwind.h"
#include "profile/profile.h"

#define AS_IT_IS UINT64_MAX

static void begin(void)
{
    assert_true(process_init());
    assert_non_null(thread_cache_get());
    assert_false(outside_asks());
}

/* Writes a request, as `hakmem heap --start` does, and lets a slow call find it. */
static void ask(uint64_t profile_mean, uint64_t profile_ms, uint64_t guard_mean)
{
    hak_outside.profile_mean = profile_mean;
    hak_outside.profile_ms = profile_ms;
    hak_outside.guard_mean = guard_mean;
    atomic_fetch_add(&hak_outside.word.asked, 1);
    assert_true(outside_asks());
    control_poll();
}

static void assert_answered(uint32_t error)
{
    assert_int_equal(atomic_load(&hak_outside.answered), atomic_load(&hak_outside.word.asked));
    assert_int_equal(atomic_load(&hak_outside.error), error);
}

static bool looks(uint8_t what) { return (atomic_load(&hak_outside.word.look) & what) != 0; }

static void test_profile(void)
{
    begin();
    ask(0, 0, AS_IT_IS);
    assert_answered(0);
    assert_false(os_unwind_by_tables()); /* a profile that goes off needs no stacks */
    ask(4096, 0, AS_IT_IS);
    assert_answered(0);
    assert_true(os_unwind_by_tables());
    assert_true(profile_on());
    assert_int_equal(profile.record_mean, 4096);
    assert_false(outside_asks());
    ask(AS_IT_IS, 0, AS_IT_IS);
    assert_true(profile_on());
    ask(0, 0, AS_IT_IS);
    assert_answered(0);
    assert_false(profile_on());
    assert_false(outside_asks());
}

/* A profile for so many milliseconds ends when they have passed, not earlier; another request forgets them. */
static void test_end(void)
{
    begin();
    ask(4096, 1000, AS_IT_IS);
    assert_true(profile_on());
    assert_true(looks(OUTSIDE_LOOK_END));
    fake_advance(999 * MILLISECOND);
    control_poll();
    assert_true(profile_on());
    fake_advance(1 * MILLISECOND);
    assert_true(outside_asks());
    control_poll();
    assert_false(profile_on());
    assert_false(looks(OUTSIDE_LOOK_END));
    assert_false(outside_asks());

    ask(4096, 1000, AS_IT_IS);
    ask(8192, 0, AS_IT_IS);
    assert_false(looks(OUTSIDE_LOOK_END));
    fake_advance(2000 * MILLISECOND);
    control_poll();
    assert_true(profile_on());
    ask(0, 1000, AS_IT_IS);
    assert_false(looks(OUTSIDE_LOOK_END));
}

/* The time of a profile that is being written or turned off elsewhere ends later. */
static void test_end_is_late(void)
{
    begin();
    ask(4096, 1000, AS_IT_IS);
    fake_advance(5000 * MILLISECOND);
    lock_acquire(&profile_control);
    control_poll();
    assert_true(profile_on());
    lock_release(&profile_control);
    assert_true(outside_asks());
    control_poll();
    assert_false(profile_on());
}

/* A request that cannot be served yet stays, and is served by a later call. */
static void test_busy(void)
{
    begin();
    lock_acquire(&profile_control);
    ask(4096, 0, AS_IT_IS);
    assert_false(profile_on());
    assert_int_not_equal(atomic_load(&hak_outside.answered), atomic_load(&hak_outside.word.asked));
    assert_true(outside_asks());
    lock_release(&profile_control);
    control_poll();
    assert_answered(0);
    assert_true(profile_on());
}

/* A request that fails is answered with the reason. */
static void test_refused(void)
{
    begin();
    fake_fail_from(FAKE_ANY, 1);
    while (registry_take_heap())
        ;
    ask(4096, 0, AS_IT_IS);
    assert_answered(ENOMEM);
    assert_false(profile_on());
    assert_false(outside_asks());
    fake_fail_nothing();
    ask(4096, 0, AS_IT_IS);
    assert_answered(0);
    assert_true(profile_on());
}

/* ---- Tracers ---- */

static void trace(uint16_t readers)
{
    atomic_store(&hak_outside.word.alloc_readers, readers);
    control_poll();
}

/* The first tracer turns the profile on, with the option's mean, and the last one turns it off. */
static void test_tracers(void)
{
    begin();
    trace(1);
    assert_true(profile_on());
    assert_true(atomic_load(&profile.by_readers));
    assert_int_equal(profile.record_mean, hak_options.heap_profile_rate);
    assert_false(outside_asks());
    trace(2);
    trace(1);
    assert_true(profile_on());
    trace(0);
    assert_false(profile_on());
    assert_false(outside_asks());
    trace(1);
    assert_true(profile_on());
}

/* A profile that a request turned on does not end with the last tracer. */
static void test_tracers_of_a_profile(void)
{
    begin();
    ask(4096, 0, AS_IT_IS);
    trace(1);
    assert_int_equal(profile.record_mean, 4096);
    trace(0);
    assert_true(profile_on());
}

/* A request turns the profile off: it begins again for the tracers. */
static void test_off_under_tracers(void)
{
    begin();
    trace(1);
    ask(0, 0, AS_IT_IS);
    assert_answered(0);
    assert_true(profile_on());
    trace(0);
    assert_false(profile_on());
}

static void test_tracers_wait(void)
{
    begin();
    lock_acquire(&profile_control);
    trace(1);
    assert_false(profile_on());
    assert_true(outside_asks());
    lock_release(&profile_control);
    control_poll();
    assert_true(profile_on());
    assert_false(outside_asks());
    lock_acquire(&profile_control);
    trace(0);
    assert_true(profile_on());
    lock_release(&profile_control);
    control_poll();
    assert_false(profile_on());
}

/* A tracer that reads frees alone asks for no profile. */
static void test_tracers_of_frees(void)
{
    begin();
    atomic_store(&hak_outside.word.free_readers, 1);
    control_poll();
    assert_false(profile_on());
    assert_false(outside_asks());
}

/* ---- Calls that may not serve ---- */

static void test_file(void)
{
    begin();
    outside_want(OUTSIDE_LOOK_FILE);
    assert_true(outside_asks());
    control_poll();
    assert_false(looks(OUTSIDE_LOOK_FILE));
    assert_false(outside_asks());
}

/* The profiler's own calls serve no requests; later ones of the program do. */
static void test_inside_the_profiler(void)
{
    begin();
    profile_set_busy(true);
    ask(4096, 0, AS_IT_IS);
    assert_false(profile_on());
    profile_set_busy(false);
    control_poll();
    assert_true(profile_on());
    assert_answered(0);
    control_reset_in_child();
    ask(0, 0, AS_IT_IS);
    assert_false(profile_on());
}

/* A client writes zeros over a cache's table of classes, so that the thread's next malloc misses (T8). If the request
 * changes nothing, the next flush fills the table again. */
static void test_table_is_filled_again(void)
{
    struct thread_cache *cache;
    uint8_t before[sizeof cache->class_of];

    begin();
    cache = thread_cache_get();
    memcpy(before, cache->class_of, sizeof before);
    assert_int_not_equal(before[1], 0);
    memset(cache->class_of, 0, sizeof cache->class_of);
    cache_flush_all(cache, false);
    assert_memory_equal(cache->class_of, before, sizeof before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_profile),
        core_unit_test(test_end),
        core_unit_test(test_end_is_late),
        core_unit_test(test_busy),
        core_unit_test(test_refused),
        core_unit_test(test_tracers),
        core_unit_test(test_tracers_of_a_profile),
        core_unit_test(test_off_under_tracers),
        core_unit_test(test_tracers_wait),
        core_unit_test(test_tracers_of_frees),
        core_unit_test(test_file),
        core_unit_test(test_inside_the_profiler),
        core_unit_test(test_table_is_filled_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
