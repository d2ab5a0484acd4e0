/* Protects options/: every row of the table, every kind of value, and the messages about wrong values. */
#define _GNU_SOURCE
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_rows.h"
#include "os/fake.h"

/* The program's own settings. The tests change them. */
char hakmem_options[2048];

static struct options defaults;

static int keep_defaults(void **state)
{
    (void)state;
    defaults = hak_options;
    return 0;
}

static int restore_defaults(void **state)
{
    (void)state;
    hak_options = defaults;
    hakmem_options[0] = '\0';
    fake_reset();
    return 0;
}

/* Reads an environment of these entries (ended by NULL), starting from the defaults. Returns the messages. */
#define read_with(...) read_entries((char *[]){ __VA_ARGS__ })
static const char *read_entries(char *const *entries)
{
    static char *environment[64];
    size_t count = 0;
    for (; count < 63 && entries[count] != NULL; count++)
        environment[count] = entries[count];
    environment[count] = NULL;
    hak_options = defaults;
    fake_set_environment(environment);
    capture_begin();
    options_read();
    return capture_end();
}

static const char *read_one(const struct row *row, const char *value)
{
    static char entry[400];
    snprintf(entry, sizeof entry, "%s=%s", row->name, value);
    return read_with(entry, NULL);
}

static const char *read_number(const struct row *row, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return read_one(row, text);
}

static bool others_are_default(const struct row *row)
{
    for (size_t i = 0; i < ROWS; i++)
        if (&rows[i] != row && *rows[i].value != rows[i].default_value)
            return false;
    return true;
}

static const struct row *row_named(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fail_msg("no row %s", name);
    return NULL;
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(strncmp(rows[i].name, "HAKMEM_", 7) == 0);
        assert_int_equal(*rows[i].value, rows[i].default_value);
        if (rows[i].kind != LIMIT && rows[i].kind != PATH)
            assert_true(rows[i].lowest <= rows[i].default_value && rows[i].default_value <= rows[i].highest);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
    }
}

static void test_nothing_set(void **state)
{
    (void)state;
    assert_string_equal(read_with("PATH=/bin", "HAKMEM", "HAKMEMFC_CAP=1", "XHAKMEM_FC_CAP=1", "", NULL), "");
    assert_true(others_are_default(NULL));
}

static const char *read_compiled_and(const char *text, char *entry)
{
    assert_true(strlen(text) < sizeof hakmem_options);
    strcpy(hakmem_options, text);
    return read_with(entry, NULL);
}

static void test_compiled(void **state)
{
    static char longest[1024];
    (void)state;
    assert_string_equal(read_compiled_and("PURGE_DELAY=77;HAKMEM_THP=never;;MEMORY_LIMIT=1G;", NULL), "");
    assert_int_equal(hak_options.purge_delay, 77);
    assert_int_equal(hak_options.thp, OPTION_NEVER);
    assert_int_equal(hak_options.memory_limit, 1 << 30);
    /* The environment overrides the compiled settings. A bad value in it does not. */
    assert_string_equal(read_compiled_and("PURGE_DELAY=77;PURGE_DELAY=88;FC_CAP=9", "HAKMEM_PURGE_DELAY=5"), "");
    assert_int_equal(hak_options.purge_delay, 5);
    assert_int_equal(hak_options.fc_cap, 9);
    assert_has(read_compiled_and("PURGE_DELAY=77", "HAKMEM_PURGE_DELAY=soon"), "; using 77\n");
    assert_int_equal(hak_options.purge_delay, 77);
    assert_string_equal(read_compiled_and("STATS_FILE=/tmp/one", "HAKMEM_STATS_FILE="),
                        "hakmem: HAKMEM_STATS_FILE= is not a path of 1 to some 4096 characters; using /tmp/one\n");
    assert_string_equal(option_path(hak_options.stats_file), "/tmp/one");
    /* Each wrong setting gets a message. The others apply. */
    assert_string_equal(read_compiled_and("PURGE_DELAX=1;THP;FC_CAP=10", NULL),
                        "hakmem: unknown variable HAKMEM_PURGE_DELAX ignored; did you mean HAKMEM_PURGE_DELAY?\n"
                        "hakmem: hakmem_options: HAKMEM_THP has no value; ignored\n");
    assert_int_equal(hak_options.fc_cap, 10);
    memset(longest, 'x', 600);
    strcpy(longest + 600, ";FC_CAP=11");
    assert_has(read_compiled_and(longest, NULL), "is longer than 511 characters; ignored\n");
    assert_int_equal(hak_options.fc_cap, 11);
    strcpy(longest, "STATS_FILE=");
    longest[11] = 'x';
    strcpy(longest + 511, ";FC_CAP=12");
    assert_string_equal(read_compiled_and(longest, NULL), "");
    assert_int_equal(strlen(option_path(hak_options.stats_file)), 500);
    assert_int_equal(hak_options.fc_cap, 12);
}

