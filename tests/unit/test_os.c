/* Protects os/linux.c: each call of os.h does what its contract says, and leaves errno unchanged. */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "os/file.h"
#include "os/os.h"
#include "os/symbols.h"

static char *region; /* where the child is to fault */

static int set_errno(void **state)
{
    (void)state;
    errno = 4711;
    return 0;
}

static size_t resident_pages(const void *address, size_t size)
{
    unsigned char present[4096];
    size_t pages = size / os_page_size(), resident = 0;
    assert_true(pages <= sizeof present);
    assert_int_equal(mincore((void *)address, size, present), 0);
    for (size_t i = 0; i < pages; i++)
        resident += present[i] & 1;
    return resident;
}

static bool is_mapped(const void *page)
{
    unsigned char present;
    int saved_errno = errno;
    bool mapped = mincore((void *)page, os_page_size(), &present) == 0;
    errno = saved_errno;
    return mapped;
}

static void assert_all_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            fail_msg("byte %zu is %d", i, bytes[i]);
}

static void touch_region(void)
{
    *(volatile char *)region = 1;
}

static void test_page_size(void **state)
{
    (void)state;
    size_t page = os_page_size();
    assert_int_equal(errno, 4711);
    assert_int_equal(page, sysconf(_SC_PAGESIZE));
    assert_true(base_is_pow2(page));
    assert_int_equal(os_page_size(), page);
}

static void test_map_at(void **state)
{
    (void)state;
    size_t page = os_page_size();
    for (size_t alignment = page; alignment <= HAK_GIB; alignment *= 4) {
        char *address = os_find_hole(16 * page, alignment);
        assert_non_null(address);
        assert_int_equal((uintptr_t)address % alignment, 0);
        assert_false(is_mapped(address) || is_mapped(address + 15 * page));
        region = address + page;
        assert_int_equal(os_map_at(address + page, 8 * page), OS_PLACE_MAPPED);
        assert_int_equal(os_map_at(address + page, 8 * page), OS_PLACE_TAKEN);
        assert_int_equal(os_map_at(address, 2 * page), OS_PLACE_TAKEN);
        assert_int_equal(os_map_at(address + 8 * page, 2 * page), OS_PLACE_TAKEN);
        assert_false(is_mapped(address) || is_mapped(address + 9 * page));
        assert_int_equal(signal_of(touch_region), 0);
        assert_all_zero(address + page, 8 * page);
        memset(address + page, 'x', 8 * page);
        assert_true(os_decommit(address + 3 * page, page));
        assert_false(is_mapped(address + 3 * page));
        assert_int_equal(address[3 * page - 1], 'x');
        assert_int_equal(os_map_at(address + 3 * page, page), OS_PLACE_MAPPED);
        assert_all_zero(address + 3 * page, page);
        os_unmap(address + page, 8 * page);
        assert_false(is_mapped(address + page) || is_mapped(address + 8 * page));
        assert_int_equal(errno, 4711);
    }
}

/* Bytes of address space that this process has mapped. */
static size_t address_space_taken(void)
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%zu", &pages), 1);
    fclose(statm);
    return pages * os_page_size();
}

/* os_map unmaps the extra space that it needs for alignment. */
static void test_map_takes_no_more(void **state)
{
    (void)state;
    enum { PLACES = 16 };
    char *places[PLACES];
    address_space_taken(); /* stdio allocates its first buffer here */
    size_t before = address_space_taken();
    for (size_t i = 0; i < PLACES; i++) {
        places[i] = os_map(64 * HAK_MIB, 2 * HAK_GIB);
        assert_non_null(places[i]);
        assert_int_equal((uintptr_t)places[i] % (2 * HAK_GIB), 0);
    }
    if (!UNIT_EMULATED)
        assert_in_range(address_space_taken() - before, PLACES * 64 * HAK_MIB, PLACES * 64 * HAK_MIB + HAK_MIB);
    for (size_t i = 0; i < PLACES; i++)
        os_unmap(places[i], 64 * HAK_MIB);
    if (!UNIT_EMULATED)
        assert_in_range(address_space_taken(), before, before + HAK_MIB);
}

/* os_purge works on locked pages, where MADV_DONTNEED alone fails. The pages stay locked. */
static void test_purge_locked(void **state)
{
    (void)state;
    size_t page = os_page_size(), size = 8 * page;
    char *address = os_map(size, page);
    assert_non_null(address);
    memset(address, 'x', size);
    assert_int_equal(mlock(address + page, 4 * page), 0);
    assert_true(os_purge(address, 6 * page));
    assert_int_equal(errno, 4711);
    if (!UNIT_EMULATED)
        assert_int_equal(resident_pages(address, size), 2);
    assert_all_zero(address, 6 * page);
    assert_int_equal(address[6 * page], 'x');
    assert_true(os_purge(address, 6 * page));
    os_unmap(address, size);
}

