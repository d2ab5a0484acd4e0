/* Protects front/pressure.c: the handler gets the figures, runs in one thread at a time, and never inside itself. */
#include "support.h"

#include <pthread.h>

#include "front/pressure.h"

static size_t mapped, limit;
static unsigned calls;

static void handle(size_t bytes_mapped, size_t bytes_limit)
{
    mapped = bytes_mapped;
    limit = bytes_limit;
    calls++;
    pressure_call(1, 2); /* as if the handler itself allocated */
}

static void *call_in_thread(void *nothing)
{
    pressure_call(5, 6);
    return nothing;
}

/* While it runs, another thread passes the limit. */
static void handle_slowly(size_t bytes_mapped, size_t bytes_limit)
{
    pthread_t thread;
    (void)bytes_mapped;
    (void)bytes_limit;
    calls++;
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, NULL), 0);
    pthread_join(thread, NULL);
}

static void test_handler(void **state)
{
    (void)state;
    pressure_call(7, 8); /* without a handler nothing happens */
    assert_true(pressure_set_handler(handle) == NULL);
    pressure_call(300, 200);
    assert_int_equal(calls, 1);
    assert_int_equal(mapped, 300);
    assert_int_equal(limit, 200);
    pressure_call(400, 200);
    assert_int_equal(calls, 2);
    assert_true(pressure_set_handler(handle_slowly) == handle);
    pressure_call(500, 200);
    assert_int_equal(calls, 3);
    assert_true(pressure_set_handler(NULL) == handle_slowly);
    pressure_call(600, 200);
    assert_int_equal(calls, 3);
    assert_int_equal(mapped, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_handler) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