static void test_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        if (row->kind == LIMIT || row->kind == CHOICE || row->kind == FORMAT || row->kind == PATH)
            continue;
        assert_string_equal(read_number(row, row->lowest), "");
        assert_int_equal(*row->value, row->lowest);
        assert_string_equal(read_number(row, row->highest), "");
        assert_int_equal(*row->value, row->highest);
        assert_true(others_are_default(row));
        const char *said = read_number(row, row->highest + 1);
        assert_has(said, row->name);
        assert_has(said, "; using ");
        assert_int_equal(*row->value, row->default_value);
        if (row->lowest > 0) {
            assert_has(read_number(row, row->lowest - 1), row->name);
            assert_int_equal(*row->value, row->default_value);
        }
    }
}

static void test_rubbish(void **state)
{
    (void)state;
    static const char *const values[] = { "",
                                          " ",
                                          "abc",
                                          "-1",
                                          "+1",
                                          "1 ",
                                          " 1",
                                          "1x",
                                          "0x10",
                                          "1.5",
                                          "1e3",
                                          "1KK",
                                          "1iB",
                                          "1Kib1",
                                          "99999999999999999999999999",
                                          "18446744073709551616K",
                                          "K",
                                          "autoo" };
    for (size_t i = 0; i < ROWS; i++) {
        /* A path may be any text but the empty one. */
        for (size_t j = 0; j < (rows[i].kind == PATH ? 1 : sizeof values / sizeof values[0]); j++) {
            const char *said = read_one(&rows[i], values[j]);
            char start[128];
            snprintf(start, sizeof start, "hakmem: %s=%s is not ", rows[i].name, values[j]);
            assert_true(strncmp(said, start, strlen(start)) == 0);
            assert_int_equal(count_of(said, "\n"), 1);
            assert_int_equal(*rows[i].value, rows[i].default_value);
        }
    }
}

static void test_bool_words(void **state)
{
    (void)state;
    static const char *const words[2][7] = { { "0", "off", "no", "false", "OFF", "No", "False" },
                                             { "1", "on", "yes", "true", "ON", "Yes", "tRuE" } };
    const struct row *switches[] = { row_named("HAKMEM_POPULATE"), row_named("HAKMEM_VERBOSE") };
    for (size_t i = 0; i < 2; i++) {
        for (unsigned truth = 0; truth <= 1; truth++) {
            for (size_t j = 0; j < 7; j++) {
                assert_string_equal(read_one(switches[i], words[truth][j]), "");
                assert_int_equal(*switches[i]->value, truth);
            }
        }
    }
    assert_string_equal(read_one(switches[0], "2"), "hakmem: HAKMEM_POPULATE=2 is not 0 or 1; using 1\n");
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        { "20000", 20000 },       { "20000B", 20000 },        { "32K", 32768 },   { "32k", 32768 },
        { "32KB", 32768 },        { "32KiB", 32768 },         { "32kib", 32768 }, { "1M", 1048576 },
        { "0064MiB", 67108864 },
    };
    const struct row *row = row_named("HAKMEM_CACHE_BYTES");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_string_equal(read_one(row, sizes[i].text), "");
        assert_int_equal(*row->value, sizes[i].bytes);
    }
    assert_string_equal(read_one(row, "1G"), "hakmem: HAKMEM_CACHE_BYTES=1G is not a size from 16K to 64M; using 1M\n");
    row = row_named("HAKMEM_HUGE_CACHE");
    assert_string_equal(read_one(row, "3G"), "");
    assert_int_equal(*row->value, 3 * HAK_GIB);
    assert_string_equal(read_one(row, "1TiB"), "");
    assert_int_equal(*row->value, 1024 * HAK_GIB);
}

