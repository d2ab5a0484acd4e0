/* Protects base/: arithmetic (against plain loops), formatting (against printf), messages, and the end by assertion. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/format.h"
#include "base/stderr.h"
#include "base/version.h"
#include "hakmem/hakmem.h"

static void test_bits(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t one = UINT64_C(1) << bit;
        assert_int_equal(base_low_bit(one), bit);
        assert_int_equal(base_high_bit(one), bit);
        assert_int_equal(base_low_bit(~UINT64_C(0) << bit), bit);
        assert_int_equal(base_high_bit(one | (one - 1)), bit);
        assert_int_equal(base_count_bits(base_low_mask(bit)), bit);
        assert_true(base_low_mask(bit) == one - 1);
        assert_true(base_is_pow2(one));
        assert_int_equal(base_is_pow2(one + 1), bit == 0);
    }
    assert_true(base_low_mask(64) == UINT64_MAX);
    assert_int_equal(base_count_bits(UINT64_MAX), 64);
    assert_false(base_is_pow2(0));
}

static void test_sizes(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= 64; alignment *= 2) {
        for (size_t n = 0; n < 300; n++) {
            size_t up = base_align_up(n, alignment), down = base_align_down(n, alignment);
            assert_true(up % alignment == 0 && up >= n && up - n < alignment);
            assert_true(down % alignment == 0 && down <= n && n - down < alignment);
        }
    }
    assert_int_equal(base_min(3, 4), 3);
    assert_int_equal(base_max(3, 4), 4);
}

/* base's printer and printf get the same arguments. They must print the same where the formats mean the same. */
#define CHECK_SAME(...)                                                    \
    do {                                                                   \
        char ours[256], theirs[256];                                       \
        size_t length = base_format(ours, sizeof ours, __VA_ARGS__);       \
        snprintf(theirs, sizeof theirs, __VA_ARGS__);                      \
        assert_string_equal(ours, theirs);                                 \
        assert_int_equal(length, strlen(theirs));                          \
    } while (0)

static void test_format_as_printf(void **state)
{
    (void)state;
    static const int64_t numbers[] = { 0, 1, -1, 9, 10, -10, 255, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        long long n = numbers[i];
        CHECK_SAME("%d|%i|%u|%x", (int)n, (int)n, (unsigned)n, (unsigned)n);
        CHECK_SAME("%ld|%li|%lu|%lx", (long)n, (long)n, (unsigned long)n, (unsigned long)n);
        CHECK_SAME("%lld|%llu|%llx", n, (unsigned long long)n, (unsigned long long)n);
        CHECK_SAME("%zd|%zu|%zx", (ssize_t)n, (size_t)n, (size_t)n);
        CHECK_SAME("[%12d|%-12d|%012d]", (int)n, (int)n, (int)n);
        CHECK_SAME("[%3lld|%25lld|%-25lld|%025lld|%1lld]", n, n, n, n, n);
        CHECK_SAME("[%08x|%016llx|%*d|%*d]", (unsigned)n, (unsigned long long)n, 14, (int)n, 1, (int)n);
    }
    CHECK_SAME("%s and %s%%", "one", "");
    CHECK_SAME("[%8s|%-8s|%2s]", "word", "word", "word");
    CHECK_SAME("[%.2s|%.*s|%10.3s|%-10.*s|%.0s|%.9s]", "word", 3, "word", "word", 2, "word", "word", "word");
    CHECK_SAME("%c%c%3c", 'a', 'b', 'c');
    CHECK_SAME("%p", (void *)(uintptr_t)0x7f0012345678);
    CHECK_SAME("no conversion");
}

static void test_format_own(void **state)
{
    (void)state;
    char text[64];
    base_format(text, sizeof text, "%p", (void *)NULL);
    assert_string_equal(text, "0x0");
    const char *volatile no_text = NULL;
    base_format(text, sizeof text, "<%s>", no_text);
    assert_string_equal(text, "<(null)>");
    const char *volatile unknown = "%d %y %d"; /* hidden from the compiler's check */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    base_format(text, sizeof text, unknown, 7, 8);
#pragma GCC diagnostic pop
    assert_string_equal(text, "7 %y %d");
}

static void test_format_cuts(void **state)
{
    (void)state;
    char text[16];
    for (size_t capacity = 1; capacity <= sizeof text; capacity++) {
        memset(text, '#', sizeof text);
        assert_int_equal(base_format(text, capacity, "%s%d%10s", "abcd", 12345678, "xyz"), capacity - 1);
        assert_int_equal(strlen(text), capacity - 1);
        assert_memory_equal(text, "abcd12345678       ", capacity - 1);
        for (size_t i = capacity; i < sizeof text; i++)
            assert_int_equal(text[i], '#');
    }
    text[0] = '#';
    assert_int_equal(base_format(text, 0, "abc"), 0);
    assert_int_equal(text[0], '#');
    assert_int_equal(base_format(text, sizeof text, "%2000000000d", 1), sizeof text - 1);
}

static void test_message(void **state)
{
    (void)state;
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';

    capture_begin();
    errno = 4711;
    base_message("%s is %d", "it", 3);
    int after = errno;
    base_message("%s", longest);
    const char *said = capture_end();
    assert_int_equal(after, 4711);
    assert_true(strncmp(said, "hakmem: it is 3\nhakmem: xxx", 27) == 0);
    assert_int_equal(count_of(said, "\n"), 2);
    assert_int_equal(said[strlen(said) - 1], '\n');
    assert_true(strlen(said) > 1000 && strlen(said) < 1100);
}

/* A message that cannot be written leaves errno unchanged. */
static void test_message_unwritten(void **state)
{
    int before = dup(STDERR_FILENO);
    (void)state;
    close(STDERR_FILENO);
    errno = 4711;
    base_message("nobody reads this");
    int after = errno;
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    assert_int_equal(after, 4711);
}

/* A new file on the file system that the other temporary files of this test use. */
static int open_temporary(void)
{
    char path[] = "/tmp/hakmem-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    return file;
}

/* If another file took over the descriptor that was kept for standard error, it gets no message and stays open. */
static void test_kept_number_reused(void **state)
{
    enum { KEPT = 1000 };
    int before = dup(STDERR_FILENO), first = open_temporary(), second = open_temporary(), told;
    (void)state;
    dup2(first, STDERR_FILENO);
    base_stderr_keep();
    assert_true(fcntl(KEPT, F_GETFD) >= 0);
    close(STDERR_FILENO);
    assert_int_equal(base_stderr(), KEPT);
    dup2(second, KEPT);
    told = base_stderr();
    base_stderr_drop();
    dup2(before, STDERR_FILENO);
    assert_int_equal(told, STDERR_FILENO);
    assert_int_equal(close(KEPT), 0);
    close(before);
    close(first);
    close(second);
}

static void fail_check(void)
{
    volatile int two = 2;
    HAK_CHECK(two + two == 5);
}

static void fail_assert(void)
{
    volatile int two = 2;
    HAK_ASSERT(two + two == 5);
}

static void test_checks(void **state)
{
    (void)state;
    assert_aborts(fail_check, "hakmem: broken invariant: two + two == 5 (");
    if (HAK_DEBUG)
        assert_aborts(fail_assert, "test_base.c:");
    else
        assert_int_equal(signal_of(fail_assert), 0);
}

static void test_version(void **state)
{
    (void)state;
    assert_string_equal(BASE_VERSION_STRING, HAK_VERSION_STRING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_format_as_printf),
        cmocka_unit_test(test_format_own),
        cmocka_unit_test(test_format_cuts),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_message_unwritten),
        cmocka_unit_test(test_kept_number_reused),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
