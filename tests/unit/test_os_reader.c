/* Protects os/reader.c: which pages hold data, reads of memory that may vanish, and every refusal of the system. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"
#include "os/reader.h"
#include "refused.h"

static uint64_t entries[OS_READER_ENTRIES];
static struct os_reader reader;
static size_t page;

static int begin(void **state)
{
    (void)state;
    refuse_nothing();
    page = (size_t)sysconf(_SC_PAGESIZE);
    return 0;
}

static char *map(size_t pages)
{
    char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    madvise(memory, pages * page, MADV_NOHUGEPAGE);
    return memory;
}

/* Lets the reader ask for pagemap's entries, as on a kernel without PAGEMAP_SCAN. */
static void refuse_regions(void) { refusals[REFUSALS - 1] = (struct refusal){ SYS_ioctl, NULL, ENOTTY, 0, 0 }; }

static void open_reader(void)
{
    errno = 4711;
    assert_true(os_reader_begin(&reader, entries));
    assert_int_equal(errno, 4711);
}

/* Finds the next run from `from`: its first page, and the page behind its last, counted from `memory`. */
static bool next(const char *memory, size_t from, size_t to, size_t *first, size_t *end, bool *present)
{
    uintptr_t start = (uintptr_t)memory, run, run_end;
    bool found;

    errno = 4711;
    found = os_reader_next(&reader, start + from * page, start + to * page, &run, &run_end, present);
    assert_int_equal(errno, 4711);
    *first = (run - start) / page;
    *end = (run_end - start) / page;
    return found;
}

static void expect_run(const char *memory, size_t from, size_t to, size_t first, size_t end, bool present)
{
    size_t got_first, got_end;
    bool got_present;

    assert_true(next(memory, from, to, &got_first, &got_end, &got_present));
    assert_int_equal(got_first, first);
    assert_int_equal(got_end, end);
    assert_int_equal(got_present, present);
}

static void expect_no_run(const char *memory, size_t from, size_t to)
{
    size_t first, end;
    bool present;

    assert_false(next(memory, from, to, &first, &end, &present));
}

/* ---- Copying ---- */

/* The fourth of five pages is unmapped. */
static void expect_copies_up_to_the_hole(void)
{
    char *memory = map(5), *copy = malloc(5 * page);

    for (size_t i = 0; i < 5; i++)
        memset(memory + i * page, 'a' + (int)i, page);
    assert_int_equal(os_reader_copy(&reader, (uintptr_t)memory, copy, 5 * page), 5 * page);
    assert_memory_equal(copy, memory, 5 * page);
    munmap(memory + 3 * page, page);
    memset(copy, 0, 5 * page);
    errno = 4711;
    assert_int_equal(os_reader_copy(&reader, (uintptr_t)memory + 8, copy, 5 * page - 8), 3 * page - 8);
    assert_memory_equal(copy, memory + 8, 3 * page - 8);
    assert_int_equal(os_reader_copy(&reader, (uintptr_t)memory + 3 * page, copy, page), 0);
    assert_int_equal(errno, 4711);
    munmap(memory, 5 * page);
    free(copy);
}

static void test_copies_what_is_there(void **state)
{
    (void)state;
    MACHINE_NEEDS(process_vm_readv);
    open_reader();
    assert_true(reader.memory < 0);
    expect_copies_up_to_the_hole();
    os_reader_end(&reader);
}

static void test_copies_by_the_file_where_the_call_is_refused(void **state)
{
    (void)state;
    refusals[0] = (struct refusal){ SYS_process_vm_readv, NULL, EPERM, 0, 0 };
    open_reader();
    assert_true(reader.memory >= 0);
    expect_copies_up_to_the_hole();
    os_reader_end(&reader);
    assert_int_equal(fcntl(reader.memory, F_GETFD), -1);
    assert_int_equal(fcntl(reader.pagemap, F_GETFD), -1);
}

/* A copy that fails for another reason than unreadable pages. */
static void test_a_failed_copy_is_known(void **state)
{
    uint64_t word = 1, copy = 0;

    (void)state;
    MACHINE_NEEDS(process_vm_readv);
    open_reader();
    assert_int_equal(os_reader_copy(&reader, page, &copy, sizeof copy), 0);
    assert_false(reader.failed);
    refusals[0] = (struct refusal){ SYS_process_vm_readv, NULL, ENOMEM, 0, 0 };
    assert_int_equal(os_reader_copy(&reader, (uintptr_t)&word, &copy, sizeof copy), 0);
    assert_true(reader.failed);
    os_reader_end(&reader);
}