static void test_choice(void **state)
{
    (void)state;
    const struct row *row = row_named("HAKMEM_THP");
    assert_string_equal(read_one(row, "never"), "");
    assert_int_equal(*row->value, OPTION_NEVER);
    assert_string_equal(read_one(row, "Always"), "");
    assert_int_equal(*row->value, OPTION_ALWAYS);
    assert_string_equal(read_one(row, "auto"), "");
    assert_int_equal(*row->value, OPTION_AUTO);
    assert_string_equal(read_one(row, "often"), "hakmem: HAKMEM_THP=often is not auto, never or always; using auto\n");
}

static void test_format(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t format;
    } words[] = { { "0", OPTION_NONE }, { "off", OPTION_NONE },  { "1", OPTION_TEXT },        { "yes", OPTION_TEXT },
                  { "text", OPTION_TEXT }, { "JSON", OPTION_JSON }, { "prometheus", OPTION_PROMETHEUS } };
    const struct row *row = row_named("HAKMEM_SHOW_STATS");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        assert_string_equal(read_one(row, words[i].text), "");
        assert_int_equal(*row->value, words[i].format);
    }
    assert_string_equal(read_one(row, "xml"),
                        "hakmem: HAKMEM_SHOW_STATS=xml is not 0, 1, text, json or prometheus; using 0\n");
}

/* All paths share 4096 bytes. Two paths that fit alone need not fit together. */
static void test_paths_together(void **state)
{
    static char first[4096] = "HAKMEM_STATS_FILE=", second[4096] = "HAKMEM_HEAP_PROFILE=";
    (void)state;
    memset(first + strlen(first), 'x', 3000);
    memset(second + strlen(second), 'y', 3000);
    assert_has(read_with(first, second, NULL), " is not a path of 1 to some 4096 characters; using none\n");
    assert_int_equal(strspn(option_path(*row_named("HAKMEM_STATS_FILE")->value), "x"), 3000);
    assert_null(option_path(*row_named("HAKMEM_HEAP_PROFILE")->value));
}

static void test_path(void **state)
{
    (void)state;
    char entry[64] = "HAKMEM_STATS_FILE=/tmp/a b.%p", *too_long = malloc(6000);
    const struct row *row = row_named("HAKMEM_STATS_FILE");
    assert_string_equal(read_with(entry, NULL), "");
    memset(entry, 'x', sizeof entry); /* programs overwrite their environment to show their state */
    assert_string_equal(option_path(*row->value), "/tmp/a b.%p");
    capture_begin();
    options_print();
    assert_has(capture_end(), "* HAKMEM_STATS_FILE=/tmp/a b.%p\n");
    assert_has(read_one(row, ""),
               "hakmem: HAKMEM_STATS_FILE= is not a path of 1 to some 4096 characters; using none\n");
    assert_null(option_path(*row->value));
    assert_has(read_one(row_named("HAKMEM_HEAP_PROFILE_SIGNAL"), ""),
               " is not a signal's name or number of 1 to some 4096");
    assert_has(read_one(row_named("HAKMEM_HEAP_PROFILE_UNWIND"), ""), " is not a word: auto, eh, fp of 1 to some 4096");
    strcpy(too_long, "HAKMEM_STATS_FILE=");
    memset(too_long + 18, 'y', 5000);
    too_long[5018] = '\0';
    assert_has(read_with(too_long, NULL), "yyy... is not a path");
    assert_null(option_path(*row->value));
    free(too_long);
}

static void test_limits(void **state)
{
    (void)state;
    const struct row *soft = row_named("HAKMEM_MEMORY_LIMIT_SOFT"), *hard = row_named("HAKMEM_MEMORY_LIMIT");
    assert_string_equal(read_one(hard, "512M"), "");
    assert_int_equal(*hard->value, 512 * HAK_MIB);
    assert_string_equal(read_one(hard, "0"), "");
    assert_int_equal(*hard->value, 0);

    assert_true(*soft->value == LIMIT_DEFAULT);
    assert_string_equal(read_with("HAKMEM_MEMORY_LIMIT=auto", "HAKMEM_MEMORY_LIMIT_SOFT=AUTO", NULL), "");
    assert_true(*hard->value == LIMIT_AUTO);
    assert_true(*soft->value == LIMIT_AUTO);
    assert_int_equal(fake_memory_bounds_read(), 0); /* superslab/limits.h reads them when they are needed */
    assert_string_equal(read_one(soft, "0"), "");
    assert_int_equal(*soft->value, 0);
    assert_has(read_one(soft, "many"),
               "hakmem: HAKMEM_MEMORY_LIMIT_SOFT=many is not a size such as 512M, 0 or auto; using auto\n");
}

