/* Protects profile/guard_report.c: each word of a report on standard error, and each byte of its line in a file. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options/options.h"
#include "os/process.h"
#include "profile/guard_report.h"

enum { BLOCK = 0x500000 };

#define BUILD_ID "00112233445566778899aabbccddeeff10203040" /* CMakeLists.txt passes it to the linker */

static struct guard_slot slot;
static struct guard_stack here;

static const char *report(enum guard_error error, const char *function, enum os_access access, uintptr_t address,
                          const struct guard_slot *of)
{
    capture_begin();
    lock_acquire(&guard_report_lock);
    report_make(error, function, access, address, of, &here);
    lock_release(&guard_report_lock);
    return capture_end();
}

/* A live block of 100 bytes, allocated by thread 11. The report is made by thread 33. No stack is known. */
static int begin(void **state)
{
    (void)state;
    slot = (struct guard_slot){ .block = BLOCK, .size = 100, .state = GUARD_LIVE, .allocated = { .thread = 11 } };
    here = (struct guard_stack){ .thread = 33 };
    hak_options.guard_file = 0;
    assert_int_equal(prctl(PR_SET_NAME, "tester"), 0);
    return 0;
}

/* ---- Words ---- */

static void assert_head(const char *said, const char *words)
{
    char expected[400];

    (void)snprintf(expected, sizeof expected, "hakmem: guard: %s\nhakmem: guard: by thread 33 (tester) of process %d\n",
                   words, getpid());
    if (strncmp(said, expected, strlen(expected)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", said, expected);
}

static void test_accesses(void **state)
{
    (void)state;
    assert_head(report(GUARD_BEHIND, NULL, OS_ACCESS_WRITE, BLOCK + 100, &slot),
                "write at 0x500064, 0 bytes behind the end of a block of 100 bytes at 0x500000");
    assert_head(report(GUARD_BEHIND, NULL, OS_ACCESS_UNKNOWN, BLOCK + 101, &slot),
                "access at 0x500065, 1 byte behind the end of a block of 100 bytes at 0x500000");
    assert_head(report(GUARD_BEFORE, NULL, OS_ACCESS_READ, BLOCK - 1, &slot),
                "read at 0x4fffff, 1 byte before the start of a block of 100 bytes at 0x500000");
    assert_head(report(GUARD_BEFORE, NULL, OS_ACCESS_READ, BLOCK - 2, &slot),
                "read at 0x4ffffe, 2 bytes before the start of a block of 100 bytes at 0x500000");
    assert_head(report(GUARD_NO_BLOCK, NULL, OS_ACCESS_WRITE, BLOCK, NULL), "write at 0x500000, near no block");
    slot.size = 1;
    slot.state = GUARD_FREED;
    assert_head(report(GUARD_AFTER_FREE, NULL, OS_ACCESS_EXECUTE, BLOCK, &slot),
                "execute at 0x500000, at byte 0 of a block of 1 byte at 0x500000 that was freed");
    slot.size = 2;
    assert_head(report(GUARD_AFTER_FREE, NULL, OS_ACCESS_READ, BLOCK + 1, &slot),
                "read at 0x500001, at byte 1 of a block of 2 bytes at 0x500000 that was freed");
}

static void test_calls(void **state)
{
    (void)state;
    assert_head(report(GUARD_INVALID_FREE, "realloc", OS_ACCESS_UNKNOWN, BLOCK + 3, &slot),
                "realloc(0x500003): not the start of a block: at byte 3 of a block of 100 bytes at 0x500000");
    assert_head(report(GUARD_DAMAGED_BEHIND, "free", OS_ACCESS_UNKNOWN, BLOCK + 102, &slot),
                "free(0x500000): written around the block: changed 2 bytes behind the end of a block of 100 bytes at "
                "0x500000");
    assert_head(report(GUARD_DAMAGED_BEFORE, "free", OS_ACCESS_UNKNOWN, BLOCK - 7, &slot),
                "free(0x500000): written around the block: changed 7 bytes before the start of a block of 100 bytes at "
                "0x500000");
    assert_head(report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL),
                "free(0x500000): no block was ever there");
    slot.state = GUARD_FREED;
    assert_head(report(GUARD_INVALID_FREE, "free", OS_ACCESS_UNKNOWN, BLOCK - 8, &slot),
                "free(0x4ffff8): not the start of a block: 8 bytes before the start of a block of 100 bytes at "
                "0x500000 that is free");
    assert_head(report(GUARD_DOUBLE_FREE, "free", OS_ACCESS_UNKNOWN, BLOCK, &slot),
                "free(0x500000): freed already: a block of 100 bytes");
    slot.size = 1;
    assert_head(report(GUARD_DOUBLE_FREE, "free", OS_ACCESS_UNKNOWN, BLOCK, &slot),
                "free(0x500000): freed already: a block of 1 byte");
}

/* ---- Stacks and modules ---- */

/* Both stacks of the block and that of the report: addresses in this program, in the C library, and in no code. */
static struct mapping own, library;

static void set_stacks(void)
{
    slot.allocated = (struct guard_stack){ .thread = 11, .count = 2, .frames = { (uintptr_t)begin, (uintptr_t)abort } };
    slot.freed = (struct guard_stack){ .thread = 22 };
    here.count = 2;
    here.frames[0] = (uintptr_t)begin + 1;
    here.frames[1] = (uintptr_t)&slot;
    find_mapping((uintptr_t)begin, &own);
    find_mapping((uintptr_t)abort, &library);
}

static void test_stacks(void **state)
{
    static char expected[20000];
    const char *said;

    (void)state;
    set_stacks();
    said = report(GUARD_BEHIND, NULL, OS_ACCESS_WRITE, BLOCK + 100, &slot);
    (void)snprintf(expected, sizeof expected,
                   " of process %d\nhakmem: guard: allocated by thread 11:\n"
                   "hakmem: guard:     #0 %p %s+0x%zx (build-id " BUILD_ID ")\nhakmem: guard:     #1 %p %s+0x%zx",
                   getpid(), (void *)(uintptr_t)begin, own.path, (size_t)((uintptr_t)begin - own.base),
                   (void *)(uintptr_t)abort, library.path, (size_t)((uintptr_t)abort - library.base));
    assert_has(said, expected);
    (void)snprintf(expected, sizeof expected,
                   "\nhakmem: guard: freed by thread 22:\nhakmem: guard:     no stack is known\n"
                   "hakmem: guard: accessed by thread 33:\nhakmem: guard:     #0 %p %s+0x%zx (build-id " BUILD_ID ")\n"
                   "hakmem: guard:     #1 %p\n",
                   (void *)((uintptr_t)begin + 1), own.path, (size_t)((uintptr_t)begin + 1 - own.base), (void *)&slot);
    assert_has(said, expected);
    assert_string_equal(strstr(said, expected) + strlen(expected), "");
    said = report(GUARD_DOUBLE_FREE, "free", OS_ACCESS_UNKNOWN, BLOCK, &slot);
    assert_has(said, "hakmem: guard: called by thread 33:\n");
    slot.freed.thread = 0;
    assert_has_not(report(GUARD_BEHIND, NULL, OS_ACCESS_WRITE, BLOCK + 100, &slot), "freed by");
    assert_has_not(report(GUARD_NO_BLOCK, NULL, OS_ACCESS_WRITE, BLOCK + 100, NULL), "allocated by");
}

/* ---- The file ---- */

static char folder[] = "/tmp/hakmem-test-XXXXXX", pattern[5000];

/* Returns the file's contents, and removes it. */
static const char *taken(const char *name)
{
    static char text[200000];
    int file = open(name, O_RDONLY);
    ssize_t size;

    if (file < 0)
        fail_msg("there is no %s", name);
    size = read(file, text, sizeof text - 1);
    assert_true(size >= 0);
    text[size] = '\0';
    close(file);
    assert_int_equal(remove(name), 0);
    return text;
}

static int begin_file(void **state)
{
    begin(state);
    strcpy(pattern, "report");
    hak_options.guard_file = (uintptr_t)pattern;
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return chdir("/") != 0 || rmdir(folder) != 0;
}

/* The line is `before`, a time from `since` until now, and `behind`. */
static void assert_line(const char *line, const char *before, uint64_t since, const char *behind)
{
    uint64_t at = 0;
    int used = 0;

    if (strncmp(line, before, strlen(before)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", line, before);
    assert_int_equal(sscanf(line + strlen(before), "%" SCNu64 "%n", &at, &used), 1);
    assert_true(at >= since && at <= os_time_of_day());
    assert_string_equal(line + strlen(before) + used, behind);
}

static size_t put_module(char *out, size_t room, const struct mapping *place, const char *build_id)
{
    return (size_t)snprintf(
        out, room, "{\"start\":\"0x%zx\",\"end\":\"0x%zx\",\"offset\":%llu,\"build_id\":\"%s\",\"path\":\"%s\"}",
        (size_t)place->start, (size_t)place->end, (unsigned long long)place->offset, build_id, place->path);
}

static void test_line_of_an_access(void **state)
{
    static char before[1000], behind[20000];
    uint64_t since = os_time_of_day();
    size_t used;

    (void)state;
    set_stacks();
    slot.allocated.count = 1;
    report(GUARD_BEHIND, NULL, OS_ACCESS_WRITE, BLOCK + 107, &slot);
    (void)snprintf(before, sizeof before,
                   "{\"version\":1,\"error\":\"overflow\",\"access\":\"write\",\"function\":null,"
                   "\"address\":\"0x50006b\",\"time_ns\":\"");
    used = (size_t)snprintf(behind, sizeof behind,
                            "\",\"process\":%d,\"thread\":{\"id\":33,\"name\":\"tester\"},"
                            "\"block\":{\"address\":\"0x500000\",\"size\":100,\"offset\":107,\"state\":\"live\"},"
                            "\"allocated\":{\"thread\":11,\"frames\":[\"%p\"]},\"freed\":{\"thread\":22,\"frames\":[]},"
                            "\"accessed\":{\"thread\":33,\"frames\":[\"%p\",\"%p\"]},\"modules\":[",
                            getpid(), (void *)(uintptr_t)begin, (void *)((uintptr_t)begin + 1), (void *)&slot);
    used += put_module(behind + used, sizeof behind - used, &own, BUILD_ID);
    (void)snprintf(behind + used, sizeof behind - used, "]}\n");
    assert_line(taken("report"), before, since, behind);
}

static void test_line_of_a_call(void **state)
{
    static char behind[20000];
    uint64_t since = os_time_of_day();

    (void)state;
    slot.state = GUARD_FREED;
    report(GUARD_INVALID_FREE, "realloc", OS_ACCESS_UNKNOWN, BLOCK - 16, &slot);
    (void)snprintf(behind, sizeof behind,
                   "\",\"process\":%d,\"thread\":{\"id\":33,\"name\":\"tester\"},"
                   "\"block\":{\"address\":\"0x500000\",\"size\":100,\"offset\":-16,\"state\":\"freed\"},"
                   "\"allocated\":{\"thread\":11,\"frames\":[]},"
                   "\"called\":{\"thread\":33,\"frames\":[]},\"modules\":[]}\n",
                   getpid());
    assert_line(taken("report"),
                "{\"version\":1,\"error\":\"invalid-free\",\"access\":null,\"function\":\"realloc\","
                "\"address\":\"0x4ffff0\",\"time_ns\":\"",
                since, behind);
    report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL);
    (void)snprintf(behind, sizeof behind,
                   "\",\"process\":%d,\"thread\":{\"id\":33,\"name\":\"tester\"},"
                   "\"called\":{\"thread\":33,\"frames\":[]},\"modules\":[]}\n",
                   getpid());
    assert_line(taken("report"),
                "{\"version\":1,\"error\":\"no-block\",\"access\":null,\"function\":\"free\",\"address\":\"0x500000\","
                "\"time_ns\":\"",
                since, behind);
}

/* The words of all errors and accesses, and a name whose characters JSON escapes. */
static void test_words_in_the_line(void **state)
{
    static const char *const errors[] = { "overflow",     "underflow",     "use-after-free", "no-block",
                                          "inside",       "double-free",   "invalid-free",   "damage-behind",
                                          "damage-before" };
    static const char *const accesses[] = { "access", "read", "write", "execute" };
    char expected[100];
    const char *line;

    (void)state;
    assert_int_equal(prctl(PR_SET_NAME, "a\"b\\c\x01\x1f \x7f~"), 0);
    for (unsigned error = GUARD_BEHIND; error <= GUARD_DAMAGED_BEFORE; error++)
        for (unsigned access = OS_ACCESS_UNKNOWN; access <= OS_ACCESS_EXECUTE; access++) {
            bool is_call = error >= GUARD_DOUBLE_FREE;
            report((enum guard_error)error, is_call ? "free" : NULL, (enum os_access)access, BLOCK, &slot);
            line = taken("report");
            const char *mark = is_call ? "" : "\"";
            (void)snprintf(expected, sizeof expected, "{\"version\":1,\"error\":\"%s\",\"access\":%s%s%s,",
                           errors[error], mark, is_call ? "null" : accesses[access], mark);
            assert_has(line, expected);
            assert_has(line, "\"name\":\"a\\\"b\\\\c\\u0001\\u001f \\u007f~\"}");
        }
}

/* In the file's name %p is the process's id, and %% a percent sign. Reports are appended. */
static void test_names_of_files(void **state)
{
    char name[100];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK + i, NULL);
    assert_int_equal(count_of(taken("report"), "\n"), 3);
    strcpy(pattern, "%%p%p.%p%%%x%");
    report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL);
    (void)snprintf(name, sizeof name, "%%p%d.%d%%%%x%%", getpid(), getpid());
    assert_int_equal(count_of(taken(name), "\n"), 1);
    strcpy(pattern, "none/report");
    assert_has(report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL),
               "\nhakmem: HAKMEM_GUARD_FILE: none/report could not be written: No such file or directory\n");
    strcpy(pattern, "/dev/full");
    assert_has(report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL),
               "\nhakmem: HAKMEM_GUARD_FILE: /dev/full could not be written: No space left on device\n");
}