static void expect_no_reader(void)
{
    errno = 4711;
    assert_false(os_reader_begin(&reader, entries));
    os_reader_end(&reader);
    assert_int_equal(errno, 4711);
}

static void test_says_when_neither_works(void **state)
{
    (void)state;
    refusals[0] = (struct refusal){ SYS_process_vm_readv, NULL, ENOSYS, 0, 0 };
    refusals[1] = (struct refusal){ SYS_openat, "/mem", EACCES, 0, 0 };
    expect_no_reader();
    /* The file opens, but reads fail. */
    refusals[1] = (struct refusal){ SYS_pread64, NULL, EIO, 0, 0 };
    expect_no_reader();
    assert_int_equal(fcntl(reader.memory, F_GETFD), -1);
}

/* ---- Pages ---- */

static void expect_written_pages(void)
{
    char *memory = map(10);

    open_reader();
    expect_no_run(memory, 0, 10);
    memory[2 * page] = memory[3 * page + 1] = memory[5 * page] = memory[9 * page] = 1;
    reader.end = 0; /* drops the reader's entries */
    expect_run(memory, 0, 10, 2, 4, true);
    expect_run(memory, 4, 10, 5, 6, true);
    expect_run(memory, 6, 10, 9, 10, true);
    expect_run(memory, 3, 4, 3, 4, true);
    expect_no_run(memory, 6, 9);
    expect_no_run(memory, 10, 10);
    os_reader_end(&reader);
    munmap(memory, 10 * page);
}

static void test_finds_the_pages_that_were_written(void **state)
{
    (void)state;
    expect_written_pages();
    refuse_regions();
    expect_written_pages();
    assert_false(reader.regions);
}

static void expect_changed_pages(void)
{
    char path[] = "/tmp/hakmem-reader-XXXXXX", *memory;
    int file = mkstemp(path);
    volatile char read;

    assert_true(file >= 0 && unlink(path) == 0 && ftruncate(file, (off_t)(4 * page)) == 0);
    memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    assert_true(memory != MAP_FAILED);
    for (size_t i = 0; i < 4; i++)
        read = memory[i * page];
    (void)read;
    memory[2 * page] = 1;
    open_reader();
    expect_run(memory, 0, 4, 2, 3, true);
    expect_no_run(memory, 3, 4);
    os_reader_end(&reader);
    munmap(memory, 4 * page);
    close(file);
}

static void test_pages_of_a_file_count_once_they_are_changed(void **state)
{
    (void)state;
    expect_changed_pages();
    refuse_regions();
    expect_changed_pages();
}

/* The kernel looks at a page itself only to tell whether it is a file's. */
static void test_anonymous_pages_are_told_by_regions(void **state)
{
    char *memory = map(10);
    int calls;

    (void)state;
    memory[2 * page] = memory[3 * page] = memory[7 * page] = 1;
    open_reader();
    reader.anonymous = true;
    calls = atomic_load(&calls_of[SYS_pread64]);
    expect_run(memory, 0, 10, 2, 4, true);
    expect_run(memory, 4, 10, 7, 8, true);
    expect_no_run(memory, 8, 10);
    expect_run(memory, 3, 10, 3, 4, true); /* back to pages that were passed */
    expect_run(memory, 0, 3, 2, 3, true);
    if (reader.regions) /* the kernel knows the call */
        assert_int_equal(atomic_load(&calls_of[SYS_pread64]), calls);
    os_reader_end(&reader);
    munmap(memory, 10 * page);
}

/* More regions than one call tells, and a call that is refused in between. */
static void test_many_regions(void **state)
{
    size_t pages = 2 * OS_READER_ENTRIES + 8;
    char *memory = map(pages);

    (void)state;
    for (size_t i = 1; i < pages; i += 2)
        memory[i * page] = 1;
    for (int fails = 0; fails < 2; fails++) {
        open_reader();
        if (fails)
            refusals[0] = (struct refusal){ SYS_ioctl, NULL, ENOTTY, 1, 0 };
        for (size_t i = 1; i < pages; i += 2)
            expect_run(memory, i - 1, pages, i, i + 1, true);
        expect_no_run(memory, pages, pages);
        os_reader_end(&reader);
    }
    munmap(memory, pages * page);
}

