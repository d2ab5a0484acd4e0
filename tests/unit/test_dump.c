/* Protects profile/dump.c: names of profiles' files, refused files, requests for a file, and the report of leaks. */
#define _GNU_SOURCE
#include "heaps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/file.h"
#include "os/outside.h"
#include "profile/dump.h"
#include "profile/python.h"
#include "wire.h"

enum { SAMPLE = 2 }; /* of a profile */

static char pattern[5000]; /* that HAKMEM_HEAP_PROFILE is set to */

/* Works in a new folder. The profile's mean is `mean` bytes. */
static void begin(uint64_t mean)
{
    char folder[] = "/tmp/hakmem-test-XXXXXX";

    core_begin();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    hak_options.heap_profile = (uintptr_t)pattern;
    profile.mean = mean;
    dump_begin();
}

/* Ends the test: the folder must hold the file of that name, and nothing else; NULL: nothing. */
static void finish(const char *name)
{
    char folder[4096];
    struct dirent *entry;
    DIR *files = opendir(".");

    assert_non_null(files);
    while ((entry = readdir(files)) != NULL)
        if (entry->d_name[0] != '.') {
            assert_non_null(name);
            assert_string_equal(entry->d_name, name);
            assert_int_equal(remove(entry->d_name), 0);
            name = NULL;
        }
    closedir(files);
    assert_null(name);
    assert_non_null(getcwd(folder, sizeof folder));
    assert_int_equal(rmdir(folder), 0);
}

static void insert(struct site *site, uintptr_t address, size_t size, uint64_t weight)
{
    struct record record = { .address = address, .site = site, .size = size, .weight = weight };

    assert_true(table_insert(&record));
}

static void insert_one(void)
{
    insert(table_site(&(uintptr_t){ (uintptr_t)begin + 1 }, 1, NULL), 0x1000, 10, WEIGHT_ONE);
}

/* The file of that name is a whole profile with so many samples. */
static void assert_profile(const char *name, unsigned samples)
{
    int file = open(name, O_RDONLY);

    if (file < 0)
        fail_msg("there is no %s", name);
    assert_int_equal(wire_count(wire_read(file, NULL), SAMPLE), samples);
    close(file);
}

static const char *at_exit_says(void)
{
    capture_begin();
    dump_at_exit();
    return capture_end();
}

/* ---- Names ---- */

static void assert_name(const char *path, const char *expected)
{
    assert_int_equal(dump_write(path), 0);
    assert_profile(expected, 1);
    assert_int_equal(remove(expected), 0);
}

/* %n counts the files that were written, and those alone. */
static void test_names(void)
{
    char name[64];

    begin(1);
    insert_one();
    assert_name("plain", "plain");
    assert_name("%%", "%");
    assert_name("100%", "100%");
    assert_name("%x%%p%%n", "%x%p%n");
    (void)snprintf(name, sizeof name, "a.%d.5.%d.b", getpid(), getpid());
    assert_name("a.%p.%n.%p.b", name);
    assert_int_equal(dump_write("none/%n"), ENOENT);
    assert_name("%n", "6");
    assert_name("%n%n", "77");
    finish(NULL);
}

/* A path of 4,073 characters is written; a longer one is refused. */
static void test_long_names(void)
{
    enum { MOST = 4073 };
    char path[4200];

    begin(1);
    insert_one();
    for (unsigned length = MOST - 2; length <= MOST + 2; length++) {
        unsigned name = length % 2 ? 3 : 4;
        for (unsigned i = 0; i < length - name; i += 2)
            memcpy(path + i, "./", 2);
        memcpy(path + length - name, "long", name);
        path[length] = '\0';
        assert_int_equal(dump_write(path), length <= MOST ? 0 : ENAMETOOLONG);
    }
    assert_profile("long", 1);
    assert_profile("lon", 1);
    assert_int_equal(remove("lon"), 0);
    finish("long");
}