static void test_map_and_purge(void **state)
{
    (void)state;
    size_t page = os_page_size(), size = 64 * page;
    char *address = os_map(size, 2 * HAK_MIB);
    assert_non_null(address);
    assert_int_equal((uintptr_t)address % (2 * HAK_MIB), 0);
    os_advise_huge(address, size, false);
    assert_all_zero(address, size);
    memset(address, 'x', size);
    assert_true(os_purge(address + page, size - 2 * page));
    if (!UNIT_EMULATED)
        assert_int_equal(resident_pages(address, size), 2);
    assert_all_zero(address + page, size - 2 * page);
    assert_int_equal(address[0], 'x');
    assert_int_equal(address[size - 1], 'x');
    os_unmap(address, size);
}

static void test_populate(void **state)
{
    (void)state;
    size_t size = 64 * os_page_size();
    char *address = os_map(size, os_page_size());
    assert_non_null(address);
    os_advise_huge(address, size, false);
    bool populated = os_populate(address, size);
    int after = errno;
    assert_int_equal(after, 4711);
    if (!UNIT_EMULATED)
        assert_int_equal(resident_pages(address, size), populated ? 64 : 0);
    assert_all_zero(address, size);
    os_unmap(address, size);
}

/* os_guard closes memory and zeroes it, wherever the kernel has it. */
static void test_guard(void **state)
{
    (void)state;
    size_t page = os_page_size(), size = 8 * page;
    char *address = os_map(size, page);
    assert_non_null(address);
    os_advise_huge(address, size, false);
    address[2 * page] = address[7 * page + 1] = 'x';
    errno = 4711;
    if (os_guard(address, size, true)) {
        assert_false(UNIT_EMULATED);
        region = address + 2 * page;
        assert_int_equal(signal_of(touch_region), SIGSEGV);
        assert_true(os_guard(address, size, false));
        assert_all_zero(address, size);
    }
    assert_int_equal(errno, 4711);
    os_unmap(address, size);
}

