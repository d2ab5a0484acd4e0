/* Protects harden/spans.h: freed spans that are closed by chance, and serve malloc again. */
#include "heaps.h"

#include <string.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/thread.h"

enum { TRIES = 4000, SIZE = 60000 };

static struct thread_cache *cache;

static void begin(void) { cache = core_begin_thread(); }

/* Asks the kernel, which refuses to write from memory that cannot be read. */
static bool is_readable(const char *at)
{
    static int ends[2] = { -1, -1 };
    char byte;

    if (ends[0] < 0)
        assert_int_equal(pipe(ends), 0);
    return write(ends[1], at, 1) == 1 && read(ends[0], &byte, 1) == 1;
}

static void check_spans(void)
{
    assert_true(cache->spans.count <= SPANS_MOST);
    for (unsigned i = 0; i < cache->spans.count; i++)
        assert_false(is_readable(cache->spans.span[i]));
}

/* One freed span in CLOSE_SHARE is closed. No block lies in it until it is open again: then all of it can be used. */
static void test_spans_by_chance(void)
{
    size_t closed = 0;

    begin();
    for (unsigned i = 0; i < TRIES; i++) {
        char *span = front_malloc(SIZE);
        assert_non_null(span);
        assert_true(is_readable(span));
        memset(span, 0x5a, SIZE);
        front_free(span);
        closed += !is_readable(span);
    }
    assert_in_range(closed, TRIES / CLOSE_SHARE / 2, TRIES / CLOSE_SHARE * 2);
    assert_int_equal(cache->spans.count, SPANS_MOST);
    check_spans();
    core_check_pool();
}

/* The spans count in their classes, and none after a flush: their slabs have them again. */
static void test_spans_count(void)
{
    unsigned one = class_of_size(SIZE + SEAL_BYTES), five = class_of_size(300000 + SEAL_BYTES), counted;

    begin();
    for (unsigned i = 0; i < 300; i++) {
        void *span = front_malloc(i % 2 ? SIZE : 300000);
        front_free(span);
    }
    counted = spans_count(&cache->spans, one) + spans_count(&cache->spans, five);
    assert_true(counted > 0);
    assert_int_equal(counted, cache->spans.count);
    assert_int_equal(spans_count(&cache->spans, CLASS_SPAN_16), 0);
    spans_flush(&cache->spans, cache->heap);
    assert_int_equal(cache->spans.count, 0);
    assert_int_equal(spans_count(&cache->spans, one), 0);
    core_check_pool();
}

/* A write to the first bytes of a freed span is found when it leaves the thread, also if no malloc gets it. */
static void test_spans_written(void)
{
    char *spans[4];

    begin();
    for (unsigned i = 0; i < 4; i++)
        assert_non_null(spans[i] = front_malloc(SIZE));
    for (unsigned i = 0; i < 4; i++)
        front_free(spans[i]);
    for (unsigned i = 0; i < 4; i++)
        if (is_readable(spans[i]))
            spans[i][FREE_EDGE - 1] = 7;
    capture_begin();
    cache_flush_all(cache, true);
    assert_has(capture_end(), "written while it was free, at byte 31 (now 0x07)");
    core_check_pool();
}

/* If the kernel refuses to close a span, it waits open like the others; if it refuses to open one, it is lost. */
static void test_spans_refused(void)
{
    begin();
    fake_fail_from(FAKE_PROTECT, 1);
    for (unsigned i = 0; i < 200; i++)
        front_free(front_malloc(SIZE));
    assert_int_equal(cache->spans.count, 0);
    fake_fail_nothing();
    while (cache->spans.count == 0)
        front_free(front_malloc(SIZE));
    fake_fail_from(FAKE_PROTECT, 1);
    spans_flush(&cache->spans, cache->heap);
    assert_int_equal(cache->spans.count, 0);
    fake_fail_nothing();
    for (unsigned i = 0; i < 200; i++) {
        char *span = front_malloc(SIZE);
        memset(span, 0x5a, SIZE);
        front_free(span);
    }
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_spans_by_chance),
        core_unit_test(test_spans_count),
        core_unit_test(test_spans_written),
        core_unit_test(test_spans_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