/* In a child of a fork the configured file gets the process's number, unless %p has it. dump_write's file does not. */
static void write_in_child(void)
{
    strcpy(pattern, "configured");
    dump_at_exit();
    strcpy(pattern, "with-%p");
    dump_at_exit();
    if (dump_write("asked") != 0)
        _exit(1);
    _exit(0);
}

static void test_child_of_a_fork(void)
{
    char name[64];
    int child, status;

    begin(1);
    insert_one();
    strcpy(pattern, "configured");
    assert_string_equal(at_exit_says(), "");
    assert_profile("configured", 1);
    assert_int_equal(remove("configured"), 0);
    child = fork();
    if (child == 0)
        write_in_child();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)snprintf(name, sizeof name, "configured.%d", child);
    assert_profile(name, 1);
    assert_int_equal(remove(name), 0);
    (void)snprintf(name, sizeof name, "with-%d", child);
    assert_profile(name, 1);
    assert_int_equal(remove(name), 0);
    assert_profile("asked", 1);
    finish("asked");
}

/* ---- Files that exist already ---- */

static void test_replaces(void)
{
    struct stat before, after;
    int old;

    begin(1);
    insert_one();
    old = open("file", O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(old, "older", 5), 5);
    assert_int_equal(fstat(old, &before), 0);
    assert_int_equal(dump_write("file"), 0);
    assert_profile("file", 1);
    assert_int_equal(stat("file", &after), 0);
    assert_int_not_equal(after.st_ino, before.st_ino); /* a program that has the old file open sees it whole */
    assert_int_equal(lseek(old, 0, SEEK_END), 5);
    close(old);
    finish("file");
}

static int refused_nameless, refused_name; /* errnos; 0: not refused */

int __real_os_file_create_nameless(const char *folder);
int __wrap_os_file_create_nameless(const char *folder);
int __wrap_os_file_create_nameless(const char *folder)
{
    return refused_nameless ? -refused_nameless : __real_os_file_create_nameless(folder);
}

int __real_os_file_name(int file, const char *path);
int __wrap_os_file_name(int file, const char *path);
int __wrap_os_file_name(int file, const char *path)
{
    return refused_name ? refused_name : __real_os_file_name(file, path);
}

/* Where a file has a name from the start, or gets none later, a file is made under another name and renamed. */
static void test_no_nameless_files(void)
{
    static const int rows[][2] = { { EOPNOTSUPP, 0 }, { 0, ENOENT }, { 0, EEXIST }, { 0, 0 } };

    begin(1);
    insert_one();
    assert_int_equal(mkdir("folder", 0700), 0);
    for (unsigned row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        refused_nameless = rows[row][0];
        refused_name = rows[row][1];
        for (unsigned time = 0; time < 2; time++) { /* the second file replaces the first */
            assert_int_equal(dump_write("file"), 0);
            assert_profile("file", 1);
        }
        assert_int_equal(remove("file"), 0);
        assert_int_equal(dump_write("folder"), EISDIR);
        assert_int_equal(dump_write("folder/none/file"), ENOENT);
    }
    finish("folder");
}

