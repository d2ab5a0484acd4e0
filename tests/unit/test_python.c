/* Protects the decoding of line tables of CPython 3.9 to 3.11, and reads of memory that may be gone. */
#define _GNU_SOURCE
#include "support.h"

#include <sys/mman.h>
#include <unistd.h>

#include "os/os.h"
#include "os/peek.h"
#include "profile/python_lines.h"

struct place {
    int64_t place;
    uint32_t line;
};

static void check(enum python_table kind, const uint8_t *table, size_t size, uint32_t first, const struct place *places,
                  size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(python_line(kind, (uintptr_t)table, size, first, places[i].place), places[i].line);
}

#define CHECK(kind, table, first, places) \
    check(kind, table, sizeof(table), first, places, sizeof(places) / sizeof((places)[0]))

/*
 * def f(a):
 *     x = g(a,
 *       b)
 *     (300 lines without code)
 *     return h(
 *        x)
 */
static void test_lnotab(void **state)
{
    static const uint8_t table[] = { 0, 1, 4, 1, 2, 255, 4, 127, 0, 127, 0, 48, 2, 1, 2, 255 };
    static const struct place places[] = { { -1, 1 }, { 0, 2 },    { 2, 2 },    { 4, 3 },   { 6, 2 },
                                           { 8, 2 },  { 10, 304 }, { 12, 305 }, { 14, 304 } };

    (void)state;
    CHECK(PYTHON_LNOTAB, table, 1, places);
}

/* Each range starts with the change of its line. The third range has no line. */
static void test_line_table(void **state)
{
    static const uint8_t table[] = { 4, 1, 8, 2, 4, 128, 6, 255, 0, 127, 2, 127 };
    static const struct place places[] = { { 0, 11 }, { 2, 11 },  { 4, 13 },  { 10, 13 },  { 12, 0 },
                                           { 14, 0 }, { 16, 12 }, { 20, 12 }, { 22, 266 }, { 24, 0 } };

    (void)state;
    CHECK(PYTHON_LINE_TABLE, table, 10, places);
}

static void test_location_table(void **state)
{
    static const uint8_t table[] = { 128, 0, 221, 8,  9,   136, 33,  221, 6,  7,   241, 3,  1,   9, 9, 244,
                                     0,   1, 9,   9,  128, 65,  245, 92,  9,  0,   12,  13, 216, 7, 8, 241,
                                     3,   1, 12,  10, 244, 0,   1,   12,  10, 240, 0,   1,  5,   10 };
    static const struct place places[] = { { 0, 1 },  { 2, 2 },    { 14, 2 },   { 16, 3 },   { 26, 3 },   { 28, 2 },
                                           { 42, 2 }, { 44, 304 }, { 56, 305 }, { 58, 304 }, { 72, 304 }, { 4000, 0 } };

    (void)state;
    CHECK(PYTHON_LOCATION_TABLE, table, 1, places);
}

/* A table longer than one read, with entries that cross the reads. */
static void test_a_long_table(void **state)
{
    static uint8_t table[30000];

    (void)state;
    for (unsigned i = 0; i < sizeof table; i += 3) { /* 3-byte entries, a line each: CODE_ONE_LINE + 1 */
        table[i] = 128 | (11 << 3);
        table[i + 1] = table[i + 2] = 5;
    }
    for (unsigned number = 0; number < sizeof table / 3; number += 97)
        assert_int_equal(python_line(PYTHON_LOCATION_TABLE, (uintptr_t)table, sizeof table, 7, 2 * number), 8 + number);
}

/* A truncated table, or none, ends the search. */
static void test_damaged_tables(void **state)
{
    uint8_t bytes[64];

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        for (unsigned i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(round * 2654435761u >> (i % 24));
        for (int kind = PYTHON_LNOTAB; kind <= PYTHON_LOCATION_TABLE; kind++)
            python_line((enum python_table)kind, (uintptr_t)bytes, round % sizeof bytes, 1, (int64_t)(round % 500));
    }
    assert_int_equal(python_line(PYTHON_LOCATION_TABLE, 4096, 100, 1, 8), 0);
    assert_int_equal(python_line(PYTHON_LOCATION_TABLE, (uintptr_t)bytes, SIZE_MAX, 1, 8), 0);
}

static void test_memory_that_is_not_there(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char into[64] = "";

    (void)state;
    mprotect(memory + page, page, PROT_NONE);
    memory[page - 1] = 'a';
    assert_true(os_peek_at((uintptr_t)memory + page - 8, into, 8) && into[7] == 'a');
    for (unsigned round = 0; round < 3; round++) { /* the page is known from the second round on */
        memory[0] = (char)('b' + round);
        assert_true(os_peek_live_at((uintptr_t)memory, into, 9) && into[0] == 'b' + (int)round);
        assert_false(os_peek_live_at((uintptr_t)memory + page - 8, into, 9));
        assert_false(os_peek_live_at((uintptr_t)memory + page, into, 1));
        assert_false(os_peek_live_at(UINTPTR_MAX - 3, into, 8));
        assert_false(os_peek_live_at(0, into, 8));
        assert_false(os_peek_at(UINTPTR_MAX / 2, into, 8));
    }
    struct os_piece pieces[] = { { (uintptr_t)memory, into, 4 },
                                 { (uintptr_t)memory + page, into + 4, 4 },
                                 { (uintptr_t)memory + 2 * page, into + 8, 4 } };
    assert_false(os_peek_live(pieces, 3));
    pieces[1].address = (uintptr_t)memory + 8;
    assert_true(os_peek_live(pieces, 3));
    munmap(memory, 3 * page);
}

static void test_the_calling_thread(void **state)
{
    (void)state;
    os_peek_prepare();
    assert_int_equal(os_thread_self(), (uintptr_t)pthread_self());
}

/* qemu-user lacks process_vm_readv. */
static void test_where_the_kernel_refuses(void **state)
{
    char from = 1, into = 0;

    (void)state;
    assert_true(os_peek_at((uintptr_t)&from, &into, 1) == !UNIT_EMULATED);
    assert_int_equal(into, UNIT_EMULATED ? 0 : 1);
}

int main(void)
{
    const struct CMUnitTest emulated[] = {
        cmocka_unit_test(test_where_the_kernel_refuses),
        cmocka_unit_test(test_the_calling_thread),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lnotab),
        cmocka_unit_test(test_line_table),
        cmocka_unit_test(test_location_table),
        cmocka_unit_test(test_a_long_table),
        cmocka_unit_test(test_damaged_tables),
        cmocka_unit_test(test_memory_that_is_not_there),
        cmocka_unit_test(test_where_the_kernel_refuses),
        cmocka_unit_test(test_the_calling_thread),
    };
    if (UNIT_EMULATED)
        return cmocka_run_group_tests(emulated, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