/* Where the kernel knows guarded pages (MADV_GUARD_INSTALL), they count as pages that hold nothing. */
static void test_guarded_pages(void **state)
{
    char *memory = map(10);
    bool guards = madvise(memory + 4 * page, 2 * page, 102) == 0;

    (void)state;
    memory[2 * page] = memory[7 * page] = 1;
    open_reader();
    reader.anonymous = true;
    expect_run(memory, 0, 4, 2, 3, true);
    if (guards && reader.guards && reader.regions)
        expect_run(memory, 3, 10, 7, 8, true);
    os_reader_end(&reader);
    /* An older kernel refuses the call with what it does not know, and takes it without. */
    open_reader();
    reader.anonymous = true;
    refusals[0] = (struct refusal){ SYS_ioctl, NULL, EINVAL, 0, 1 };
    expect_run(memory, 0, 4, 2, 3, true);
    assert_false(reader.guards);
    if (guards && reader.regions)
        expect_run(memory, 3, 7, 4, 6, false);
    os_reader_end(&reader);
    munmap(memory, 10 * page);
}

/* Pages that were swapped out hold data, and are a run of their own: they are not there to be read in place. Guarded
 * pages hold nothing. */
static void test_swapped_pages(void **state)
{
    const uint64_t there = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62, of_a_file = UINT64_C(1) << 61;
    const uint64_t guarded = UINT64_C(1) << 58;
    const uint64_t told[] = { there, there, swapped, swapped, swapped | guarded, swapped, there | of_a_file, there };
    char *memory = map(8);

    (void)state;
    refuse_regions();
    open_reader();
    os_reader_look(&reader, (uintptr_t)memory, (uintptr_t)memory + 8 * page, 0);
    memcpy(entries, told, sizeof told);
    expect_run(memory, 0, 8, 0, 2, true);
    expect_run(memory, 2, 8, 2, 4, false);
    expect_run(memory, 4, 8, 5, 6, false);
    expect_run(memory, 6, 8, 7, 8, true);
    expect_no_run(memory, 4, 5);
    expect_no_run(memory, 6, 7);
    os_reader_end(&reader);
    munmap(memory, 8 * page);
}

/* A run longer than one read of pagemap. */
static void test_a_run_goes_on_behind_one_reading(void **state)
{
    size_t pages = 2 * OS_READER_ENTRIES + 8;
    char *memory = map(pages);

    (void)state;
    for (size_t i = OS_READER_ENTRIES - 2; i < OS_READER_ENTRIES + 3; i++)
        memory[i * page] = 1;
    memory[(pages - 1) * page] = 1;
    open_reader();
    expect_run(memory, 0, pages, OS_READER_ENTRIES - 2, OS_READER_ENTRIES + 3, true);
    expect_run(memory, OS_READER_ENTRIES + 3, pages, pages - 1, pages, true);
    os_reader_end(&reader);
    munmap(memory, pages * page);
}

static void test_one_look_serves_its_parts(void **state)
{
    char *memory = map(64);
    int reads;

    (void)state;
    memory[10 * page] = memory[20 * page] = 1;
    refuse_regions();
    open_reader();
    os_reader_look(&reader, (uintptr_t)memory, (uintptr_t)memory + 64 * page, 0);
    reads = atomic_load(&calls_of[SYS_pread64]);
    for (size_t i = 0; i < 64; i++) {
        if (i == 10 || i == 20)
            expect_run(memory, i, i + 1, i, i + 1, true);
        else
            expect_no_run(memory, i, i + 1);
    }
    assert_int_equal(atomic_load(&calls_of[SYS_pread64]), reads);
    os_reader_end(&reader);
    munmap(memory, 64 * page);
}

/* It tells of what follows, too, and a later look at that asks no more. */
static void test_a_look_may_reach_far(void **state)
{
    char *memory = map(64);
    int asked;

    (void)state;
    memory[10 * page] = memory[40 * page] = 1;
    for (int regions = 0; regions < 2; regions++) {
        if (!regions)
            refuse_regions();
        open_reader();
        refuse_nothing();
        if (!regions)
            refuse_regions();
        os_reader_look(&reader, (uintptr_t)memory, (uintptr_t)memory + 4 * page, (uintptr_t)memory + 64 * page);
        asked = atomic_load(&calls_of[SYS_pread64]) + atomic_load(&calls_of[SYS_ioctl]);
        os_reader_look(&reader, (uintptr_t)memory + 30 * page, (uintptr_t)memory + 64 * page, 0);
        expect_run(memory, 30, 64, 40, 41, true);
        expect_no_run(memory, 0, 10);
        assert_int_equal(atomic_load(&calls_of[SYS_pread64]) + atomic_load(&calls_of[SYS_ioctl]), asked);
        os_reader_look(&reader, (uintptr_t)memory + 63 * page, (uintptr_t)memory + 64 * page + page, 0);
        assert_int_equal(atomic_load(&calls_of[SYS_pread64]) + atomic_load(&calls_of[SYS_ioctl]), asked + 1);
        os_reader_end(&reader);
    }
    munmap(memory, 64 * page);
}