/* A device or pipe is written to, and stays. */
static void test_special_files(void)
{
    struct stat status;
    char name[64];
    int ends[2], copy;
    char bytes[4096];
    ssize_t size;

    begin(1);
    insert_one();
    assert_int_equal(dump_write("/dev/null"), 0);
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    assert_int_equal(dump_write("/dev/full"), ENOSPC);
    (void)snprintf(name, sizeof name, "/dev/full.%d.tmp", getpid());
    assert_int_equal(access(name, F_OK), -1);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(dump_write("fifo"), ENXIO); /* and does not wait for a reader */
    assert_int_equal(stat("fifo", &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(dump_write(name), 0); /* beside it no file can be made */
    close(ends[1]);
    copy = memfd_create("copy", 0);
    while ((size = read(ends[0], bytes, sizeof bytes)) > 0)
        assert_int_equal(write(copy, bytes, (size_t)size), size);
    assert_int_equal(wire_count(wire_read(copy, NULL), SAMPLE), 1);
    finish("fifo");
}

static void test_refused(void)
{
    begin(1);
    insert_one();
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(dump_write("folder"), EISDIR);
    assert_int_equal(dump_write("folder/none/file"), ENOENT);
    assert_int_equal(dump_write(""), ENOENT);
    strcpy(pattern, "none/%p");
    assert_string_equal(at_exit_says(),
                        "hakmem: HAKMEM_HEAP_PROFILE: none/%p could not be written: No such file or directory\n");
    finish("folder");
}

/* ---- On request ---- */

static bool is_wanted(void)
{
    return atomic_load(&profile.wanted) && (atomic_load(&hak_outside.word.look) & OUTSIDE_LOOK_FILE);
}

static void take_back(void)
{
    atomic_store(&profile.wanted, false);
    atomic_store(&hak_outside.word.look, 0);
}

static const char *take_signal(const char *text)
{
    capture_begin();
    dump_take_signal(text);
    return capture_end();
}

static void test_signals(void)
{
    begin(1);
    assert_string_equal(take_signal("SIGUSR1"), "");
    assert_false(is_wanted());
    assert_int_equal(raise(SIGUSR1), 0);
    assert_true(is_wanted());
    take_back();
    assert_string_equal(take_signal("USR1"), "hakmem: HAKMEM_HEAP_PROFILE_SIGNAL=USR1: the process handles or ignores "
                                             "that signal already; it is not taken\n");
    assert_string_equal(take_signal("NONE"), "hakmem: HAKMEM_HEAP_PROFILE_SIGNAL=NONE is no signal that a process can "
                                             "handle; no signal is taken\n");
    assert_string_equal(take_signal("32"), /* the C library keeps it to itself */
                        "hakmem: HAKMEM_HEAP_PROFILE_SIGNAL=32: the signal cannot be taken: Invalid argument\n");
    finish(NULL);
}

/* Every so many bytes one file is wanted, however many bytes a sample stands for. */
static void test_interval(void)
{
    begin(1);
    dump_note_bytes(1000000);
    assert_false(is_wanted());
    hak_options.heap_profile_interval = 1000;
    for (unsigned i = 1; i <= 40; i++) {
        dump_note_bytes(250);
        assert_int_equal(is_wanted(), i % 4 == 0);
        take_back();
    }
    dump_note_bytes(999);
    assert_false(is_wanted());
    dump_note_bytes(5000);
    assert_true(is_wanted());
    finish(NULL);
}

static void test_wanted(void)
{
    begin(1);
    insert_one();
    strcpy(pattern, "at-%n");
    dump_write_wanted(); /* nothing is wanted */
    atomic_store(&profile.wanted, true);
    lock_acquire(&profile_control);
    dump_write_wanted(); /* the profile is being changed: a later call tries again */
    lock_release(&profile_control);
    assert_true(is_wanted());
    dump_write_wanted();
    assert_false(atomic_load(&profile.wanted));
    assert_profile("at-1", 1);
    assert_int_equal(remove("at-1"), 0);
    dump_write_wanted();
    assert_true(lock_try(&profile_control));
    lock_release(&profile_control);
    hak_options.heap_profile = 0;
    atomic_store(&profile.wanted, true);
    dump_write_wanted();
    assert_false(atomic_load(&profile.wanted));
    finish(NULL);
}

/* ---- Leaks ---- */

static const char *leaks(void)
{
    hak_options.heap_profile = 0;
    hak_options.leak_report = 1;
    return at_exit_says();
}

/* The address as the report names it, found by other means. */
static const char *place_of(uintptr_t address)
{
    static char text[240];
    struct mapping place;

    find_mapping(address, &place);
    (void)snprintf(text, sizeof text, "    %.199s+0x%zx\n", place.path[0] ? place.path : "[anon]",
                   (size_t)(address - place.base));
    return text;
}

static void test_no_leaks(void)
{
    begin(1);
    assert_string_equal(leaks(),
                        "hakmem: in use at exit, by samples 1 bytes apart: 0 bytes in 0 blocks from 0 sites\n");
    profile.mean = 4096;
    assert_has(leaks(), "from 0 sites\nhakmem: no sample is in use: with 95 % confidence less than 12288 bytes are in "
                        "use.");
    assert_non_null(table_site(&(uintptr_t){ (uintptr_t)begin + 1 }, 1, NULL));
    assert_has(leaks(), "0 bytes in 0 blocks from 0 sites\nhakmem: no sample is in use");
    insert(table_site(&(uintptr_t){ (uintptr_t)begin + 1 }, 1, NULL), 0x1000, 1, WEIGHT_ONE / 2 - 1);
    assert_has(leaks(), "0 bytes in 0 blocks from 1 sites:\nhakmem: 0 bytes in 0 blocks, "); /* less than half of one */
    finish(NULL);
}

/* The frames of a leak: the file's name and the place in it, memory without a file, Python's functions. */
static void test_frames(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), expected[9000];
    struct python_code *code;
    uintptr_t frames[20];

    begin(1);
    assert_int_equal(mprotect(memory + page, page, PROT_READ), 0);
    code = calloc(1, sizeof *code + 20);
    code->id = 7;
    code->name_bytes = 4;
    code->file_bytes = 5;
    memcpy(code->text, "mainab.py", 9);
    python_codes.first = code;
    frames[0] = (uintptr_t)begin + 1;
    frames[1] = PYTHON_MARK | UINT64_C(7) << PYTHON_LINE_BITS | 33;
    frames[2] = (uintptr_t)memory + page + 17;
    frames[3] = (uintptr_t)pattern + 5;
    frames[4] = (uintptr_t)abort + 2;
    frames[5] = 100;
    insert(table_site(frames, 6, NULL), 0x1000, 10, 3 * WEIGHT_ONE);
    (void)snprintf(expected, sizeof expected, "hakmem: 30 bytes in 3 blocks, allocated at:\nhakmem: %s",
                   place_of((uintptr_t)begin));
    (void)snprintf(expected + strlen(expected), 300, "hakmem:     main (ab.py:33)\nhakmem: %s",
                   place_of((uintptr_t)memory + page + 16));
    (void)snprintf(expected + strlen(expected), 300, "hakmem: %s", place_of((uintptr_t)pattern + 4));
    (void)snprintf(expected + strlen(expected), 300, "hakmem: %s", place_of((uintptr_t)abort + 1));
    (void)snprintf(expected + strlen(expected), 300, "hakmem:     ?+0x63\n");
    assert_has(leaks(), expected);
    assert_has(expected, "[anon]+0x10\n");
    finish(NULL);
}

/* The report has 12 frames of a long stack, and the number of further ones. */
static void test_long_stacks(void)
{
    uintptr_t frames[64];
    const char *said;

    for (unsigned count = 12; count <= 64; count += 26) {
        if (count == 12)
            begin(1);
        for (unsigned i = 0; i < count; i++)
            frames[i] = (uintptr_t)begin + 1 + i + count;
        insert(table_site(frames, count, NULL), 0x1000 + 16 * count, 10, WEIGHT_ONE);
    }
    said = leaks();
    assert_int_equal(count_of(said, "test_dump+0x"), 3 * 12);
    assert_int_equal(count_of(said, " more\n"), 2);
    assert_has(said, "hakmem:     and 26 more\n");
    assert_has(said, "hakmem:     and 52 more\n");
    finish(NULL);
}

static void test_labels(void)
{
    struct labels *labels;

    begin(1);
    labels = labels_take();
    assert_int_equal(labels_put(labels, LABEL_IS_TEXT, "tenant", "blue", 0), 0);
    assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, "rows", "items", -12), 0);
    insert(table_site(&(uintptr_t){ (uintptr_t)begin + 1 }, 1, labels_in_force(labels)), 0x1000, 10, WEIGHT_ONE);
    assert_has(leaks(), "hakmem: 10 bytes in 1 blocks, allocated at:\nhakmem:     label rows=-12 items\n"
                        "hakmem:     label tenant=blue\nhakmem:     ");
    finish(NULL);
}

