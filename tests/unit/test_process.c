/* Protects front/process.h: the first call initialises the process, once. */
#include "core.h"

#include "front/process.h"
#include "superslab/limits.h"

static void test_begins_once(void)
{
    static char *const environment[] = { "HAKMEM_MEMORY_LIMIT=auto", NULL };

    fake_set_environment(environment);
    fake_set_memory_bounds(64 * HAK_MIB, SIZE_MAX, 0);
    assert_true(process_init());
    assert_int_equal(fake_memory_bounds_read(), 1);
    assert_int_equal(limits_hard(), 64 * HAK_MIB);
    assert_int_equal(shared_pool.superslabs, 0);
    assert_true(process_init());
    assert_int_equal(fake_memory_bounds_read(), 1);
}

static void test_prewarms(void)
{
    static char *const environment[] = { "HAKMEM_SS_PREWARM=3", "HAKMEM_SS_PREWARM_DEBUG=1", "HAKMEM_VERBOSE=1", NULL };
    const char *said;

    fake_set_environment(environment);
    capture_begin();
    assert_true(process_init());
    said = capture_end();
    assert_has(said, "prewarm: 3 of 3 SuperSlabs made ready");
    assert_has(said, "* HAKMEM_SS_PREWARM=3");
    assert_has(said, "  HAKMEM_ABORT_ON_MISUSE=");
    assert_int_equal(shared_pool.superslabs, 3);
}

/* Without memory for the window no call is served; a later call tries again. */
static void test_tries_again(void)
{
    fake_fail_from(FAKE_ANY, 1);
    assert_false(process_init());
    assert_false(process_init());
    fake_fail_nothing();
    assert_true(process_init());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_begins_once),
        core_unit_test(test_prewarms),
        core_unit_test(test_tries_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
