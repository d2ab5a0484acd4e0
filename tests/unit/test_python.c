/* Protects the decoding of CPython's line tables and of its table of offsets, and reads of memory that may be gone. */
#define _GNU_SOURCE
#include "support.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"
#include "os/os.h"
#include "os/peek.h"
#include "profile/python_layout.h"
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

/* ---- Offsets ---- */

enum { WORDS = 96 };
#define ANY (UINT32_MAX - 1)

/* The fields' places in _Py_DebugOffsets (Include/internal/pycore_debug_offsets.h of 3.13 and 3.14), and the highest
 * offset at which a field is still read. */
static const struct told_offset {
    size_t field; /* offset in struct python_layout */
    unsigned place[2];
    uint32_t most;
} told_offsets[] = {
    { offsetof(struct python_layout, runtime_interpreters), { 5, 5 }, ANY },
    { offsetof(struct python_layout, interpreter_next), { 8, 8 }, ANY },
    { offsetof(struct python_layout, interpreter_threads), { 9, 9 }, ANY },
    { offsetof(struct python_layout, thread_next), { 21, 24 }, PYTHON_THREAD_BYTES - 8 },
    { offsetof(struct python_layout, thread_frame), { 23, 26 }, PYTHON_THREAD_BYTES - 8 },
    { offsetof(struct python_layout, thread_id), { 24, 27 }, PYTHON_THREAD_BYTES - 8 },
    { offsetof(struct python_layout, frame_previous), { 29, 32 }, PYTHON_FRAME_BYTES - 8 },
    { offsetof(struct python_layout, frame_code), { 30, 33 }, PYTHON_FRAME_BYTES - 8 },
    { offsetof(struct python_layout, frame_place), { 31, 34 }, PYTHON_FRAME_BYTES - 8 },
    { offsetof(struct python_layout, frame_owner), { 33, 36 }, PYTHON_FRAME_BYTES - 8 },
    { offsetof(struct python_layout, code_file), { 35, 40 }, PYTHON_CODE_BYTES - 8 },
    { offsetof(struct python_layout, code_name), { 37, 42 }, PYTHON_CODE_BYTES - 8 },
    { offsetof(struct python_layout, code_table), { 38, 43 }, PYTHON_CODE_BYTES - 8 },
    { offsetof(struct python_layout, code_first_line), { 39, 44 }, PYTHON_CODE_BYTES - 8 },
    { offsetof(struct python_layout, code_start), { 43, 48 }, ANY },
    { offsetof(struct python_layout, object_type), { 45, 51 }, PYTHON_CODE_BYTES - 8 },
    { offsetof(struct python_layout, bytes_size), { 65, 75 }, 127 },
    { offsetof(struct python_layout, bytes_data), { 66, 76 }, ANY },
    { offsetof(struct python_layout, text_state), { 68, 78 }, 127 },
    { offsetof(struct python_layout, text_length), { 69, 79 }, 127 },
    { offsetof(struct python_layout, text_ascii), { 70, 80 }, ANY },
};

static uint64_t told[WORDS];

static void tell(uint32_t version, bool free_threaded)
{
    for (unsigned i = 3; i < WORDS; i++)
        told[i] = i; /* each field has another offset */
    memcpy(told, "xdebugpy", 8);
    told[1] = version;
    told[2] = free_threaded;
}

static uint32_t offset_in(const struct python_layout *layout, const struct told_offset *row)
{
    return *(const uint32_t *)((const char *)layout + row->field);
}

static void test_told_offsets(void **state)
{
    struct python_layout layout;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        unsigned minor = 13 + i % 2, which = i % 2;
        bool free_threaded = i / 2;
        tell(0x030000f0 | minor << 16, free_threaded);
        assert_true(python_layout_find(&layout, (uintptr_t)told, 0));
        assert_int_equal(layout.minor, minor);
        assert_int_equal(layout.entry, PYTHON_ENTRY_SHIM);
        assert_int_equal(layout.table, PYTHON_LOCATION_TABLE);
        assert_int_equal(layout.holder_frame, PYTHON_NONE);
        assert_int_equal(layout.text_other, layout.text_ascii + 16);
        assert_int_equal(layout.text_kind_shift, free_threaded && minor == 14 ? 8 : 2);
        for (size_t k = 0; k < sizeof told_offsets / sizeof told_offsets[0]; k++) {
            const struct told_offset *row = &told_offsets[k];
            uint64_t before = told[row->place[which]];
            assert_int_equal(offset_in(&layout, row), before);
            told[row->place[which]] = row->most;
            assert_true(python_layout_find(&layout, (uintptr_t)told, 0));
            assert_int_equal(offset_in(&layout, row), row->most);
            told[row->place[which]] = (uint64_t)row->most + 1;
            assert_int_equal(python_layout_find(&layout, (uintptr_t)told, 0), row->most == ANY);
            told[row->place[which]] = UINT64_MAX;
            assert_int_equal(python_layout_find(&layout, (uintptr_t)told, 0), row->most == ANY);
            if (row->most == ANY) /* PYTHON_NONE would mean that there is no such field */
                assert_int_equal(offset_in(&layout, row), ANY);
            told[row->place[which]] = before;
        }
    }
}

static void test_unknown_versions(void **state)
{
    static const uint32_t unknown[] = { 0x030c00f0, 0x030f00f0, 0x020d00f0, 0x040d00f0, 0 };
    struct python_layout layout;

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        tell(unknown[i], false);
        assert_false(python_layout_find(&layout, (uintptr_t)told, 0));
    }
    tell(0x030d00f0, false);
    told[0]++;
    assert_false(python_layout_find(&layout, (uintptr_t)told, 0));
    assert_false(python_layout_find(&layout, 4096, 0x030d00f0));
    for (unsigned minor = 9; minor <= 12; minor++) { /* these need not tell anything */
        assert_true(python_layout_find(&layout, 4096, 0x030000f0 | minor << 16));
        assert_int_equal(layout.minor, minor);
        assert_false(python_layout_find(&layout, 4096, 0x020000f0 | minor << 16));
    }
    assert_false(python_layout_find(&layout, 4096, 0x030800f0));
}

/* ---- Memory ---- */

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

static void test_where_the_kernel_refuses(void **state)
{
    char from = 1, into = 0;

    (void)state;
    bool peeks = machine_lacks_process_vm_readv() == NULL;

    assert_true(os_peek_at((uintptr_t)&from, &into, 1) == peeks);
    assert_int_equal(into, peeks ? 1 : 0);
}

int main(void)
{
    const struct CMUnitTest refused[] = {
        cmocka_unit_test(test_where_the_kernel_refuses),
        cmocka_unit_test(test_the_calling_thread),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lnotab),
        cmocka_unit_test(test_line_table),
        cmocka_unit_test(test_location_table),
        cmocka_unit_test(test_a_long_table),
        cmocka_unit_test(test_damaged_tables),
        cmocka_unit_test(test_told_offsets),
        cmocka_unit_test(test_unknown_versions),
        cmocka_unit_test(test_memory_that_is_not_there),
        cmocka_unit_test(test_where_the_kernel_refuses),
        cmocka_unit_test(test_the_calling_thread),
    };
    if (!machine_has("test_python", machine_lacks_process_vm_readv()))
        return cmocka_run_group_tests(refused, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