/* The sites with most come first, 20 of them at most. The sums are of all. */
static void test_order(void)
{
    enum { SITES = 23, SHOWN = 20 };
    struct record removed;
    const char *said, *before;
    char line[100];

    begin(1);
    for (unsigned count = 1; count <= SITES; count++) {
        unsigned size = count * 7 % SITES + 1; /* all from 1 to SITES */
        insert(table_site(&(uintptr_t){ (uintptr_t)begin + count }, 1, NULL), 0x1000 + 16 * count, size * 100,
               WEIGHT_ONE);
        said = leaks();
        (void)snprintf(line, sizeof line, "blocks from %u sites%s\n", count,
                       count > SHOWN ? "; those with most:" : ":");
        assert_has(said, line);
        assert_int_equal(count_of(said, "allocated at:"), base_min(count, SHOWN));
    }
    assert_has(said, "by samples 1 bytes apart: 27600 bytes in 23 blocks from 23 sites");
    before = said;
    for (unsigned size = SITES; size > SITES - SHOWN; size--) {
        (void)snprintf(line, sizeof line, "hakmem: %u bytes in 1 blocks, allocated at:\n", size * 100);
        assert_has(before, line);
        before = strstr(before, line);
    }
    assert_has_not(said, "hakmem: 300 bytes in");
    /* A site without a block is none. */
    assert_true(table_remove((void *)(uintptr_t)(0x1000 + 16 * 4), 5, (struct caller){ 0 }, &removed));
    assert_has(leaks(), "in 22 blocks from 22 sites; those");
    finish(NULL);
}

