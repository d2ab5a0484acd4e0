/* Protects os/older_libc.c: keys that HAKMEM makes without libpthread are made when the library is there.
 *
 * This program has no __real_ functions, as a process without libpthread has none. __wrap_os_symbol_of stands for the
 * library that the process loads later. */
#include "core.h"

#include <errno.h>
#include <string.h>

#include "os/older_libc.h"

int __wrap_pthread_key_create(pthread_key_t *key, void (*at_exit)(void *));
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size);
void *__wrap_os_symbol_of(const char *const *libraries, const char *name);

/* ---- The library ---- */

static bool is_loaded;
static int create_error;
static unsigned lookups, made, values;
static void (*made_at_exit[4])(void *);

static int create(pthread_key_t *key, void (*at_exit)(void *))
{
    if (create_error)
        return create_error;
    made_at_exit[made] = at_exit;
    *key = 100 + made++;
    return 0;
}

static int set(pthread_key_t key, const void *value)
{
    values++;
    return key == 100 && value == &values ? 0 : EINVAL;
}

void *__wrap_os_symbol_of(const char *const *libraries, const char *name)
{
    union {
        int (*create)(pthread_key_t *, void (*)(void *));
        int (*set)(pthread_key_t, const void *);
        void *symbol;
    } found = { .symbol = NULL };

    lookups++;
    assert_string_equal(libraries[0], "libpthread.so.0");
    assert_null(libraries[1]);
    if (is_loaded && strcmp(name, "pthread_key_create") == 0)
        found.create = create;
    else if (is_loaded && strcmp(name, "pthread_setspecific") == 0)
        found.set = set;
    return found.symbol;
}

/* ---- Tests ---- */

static void one(void *unused) { (void)unused; }
static void two(void *unused) { (void)unused; }

static void test_keys_are_made_late(void)
{
    pthread_key_t first = 0, second = 0, third = 0;

    assert_int_equal(__wrap_pthread_key_create(&first, one), 0);
    assert_int_equal(__wrap_pthread_key_create(&second, two), 0);
    assert_int_equal(__wrap_pthread_key_create(&third, two), EAGAIN);
    assert_int_equal(__wrap_pthread_setspecific(first, &values), 0); /* the main thread's value is not kept */
    older_libc_before_thread();
    assert_true(lookups > 0);
    assert_int_equal(made, 0);
    is_loaded = true;
    older_libc_before_thread();
    assert_int_equal(made, 2);
    assert_int_equal(first, 100);
    assert_int_equal(second, 101);
    assert_ptr_equal(made_at_exit[0], one);
    assert_ptr_equal(made_at_exit[1], two);
    assert_int_equal(values, 0);
    assert_int_equal(__wrap_pthread_setspecific(first, &values), 0);
    assert_int_equal(__wrap_pthread_setspecific(second, &values), EINVAL);
    assert_int_equal(values, 2);
    older_libc_before_thread();
    assert_int_equal(made, 2);
}

static void test_no_keys(void)
{
    is_loaded = true;
    older_libc_before_thread();
    assert_int_equal(lookups, 0);
    assert_int_equal(__wrap_pthread_attr_setstacksize(NULL, 65536), 0);
}

/* A library that makes no key gets no values. */
static void test_refused(void)
{
    pthread_key_t key = 0;

    assert_int_equal(__wrap_pthread_key_create(&key, one), 0);
    is_loaded = true;
    create_error = EAGAIN;
    older_libc_before_thread();
    assert_int_equal(__wrap_pthread_setspecific(key, &values), 0);
    assert_int_equal(values, 0);
    create_error = 0;
    older_libc_before_thread();
    assert_int_equal(made, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_keys_are_made_late),
        core_unit_test(test_no_keys),
        core_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