/* Without pagemap every page counts as written. The kernel's calls decide whether it is readable. */
static void test_without_pagemap_all_pages_count(void **state)
{
    char *memory = map(8);

    (void)state;
    refusals[0] = (struct refusal){ SYS_openat, "/pagemap", EACCES, 0, 0 };
    open_reader();
    assert_true(reader.pagemap < 0);
    os_reader_look(&reader, (uintptr_t)memory, (uintptr_t)memory + 8 * page, 0);
    expect_run(memory, 0, 8, 0, 8, false);
    expect_no_run(memory, 8, 8);
    os_reader_end(&reader);
    munmap(memory, 8 * page);
}

static void test_pages_count_from_where_pagemap_fails(void **state)
{
    size_t pages = OS_READER_ENTRIES + 100;
    char *memory = map(pages);

    (void)state;
    memory[7 * page] = 1;
    refuse_regions();
    open_reader();
    refusals[0] = (struct refusal){ SYS_pread64, NULL, EIO, 1, 0 };
    expect_run(memory, 0, pages, 7, 8, true);
    expect_run(memory, 8, pages, OS_READER_ENTRIES, pages, false);
    /* A run that was found ends there as well. */
    memory[(OS_READER_ENTRIES - 1) * page] = 1;
    reader.end = 0;
    refusals[0] = (struct refusal){ SYS_pread64, NULL, EIO, 1, 0 };
    expect_run(memory, 8, pages, OS_READER_ENTRIES - 1, OS_READER_ENTRIES, true);
    os_reader_end(&reader);
    munmap(memory, pages * page);
}

/* ---- Protection keys ---- */

static void test_keys_are_opened_and_closed_again(void **state)
{
    char *memory = map(1);
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    uint32_t keys = 1;

    (void)state;
    memory[0] = 'k';
    if (key < 0) { /* no keys on this processor or system: nothing to close or to open */
#if defined(__x86_64__)
        assert_true(os_reader_open_keys(&keys));
#else
        assert_false(os_reader_open_keys(&keys));
#endif
        os_reader_close_keys(keys);
        munmap(memory, page);
        return;
    }
    assert_int_equal(pkey_mprotect(memory, page, PROT_READ | PROT_WRITE, key), 0);
    assert_int_equal(pkey_get(key), PKEY_DISABLE_ACCESS);
#if defined(__x86_64__)
    assert_true(os_reader_open_keys(&keys));
    assert_int_equal(*(volatile char *)memory, 'k');
    os_reader_close_keys(keys);
#else
    assert_false(os_reader_open_keys(&keys));
#endif
    assert_int_equal(pkey_get(key), PKEY_DISABLE_ACCESS);
    munmap(memory, page);
    pkey_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_copies_what_is_there, begin),
        cmocka_unit_test_setup(test_copies_by_the_file_where_the_call_is_refused, begin),
        cmocka_unit_test_setup(test_a_failed_copy_is_known, begin),
        cmocka_unit_test_setup(test_says_when_neither_works, begin),
        cmocka_unit_test_setup(test_finds_the_pages_that_were_written, begin),
        cmocka_unit_test_setup(test_pages_of_a_file_count_once_they_are_changed, begin),
        cmocka_unit_test_setup(test_anonymous_pages_are_told_by_regions, begin),
        cmocka_unit_test_setup(test_many_regions, begin),
        cmocka_unit_test_setup(test_guarded_pages, begin),
        cmocka_unit_test_setup(test_swapped_pages, begin),
        cmocka_unit_test_setup(test_a_run_goes_on_behind_one_reading, begin),
        cmocka_unit_test_setup(test_one_look_serves_its_parts, begin),
        cmocka_unit_test_setup(test_a_look_may_reach_far, begin),
        cmocka_unit_test_setup(test_without_pagemap_all_pages_count, begin),
        cmocka_unit_test_setup(test_pages_count_from_where_pagemap_fails, begin),
        cmocka_unit_test_setup(test_keys_are_opened_and_closed_again, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