/* A name of up to 4,095 characters is a file's; longer ones are refused with a message. */
static void test_long_names_of_files(void **state)
{
    (void)state;
    for (unsigned length = 4094; length <= 4097; length++) {
        unsigned name = length % 2 ? 3 : 4;
        const char *said;
        for (unsigned i = 0; i < length - name; i += 2)
            memcpy(pattern + i, "./", 2);
        memcpy(pattern + length - name, "long", name);
        pattern[length] = '\0';
        said = report(GUARD_NO_BLOCK, "free", OS_ACCESS_UNKNOWN, BLOCK, NULL);
        if (length <= 4095)
            assert_has(taken(length % 2 ? "lon" : "long"), "]}\n");
        else
            assert_has(said, "hakmem: HAKMEM_GUARD_FILE: ./././");
    }
}

/* ---- Many modules with long names ---- */

enum { PAGES = 60, LONGEST = 4095 };

/* Maps a file of that name PAGES times as code, each apart. The folders above it are made. */
static char *map_code(const char *name, unsigned pages)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int file = open(name, O_CREAT | O_RDWR, 0700);
    char *area = mmap(NULL, 2 * pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(file >= 0 && area != MAP_FAILED);
    assert_int_equal(ftruncate(file, (off_t)page), 0);
    for (unsigned i = 0; i < pages; i++) {
        char *place = area + 2 * i * page;
        assert_ptr_equal(mmap(place, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0), place);
    }
    close(file);
    return area;
}