static void test_remap(void **state)
{
    (void)state;
    size_t page = os_page_size(), size = 4 * page;
    char *address = os_map(size, page);
    assert_non_null(address);
    memset(address, 'x', size);

    /* Growing in place fails when the next page is taken. */
    char *area = os_map(16 * page, page);
    os_unmap(area, 8 * page);
    assert_true(mmap(area, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
    memset(area, 'y', 8 * page);
    errno = 4711;
    assert_null(os_remap(area, 8 * page, 16 * page, false));
    assert_int_equal(errno, 4711);
    assert_int_equal(area[8 * page - 1], 'y');
    char *moved = os_remap(area, 8 * page, 1024 * page, true);
    assert_non_null(moved);
    assert_ptr_not_equal(moved, area);
    for (size_t i = 0; i < 8 * page; i++)
        assert_int_equal(moved[i], 'y');
    assert_all_zero(moved + 8 * page, 1016 * page);
    assert_false(is_mapped(area));

    /* Shrinking is in place, and so is growing back into the freed space. */
    char *same = os_remap(moved, 1024 * page, 2 * page, false);
    assert_ptr_equal(same, moved);
    same = os_remap(moved, 2 * page, 4 * page, false);
    assert_ptr_equal(same, moved);
    assert_all_zero(moved + 2 * page, 2 * page);

    errno = 4711;
    assert_null(os_remap(address, size, (size_t)1 << 60, true));
    assert_int_equal(errno, 4711);
    assert_int_equal(address[size - 1], 'x');
    os_unmap(address, size);
    os_unmap(moved, 4 * page);
    os_unmap(area + 8 * page, 8 * page);
}

/* The contents move with the mapping; a place that is taken elsewhere is the caller's to avoid. */
static void test_move(void **state)
{
    (void)state;
    size_t page = os_page_size(), size = 4 * page;
    char *address = os_map(size, page), *place = os_find_hole(size, page);
    assert_non_null(address);
    memset(address, 'x', 3 * page);
    assert_int_equal(os_map_at(place, size), OS_PLACE_MAPPED);
    errno = 4711;
    assert_true(os_move(address, size, place));
    assert_int_equal(place[0] + place[3 * page - 1], 2 * 'x');
    assert_int_equal(place[3 * page], 0);
    assert_false(is_mapped(address));

    assert_false(os_move(address, size, place)); /* nothing is there */
    assert_int_equal(errno, 4711);
    assert_int_equal(place[0], 'x');
    os_unmap(place, size);
}

static void test_failures(void **state)
{
    (void)state;
    size_t page = os_page_size();
    assert_null(os_map((size_t)1 << 60, page));
    assert_null(os_map(SIZE_MAX - page + 1, 4 * page));
    assert_null(os_find_hole((size_t)1 << 60, HAK_GIB));
    assert_null(os_find_hole(SIZE_MAX - page + 1, HAK_GIB));
    char *address = os_find_hole(page, page);
    assert_int_equal(os_map_at(address, (size_t)1 << 60), OS_PLACE_REFUSED);
    assert_true(!os_purge(address, page) || UNIT_EMULATED);
    assert_null(os_remap(address, page, 2 * page, true));
    os_advise_huge(address, page, true);
    os_name(address, page, "hakmem");
    os_unmap(address, page);
    assert_int_equal(errno, 4711);
}

static bool munmap_refused;
int __real_munmap(void *address, size_t size);
int __wrap_munmap(void *address, size_t size);
int __wrap_munmap(void *address, size_t size)
{
    if (!munmap_refused)
        return __real_munmap(address, size);
    errno = ENOMEM;
    return -1;
}

/* At vm.max_map_count the kernel refuses to unmap the middle of a mapping. Then at least its memory is given back. */
static void test_unmap_refused(void **state)
{
    size_t page = os_page_size();
    char *address = os_map(3 * page, page);
    (void)state;
    memset(address, 1, 3 * page);
    munmap_refused = true;
    os_unmap(address + page, page);
    assert_false(os_decommit(address, page));
    munmap_refused = false;
    assert_int_equal(address[0], 1);
    assert_all_zero(address + page, page);
    os_unmap(address, 3 * page);
    assert_int_equal(errno, 4711);
}

/* os/file.h: os_file_close returns the error. */
static void test_close(void **state)
{
    int file = os_file_create("/dev/null");
    (void)state;
    assert_true(file >= 0);
    assert_int_equal(os_file_close(file), 0);
    assert_int_equal(os_file_close(file), EBADF);
    assert_int_equal(errno, 4711);
}

/* A device is recognised also if its file gets the number 0. */
static void open_special_as_standard_input(void)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", memfd_create("regular", 0));
    close(STDIN_FILENO);
    assert_int_equal(os_file_open_special(path), OS_FILE_REGULAR);
    assert_int_equal(os_file_open_special("/dev/null"), 0);
    _exit(7);
}

/* os/file.h: os_file_open_special opens devices and pipes, and leaves other names to be made or replaced. */
static void test_open_special(void **state)
{
    char folder[] = "/tmp/hakmem-unit-XXXXXX", path[64], byte = 0;
    int file, reader;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/one", folder);
    errno = 4711;
    assert_int_equal(os_file_open_special(folder), OS_FILE_REGULAR); /* replacing it fails later, and says why */
    assert_int_equal(os_file_open_special(path), OS_FILE_REGULAR);
    file = os_file_create(path);
    assert_int_equal(os_file_close(file), 0);
    assert_int_equal(os_file_open_special(path), OS_FILE_REGULAR);
    assert_int_equal(unlink(path), 0);

    assert_int_equal(mkfifo(path, 0600), 0);
    errno = 4711;
    assert_int_equal(os_file_open_special(path), -ENXIO);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    file = os_file_open_special(path);
    assert_true(file >= 0);
    assert_int_equal(fcntl(file, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(os_file_write(file, "x", 1), 0);
    assert_int_equal(read(reader, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(file);
    close(reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);

    assert_int_equal(status_of(open_special_as_standard_input), 7);
    file = os_file_open_special("/dev/null");
    assert_true(file >= 0);
    assert_int_equal(os_file_close(file), 0);
    assert_int_equal(errno, 4711);
}

/* os/symbols.h: none of these addresses is in this program, so no symbol is found, not even in an earlier library. */
static void test_no_symbols_before(void **state)
{
    struct os_symbol symbols[] = { { .name = "no_name_of_any_object", .own = &symbols },
                                   { .name = "_cmocka_run_group_tests" } };
    (void)state;
    assert_false(os_symbols_before(symbols, 2));
    assert_null(symbols[0].before);
    assert_null(symbols[1].before);
}

/* os/symbols.h: os_symbols_defined finds the first object that defines the first name, its definitions and its code. */
static void test_symbols_defined(void **state)
{
    static const char *const no_name = "no_name_of_any_object";
    struct os_definition in_libc[] = { { .name = "qsort" }, { .name = no_name }, { .name = "bsearch" } },
                         nowhere[] = { { .name = no_name }, { .name = "qsort" } };
    uintptr_t start = 0, end = 0;

    (void)state;
    assert_true(os_symbols_defined(in_libc, 3, &start, &end));
    assert_true(in_libc[0].address == (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
    assert_true(in_libc[2].address == (uintptr_t)dlsym(RTLD_DEFAULT, "bsearch"));
    assert_true(in_libc[0].size > 0 && in_libc[0].address >= start && in_libc[0].address < end);
    assert_true(in_libc[1].address == 0 && in_libc[1].size == 0);
    assert_false(os_symbols_defined(nowhere, 2, &start, &end));
}

/* As test_symbols_defined, without a lock. No object defines the names of the same hashes as those of qsort and
 * bsearch. */
static void test_symbols_peek(void **state)
{
    static const char *const same_hash = "qspQt", *const same_hash_too = "bseasBh";
    struct os_definition in_libc[] = { { .name = "bsearch" }, { .name = same_hash }, { .name = "qsort" } },
                         nowhere[] = { { .name = same_hash_too }, { .name = "qsort" } };
    uintptr_t start = 0, end = 0;

    (void)state;
    MACHINE_NEEDS(process_vm_readv);
    assert_true(os_symbols_peek(in_libc, 3, 0, &start, &end));
    assert_true(in_libc[0].address == (uintptr_t)dlsym(RTLD_DEFAULT, "bsearch"));
    assert_true(in_libc[2].address == (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
    assert_true(in_libc[0].size > 0 && in_libc[0].address >= start && in_libc[0].address < end);
    assert_true(in_libc[1].address == 0 && in_libc[1].size == 0);
    assert_false(os_symbols_peek(nowhere, 2, 0, &start, &end));
    assert_false(os_mapping_around(1, &start, &end));
}

/* Whether /proc/self/maps contains the text. */
static bool maps_have(const char *part)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        found |= strstr(line, part) != NULL;
    fclose(maps);
    return found;
}

static void test_name(void **state)
{
    (void)state;
    size_t page = os_page_size();
    char *address = os_map(4 * page, page);
    assert_non_null(address);
    os_name(address, 4 * page, "hakmem unit test");
    assert_int_equal(errno, 4711);
    /* The call succeeds only on a kernel with names. */
    bool kernel_has_names = prctl(0x53564d41, 0, (unsigned long)(uintptr_t)address, page, "x") == 0;
    if (!UNIT_EMULATED)
        assert_int_equal(maps_have("[anon:hakmem unit test]"), kernel_has_names);
    os_unmap(address, 4 * page);
}

static void check_address_space_limit(void)
{
    struct rlimit limit = { (rlim_t)64 * HAK_GIB, RLIM_INFINITY };
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)64 * HAK_GIB;
    if (setrlimit(RLIMIT_AS, &limit) != 0 || os_address_space_limit() != 64 * HAK_GIB)
        raise(SIGKILL);
}

static void test_limits(void **state)
{
    (void)state;
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    assert_int_equal(os_physical_memory(), (size_t)info.totalram * info.mem_unit);
    if (!UNIT_EMULATED)
        assert_int_equal(signal_of(check_address_space_limit), 0);
    struct os_memory_bounds bounds;
    os_memory_bounds(&bounds, true);
    assert_true(bounds.max > 0 && bounds.high > 0 && bounds.stall_percent <= 100);

    size_t size = 32 * HAK_MIB, before = os_resident_memory();
    assert_true(before > 0);
    char *address = os_map(size, os_page_size());
    assert_non_null(address);
    memset(address, 'x', size);
    assert_true(os_resident_memory() >= before + size - HAK_MIB);
    os_unmap(address, size);
    assert_true(os_resident_memory() <= before + HAK_MIB);
}

static void check_one_cpu(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || os_cpu_count() != 1)
        raise(SIGKILL);
}

static void test_cpu_count(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(os_cpu_count(), CPU_COUNT(&set));
    assert_int_equal(signal_of(check_one_cpu), 0);
}

static void test_clocks(void **state)
{
    (void)state;
    uint64_t start = os_now(), coarse_start = os_now_coarse(), after = os_now();
    assert_true(coarse_start <= after + 1000000 && coarse_start + 100000000 >= start);
    struct timespec pause = { 0, 20000000 };
    nanosleep(&pause, NULL);
    uint64_t passed = os_now() - start, coarse_passed = os_now_coarse() - coarse_start;
    assert_true(passed >= 20000000 && passed < UINT64_C(60000000000));
    assert_true(coarse_passed >= 10000000 && coarse_passed < UINT64_C(60000000000));
}

static void test_random(void **state)
{
    (void)state;
    uint64_t ones = 0, zeros = 0, words[64];
    for (size_t i = 0; i < 64; i++) {
        words[i] = os_random();
        ones |= words[i];
        zeros |= ~words[i];
        for (size_t j = 0; j < i; j++)
            assert_true(words[i] != words[j]);
    }
    assert_int_equal(errno, 4711);
    assert_true(ones == UINT64_MAX && zeros == UINT64_MAX);
}

static bool is_listed(char *const *list, const char *entry)
{
    while (*list != NULL && strcmp(*list, entry) != 0)
        list++;
    return *list != NULL;
}

static void test_environment(void **state)
{
    (void)state;
    setenv("HAKMEM_UNIT_OTHER", "value", 1);
    assert_ptr_equal(os_environment(), environ);

    /* Without environ, HAKMEM reads the environment that the process was started with. ctest sets it. */
    char **saved = environ;
    environ = NULL;
    char *const *list = os_environment();
    environ = saved;
    assert_non_null(list);
    assert_true(is_listed(list, "HAKMEM_UNIT_TEST=found"));
    assert_false(is_listed(list, "HAKMEM_UNIT_OTHER=value"));
}

static _Atomic uint32_t started;
static sigset_t thread_mask;
static char thread_name[16];
static uint32_t thread_id;

static void run_thread(void)
{
    pthread_sigmask(SIG_BLOCK, NULL, &thread_mask);
    for (int i = 0; i < 60000 && strcmp(thread_name, "hak-unit") != 0; i++) { /* the starting thread sets the name */
        prctl(PR_GET_NAME, thread_name);
        usleep(1000);
    }
    thread_id = os_thread_id();
    atomic_store(&started, 1);
    os_futex_wake(&started, 1);
}

static void test_thread_and_futex(void **state)
{
    (void)state;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_true(os_thread_start(pthread_create, run_thread, "hak-unit"));
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    while (atomic_load(&started) == 0)
        os_futex_wait(&started, 0, UINT64_MAX);
    assert_int_equal(os_thread_id(), gettid());
    assert_true(thread_id != 0 && thread_id != os_thread_id());
    assert_string_equal(thread_name, "hak-unit");
    for (int signal = 1; signal < 32; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP)
            assert_true(sigismember(&thread_mask, signal));
        assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
    }

    uint64_t start = os_now();
    errno = 4711;
    os_futex_wait(&started, 1, 20000000); /* nobody wakes it: it times out */
    assert_true(os_now() - start >= 15000000);
    os_futex_wait(&started, 0, UINT64_MAX); /* the word differs: it returns at once */
    assert_int_equal(errno, 4711);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_page_size, set_errno),
        cmocka_unit_test_setup(test_map_at, set_errno),
        cmocka_unit_test_setup(test_map_takes_no_more, set_errno),
        cmocka_unit_test_setup(test_purge_locked, set_errno),
        cmocka_unit_test_setup(test_map_and_purge, set_errno),
        cmocka_unit_test_setup(test_populate, set_errno),
        cmocka_unit_test_setup(test_guard, set_errno),
        cmocka_unit_test_setup(test_remap, set_errno),
        cmocka_unit_test_setup(test_move, set_errno),
        cmocka_unit_test_setup(test_failures, set_errno),
        cmocka_unit_test_setup(test_unmap_refused, set_errno),
        cmocka_unit_test_setup(test_close, set_errno),
        cmocka_unit_test_setup(test_open_special, set_errno),
        cmocka_unit_test_setup(test_no_symbols_before, set_errno),
        cmocka_unit_test_setup(test_symbols_defined, set_errno),
        cmocka_unit_test_setup(test_symbols_peek, set_errno),
        cmocka_unit_test_setup(test_name, set_errno),
        cmocka_unit_test_setup(test_limits, set_errno),
        cmocka_unit_test_setup(test_cpu_count, set_errno),
        cmocka_unit_test_setup(test_clocks, set_errno),
        cmocka_unit_test_setup(test_random, set_errno),
        cmocka_unit_test_setup(test_environment, set_errno),
        cmocka_unit_test_setup(test_thread_and_futex, set_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