/* The bounds of 95 % confidence: 3 means for a site without a sample; for the sum 1.96 sqrt(v + 2 v1), where a sample
 * of s bytes that stands for w blocks has v = s^2 (w - 1) for each block, and v1 = s^2 w (w - 1). */
static void test_confidence(void)
{
    static const struct {
        uint64_t mean, bytes, error;
    } rows[] = {
        { 2, 2, 6 },          { 4, 100, 0 },              { 7, 7, 21 },
        { 4096, 100, 11421 }, { 524288, 5000000, 148266 }, { UINT64_C(1) << 40, UINT64_C(1) << 40, 3354737403340 },
    };
    char expected[200];

    begin(1);
    insert_one();
    assert_has_not(leaks(), "confidence"); /* each block is a sample */
    assert_true(table_remove((void *)0x1000, 5, (struct caller){ 0 }, &(struct record){ 0 }));
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        profile.mean = rows[i].mean;
        insert(table_site(&(uintptr_t){ (uintptr_t)begin + 1 }, 1, NULL), 0x2000, rows[i].bytes, WEIGHT_ONE);
        (void)snprintf(expected, sizeof expected,
                       "the sum is right to %llu bytes, and a site that is not listed has less than %llu. "
                       "`hakmem leaks",
                       (unsigned long long)rows[i].error, 3 * (unsigned long long)rows[i].mean);
        assert_has(leaks(), expected);
        assert_true(table_remove((void *)0x2000, 5, (struct caller){ 0 }, &(struct record){ 0 }));
    }
    finish(NULL);
}

/* Without memory for the report, a message says so, and the process ends as usual. */
static void test_no_memory(void)
{
    begin(1);
    insert_one();
    fake_fail_nth(FAKE_MAP, 1);
    assert_string_equal(leaks(), "hakmem: HAKMEM_LEAK_REPORT: no memory for the report\n");
    assert_true(lock_try(&profile_control));
    lock_release(&profile_control);
    finish(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_names),         core_unit_test(test_long_names), core_unit_test(test_child_of_a_fork),
        core_unit_test(test_replaces),
        core_unit_test(test_no_nameless_files),      core_unit_test(test_special_files), core_unit_test(test_refused),
        core_unit_test(test_signals),       core_unit_test(test_interval),   core_unit_test(test_wanted),
        core_unit_test(test_no_leaks),      core_unit_test(test_frames),     core_unit_test(test_long_stacks),
        core_unit_test(test_labels),        core_unit_test(test_order),      core_unit_test(test_confidence),
        core_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