/* The line has at most 48 modules, and stays whole. */
static void test_many_modules(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guard_stack *stacks[] = { &slot.allocated, &slot.freed, &here };
    char *area = map_code("code", PAGES);
    const char *line;

    (void)state;
    slot.freed.thread = 22;
    for (unsigned i = 0; i < PAGES; i++) {
        struct guard_stack *stack = stacks[i / GUARD_FRAMES];
        stack->frames[stack->count++] = (uintptr_t)area + 2 * i * page + i;
    }
    report(GUARD_AFTER_FREE, NULL, OS_ACCESS_READ, BLOCK, &slot);
    line = taken("report");
    assert_int_equal(count_of(line, "\"start\":"), 48);
    assert_has(line, "/code\"}]}\n");
    assert_int_equal(munmap(area, 2 * PAGES * page), 0);
    assert_int_equal(remove("code"), 0);
}

/* Two paths of 4,095 characters are kept whole, and there is no room for a third. The line ends before a module that
 * might not fit. */
static void check_long_paths(void)
{
    static const char *const names[] = { "a", "b", "c" };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct mapping place;
    const char *said, *line;
    char *areas[3];

    for (unsigned i = 0; i < 3; i++)
        areas[i] = map_code(names[i], 1);
    find_mapping((uintptr_t)areas[0], &place);
    assert_int_equal(strlen(place.path), LONGEST);
    here.count = 3;
    for (unsigned i = 0; i < 3; i++)
        here.frames[i] = (uintptr_t)areas[i] + 5;
    said = report(GUARD_NO_BLOCK, NULL, OS_ACCESS_READ, BLOCK, NULL);
    assert_int_equal(count_of(said, "dd/a+0x5\n") + count_of(said, "dd/b+0x5\n") + count_of(said, "dd/c+0x5\n"), 2);
    assert_int_equal(count_of(said, " +0x5\n"), 1);
    line = taken(pattern);
    assert_int_equal(count_of(line, "\"start\":"), 3);
    assert_has(line, "\"path\":\"\"}]}\n");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(munmap(areas[i], 2 * page), 0);
    areas[0] = map_code("a", 3);
    for (unsigned i = 0; i < 3; i++)
        here.frames[i] = (uintptr_t)areas[0] + 2 * i * page + 5;
    said = report(GUARD_NO_BLOCK, NULL, OS_ACCESS_READ, BLOCK, NULL);
    assert_int_equal(count_of(said, "dd/a+0x5\n"), 3);
    line = taken(pattern);
    assert_int_equal(count_of(line, "\"start\":"), 2);
    assert_has(line, "/a\"}]}\n");
    assert_int_equal(munmap(areas[0], 6 * page), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(remove(names[i]), 0);
}

static void test_long_paths(void **state)
{
    size_t length = strlen(folder), more;
    unsigned depth = 0;
    char name[256], path[5000];

    (void)state;
    (void)snprintf(pattern, sizeof pattern, "%s/report", folder);
    for (; length < LONGEST - 2; depth++, length += 1 + more) { /* folders, until a name of one letter is left */
        more = base_min(LONGEST - 3 - length, 250);
        more -= LONGEST - 3 - length - more == 1;
        memset(name, 'd', more);
        name[more] = '\0';
        assert_int_equal(mkdir(name, 0700), 0);
        assert_int_equal(chdir(name), 0);
    }
    check_long_paths();
    for (; depth; depth--) {
        assert_non_null(getcwd(path, sizeof path));
        (void)snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
        assert_int_equal(chdir(".."), 0);
        assert_int_equal(rmdir(name), 0);
    }
}

#define WORDS_TEST(test) cmocka_unit_test_setup(test, begin)
#define FILE_TEST(test) cmocka_unit_test_setup(test, begin_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORDS_TEST(test_accesses),
        WORDS_TEST(test_calls),
        WORDS_TEST(test_stacks),
        FILE_TEST(test_line_of_an_access),
        FILE_TEST(test_line_of_a_call),
        FILE_TEST(test_words_in_the_line),
        FILE_TEST(test_names_of_files),
        FILE_TEST(test_long_names_of_files),
        FILE_TEST(test_many_modules),
        FILE_TEST(test_long_paths),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