static void test_words_of_the_contract(void **state)
{
    (void)state;
    assert_string_equal(read_with("HAKMEM_FC_CAP=abc", NULL),
                        "hakmem: HAKMEM_FC_CAP=abc is not a number from 8 to 256; using 256\n");
    assert_string_equal(read_with("HAKMEM_FOO=1", NULL), "hakmem: unknown variable HAKMEM_FOO ignored\n");
    assert_string_equal(read_with("HAKMEM_=1", NULL), "hakmem: unknown variable HAKMEM_ ignored\n");
    assert_string_equal(read_with("HAKMEM_PURGE_DELEY=1", NULL),
                        "hakmem: unknown variable HAKMEM_PURGE_DELEY ignored; did you mean HAKMEM_PURGE_DELAY?\n");
    assert_string_equal(read_with("HAKMEM_THPS=never", NULL),
                        "hakmem: unknown variable HAKMEM_THPS ignored; did you mean HAKMEM_THP?\n");
    assert_string_equal(read_with("HAKMEM_fc_cap=9", NULL), "hakmem: unknown variable HAKMEM_fc_cap ignored\n");
    assert_true(others_are_default(NULL));
}

/* The letters to change, add or remove to turn one name into the other: the whole table of Wagner and Fischer. */
static unsigned letters_apart(const char *one, const char *other)
{
    static unsigned apart[128][128];
    size_t rows_count = strlen(one), columns = strlen(other);
    for (size_t i = 0; i <= rows_count; i++)
        for (size_t j = 0; j <= columns; j++) {
            unsigned least = i == 0 ? (unsigned)j : j == 0 ? (unsigned)i : 200;
            if (i && j) {
                least = apart[i - 1][j - 1] + (one[i - 1] != other[j - 1]);
                least = apart[i - 1][j] + 1 < least ? apart[i - 1][j] + 1 : least;
                least = apart[i][j - 1] + 1 < least ? apart[i][j - 1] + 1 : least;
            }
            apart[i][j] = least;
        }
    return apart[rows_count][columns];
}

/* A name gets a hint at the first of the nearest names, if at most a third of its letters differ, and less than
 * four. */
static void test_hints(void **state)
{
    uint64_t chance = 5;
    unsigned hints = 0, without = 0;
    (void)state;
    for (unsigned round = 0; round < 3000; round++) {
        char name[80], entry[100], expected[200];
        const struct row *nearest = NULL;
        unsigned least, own;
        strcpy(name, rows[round % ROWS].name);
        for (unsigned edits = 1 + round / 7 % 5; edits; edits--) {
            size_t length = strlen(name), place;
            chance = chance * UINT64_C(6364136223846793005) + 1442695040888963407u;
            place = 7 + (chance >> 33) % (length - 6);
            if (place < length && chance >> 60 < 6 && length > 8)
                memmove(name + place, name + place + 1, length - place);
            else if (place < length && chance >> 60 < 11)
                name[place] = (char)('A' + (chance >> 50) % 26);
            else {
                memmove(name + place + 1, name + place, length - place + 1);
                name[place] = (char)('A' + (chance >> 50) % 26);
            }
        }
        own = (unsigned)strlen(name) - 7;
        least = own >= 9 ? 4 : own / 3 + 1;
        for (size_t i = 0; i < ROWS && strlen(name) <= 40; i++)
            if (letters_apart(name, rows[i].name) < least) {
                least = letters_apart(name, rows[i].name);
                nearest = &rows[i];
            }
        if (nearest && least == 0)
            continue; /* another option's name */
        if (nearest)
            snprintf(expected, sizeof expected, "hakmem: unknown variable %s ignored; did you mean %s?\n", name,
                     nearest->name);
        else
            snprintf(expected, sizeof expected, "hakmem: unknown variable %s ignored\n", name);
        hints += nearest != NULL;
        without += nearest == NULL;
        snprintf(entry, sizeof entry, "%s=1", name);
        assert_string_equal(read_with(entry, NULL), expected);
    }
    assert_true(hints > 500 && without > 500);
}

static void test_long_ones(void **state)
{
    (void)state;
    char name[600] = "HAKMEM_", value[600] = "HAKMEM_FC_CAP=";
    memset(name + 7, 'A', 500);
    strcat(name, "=1");
    memset(value + 14, '9', 500);
    const char *said = read_with(name, value, NULL);
    assert_int_equal(count_of(said, "\n"), 2);
    assert_has(said, "AAAA... ignored\n");
    assert_has(said, "9999... is not a number from 8 to 256; using 256\n");
    assert_true(strlen(said) < 400);
}

static void test_several(void **state)
{
    (void)state;
    const char *said = read_with("HAKMEM_FC_CAP=64", "HAKMEM_X_Y_Z=3", "HAKMEM_FC_CAP=32", "HAKMEM_FC_REFILL=",
                                 "HAKMEM_PURGE_DELAY=0", NULL);
    assert_int_equal(hak_options.fc_cap, 64); /* the first entry wins, as in getenv */
    assert_int_equal(hak_options.fc_refill, 64);
    assert_int_equal(hak_options.purge_delay, 0);
    assert_int_equal(count_of(said, "\n"), 2);
    assert_has(said, "HAKMEM_X_Y_Z");
    assert_has(said, "HAKMEM_FC_REFILL= is not a number from 1 to 128; using 64");
}

static void test_print(void **state)
{
    (void)state;
    read_with("HAKMEM_FC_CAP=64", "HAKMEM_THP=never", "HAKMEM_CACHE_BYTES=128K", NULL);
    capture_begin();
    options_print();
    const char *said = capture_end();
    assert_int_equal(count_of(said, "\n"), ROWS + 1);
    assert_int_equal(count_of(said, "hakmem: * "), 3);
    assert_has(said, HAK_DEBUG ? "debug build" : "release build");
    assert_has(said, "hakmem: version ");
    assert_has(said, "* HAKMEM_FC_CAP=64 blocks\n");
    assert_has(said, "* HAKMEM_THP=never\n");
    assert_has(said, "* HAKMEM_CACHE_BYTES=128K\n");
    assert_has(said, "  HAKMEM_FC_REFILL=64 blocks\n");
    for (size_t i = 0; i < ROWS; i++)
        assert_has(said, rows[i].name);
}

static void test_accepted(void **state)
{
    (void)state;
    const char *said = read_with("HAKMEM_TINY_FRONT_DIRECT=1", "HAKMEM_VERBOSE=1", "HAKMEM_TINY_USE_SUPERSLAB=x", NULL);
    assert_string_equal(said, "");
    capture_begin();
    options_print();
    said = capture_end();
    assert_int_equal(count_of(said, "\n"), ROWS + 3);
    assert_int_equal(count_of(said, "HAKMEM_TINY_FRONT_DIRECT "), 1);
    assert_int_equal(count_of(said, "HAKMEM_TINY_USE_SUPERSLAB "), 1);
    assert_string_equal(read_compiled_and("TINY_USE_SUPERSLAB=1", NULL), "");
    read_compiled_and("", NULL);
    capture_begin();
    options_print();
    assert_int_equal(count_of(capture_end(), "HAKMEM_TINY_USE_SUPERSLAB"), 0);
}

#define OPTION_TEST(test) cmocka_unit_test_teardown(test, restore_defaults)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPTION_TEST(test_table),    OPTION_TEST(test_nothing_set), OPTION_TEST(test_ranges),
        OPTION_TEST(test_rubbish),  OPTION_TEST(test_bool_words),  OPTION_TEST(test_sizes),
        OPTION_TEST(test_choice),   OPTION_TEST(test_limits),      OPTION_TEST(test_words_of_the_contract),
        OPTION_TEST(test_format),   OPTION_TEST(test_path),        OPTION_TEST(test_paths_together),
        OPTION_TEST(test_compiled), OPTION_TEST(test_long_ones),   OPTION_TEST(test_several),
        OPTION_TEST(test_print),    OPTION_TEST(test_hints),
        OPTION_TEST(test_accepted),
    };
    return cmocka_run_group_tests(tests, keep_defaults, NULL);
}
