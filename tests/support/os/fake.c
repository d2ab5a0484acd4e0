/* os.h for tests: real memory, counted and failing calls, checked pre-conditions, a clock that stands still. */
#define _GNU_SOURCE
#include "os/fake.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/format.h"
#include "os/fake_ranges.h"

enum {
    RANGES_MOST = 1 << 20,
    MINCORE_PAGES = 4096, /* pages one mincore asks about */
    DEFAULT_CPUS = 4,
    WAIT_SLICE_NS = 1000000, /* a timed wait returns after so much real time, for its caller to look at the clock */
};

static const uint64_t time_at_start = UINT64_C(1000000000);
static char *const no_environment[] = { NULL };

/* All of it under `mutex`, but the clock, which is read more often than moved. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct range_list list;
    uint64_t calls[FAKE_KIND_COUNT], failures;
    enum fake_kind failing;            /* FAKE_ANY, or the kind that is to fail */
    uint64_t seen;                     /* calls of `failing` since the rule was set */
    uint64_t first_failed, last_failed; /* by that count; first 0: no rule */
    size_t page_size, address_space_limit, physical_memory;
    struct os_memory_bounds bounds;
    uint64_t bounds_read;
    bool memory_locked;
    unsigned cpu_count;
    char *const *environment;
    uint64_t randoms;
} fake = {
    .page_size = 0, /* the machine's */
    .address_space_limit = SIZE_MAX,
    .physical_memory = (size_t)4 << 30,
    .bounds = { SIZE_MAX, SIZE_MAX, 0 },
    .cpu_count = DEFAULT_CPUS,
    .environment = no_environment,
};
static _Atomic uint64_t now = UINT64_C(1000000000);
static _Atomic uint64_t reading_takes;

static size_t machine_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void fake_lock(void)
{
    pthread_mutex_lock(&mutex);
    if (fake.list.ranges == NULL) {
        void *room = mmap(NULL, RANGES_MOST * sizeof(struct range), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        HAK_CHECK(room != MAP_FAILED);
        fake.list.ranges = room;
        fake.list.capacity = RANGES_MOST;
    }
}

static void fake_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

_Noreturn static void broken_contract(const char *function, const void *address, size_t size, const char *what)
{
    base_message("fake os: %s(%p, %zu): %s", function, address, size, what);
    abort();
}

static void check_range(const char *function, const void *address, size_t size)
{
    size_t page = os_page_size();
    if (size == 0 || size % page != 0 || (uintptr_t)address % page != 0)
        broken_contract(function, address, size, "not whole pages");
}

static void check_states(const char *function, const void *address, size_t size, unsigned states, const char *what)
{
    uintptr_t start = (uintptr_t)address;
    check_range(function, address, size);
    if (!ranges_all(&fake.list, start, start + size, states))
        broken_contract(function, address, size, what);
}

/* Counts the call; true when it is to fail. */
static bool count_call(enum fake_kind kind)
{
    fake.calls[kind]++;
    if (kind >= FAKE_FALLIBLE_COUNT || fake.first_failed == 0 || (fake.failing != FAKE_ANY && fake.failing != kind))
        return false;
    fake.seen++;
    if (fake.seen < fake.first_failed || fake.seen > fake.last_failed)
        return false;
    fake.failures++;
    return true;
}

static size_t mapped_bytes(void)
{
    return fake.list.bytes[RANGE_PLACED] + fake.list.bytes[RANGE_MAPPED];
}

static bool fits_address_space(size_t size)
{
    return mapped_bytes() <= fake.address_space_limit && size <= fake.address_space_limit - mapped_bytes();
}

/* ---- Steering ---- */

void fake_reset(void)
{
    fake_lock();
    for (size_t i = 0; i < fake.list.count; i++)
        munmap((void *)fake.list.ranges[i].start, fake.list.ranges[i].end - fake.list.ranges[i].start);
    fake.list.count = 0;
    memset(fake.list.bytes, 0, sizeof fake.list.bytes);
    memset(fake.calls, 0, sizeof fake.calls);
    fake.failures = fake.first_failed = 0;
    fake.page_size = 0;
    fake.address_space_limit = SIZE_MAX;
    fake.bounds = (struct os_memory_bounds){ SIZE_MAX, SIZE_MAX, 0 };
    fake.bounds_read = 0;
    fake.physical_memory = 4 * HAK_GIB;
    fake.memory_locked = false;
    fake.cpu_count = DEFAULT_CPUS;
    fake.environment = no_environment;
    fake.randoms = 0;
    atomic_store(&now, time_at_start);
    atomic_store(&reading_takes, 0);
    fake_unlock();
}

uint64_t fake_calls(enum fake_kind kind)
{
    uint64_t calls = 0;
    fake_lock();
    if (kind == FAKE_ANY)
        for (unsigned i = 0; i < FAKE_FALLIBLE_COUNT; i++)
            calls += fake.calls[i];
    else
        calls = fake.calls[kind];
    fake_unlock();
    return calls;
}

static void set_failing(enum fake_kind kind, uint64_t first, uint64_t last)
{
    fake_lock();
    fake.failing = kind;
    fake.seen = 0;
    fake.first_failed = first;
    fake.last_failed = last;
    fake_unlock();
}

void fake_fail_nth(enum fake_kind kind, uint64_t n)
{
    set_failing(kind, n, n);
}

void fake_fail_from(enum fake_kind kind, uint64_t n)
{
    set_failing(kind, n, UINT64_MAX);
}

void fake_fail_nothing(void)
{
    set_failing(FAKE_ANY, 0, 0);
}

uint64_t fake_failures(void)
{
    fake_lock();
    uint64_t failures = fake.failures;
    fake_unlock();
    return failures;
}

size_t fake_bytes_mapped(void)
{
    fake_lock();
    size_t bytes = mapped_bytes();
    fake_unlock();
    return bytes;
}

static size_t range_resident_pages(uintptr_t start, uintptr_t end)
{
    unsigned char present[MINCORE_PAGES];
    size_t page = machine_page_size(), pages = 0;
    while (start < end) {
        size_t size = base_min(end - start, MINCORE_PAGES * page);
        /* qemu refuses a range that has an inaccessible page, which has no memory. */
        if (mincore((void *)start, size, present) != 0) {
            size = page;
            present[0] = 0;
            (void)mincore((void *)start, page, present);
        }
        for (size_t i = 0; i < size / page; i++)
            pages += present[i] & 1;
        start += size;
    }
    return pages;
}

size_t fake_bytes_resident(void)
{
    size_t pages = 0;
    fake_lock();
    for (size_t i = 0; i < fake.list.count; i++)
        pages += range_resident_pages(fake.list.ranges[i].start, fake.list.ranges[i].end);
    fake_unlock();
    return pages * machine_page_size();
}

static const unsigned usable_states = 1u << RANGE_PLACED | 1u << RANGE_MAPPED;

bool fake_is_mapped(const void *address, size_t size)
{
    fake_lock();
    bool mapped = ranges_all(&fake.list, (uintptr_t)address, (uintptr_t)address + size, usable_states);
    fake_unlock();
    return mapped;
}

void fake_set_page_size(size_t size)
{
    HAK_CHECK(base_is_pow2(size) && size >= machine_page_size());
    fake.page_size = size;
}

void fake_set_address_space_limit(size_t size)
{
    fake.address_space_limit = size;
}

void fake_set_physical_memory(size_t size)
{
    fake.physical_memory = size;
}

void fake_set_memory_bounds(size_t max, size_t high, unsigned stall_percent)
{
    fake.bounds = (struct os_memory_bounds){ max, high, stall_percent };
}

uint64_t fake_memory_bounds_read(void)
{
    return fake.bounds_read;
}

void fake_set_memory_locked(bool locked)
{
    fake.memory_locked = locked;
}

void fake_set_cpu_count(unsigned count)
{
    fake.cpu_count = count;
}

void fake_set_environment(char *const *environment)
{
    fake.environment = environment;
}

void fake_advance(uint64_t nanoseconds)
{
    atomic_fetch_add(&now, nanoseconds);
}

void fake_advance_reading(uint64_t nanoseconds)
{
    atomic_store(&reading_takes, nanoseconds);
}

/* ---- os.h: address space ---- */

size_t os_page_size(void)
{
    return fake.page_size != 0 ? fake.page_size : machine_page_size();
}

/* Always maps more and trims it, so that the place does not depend on where the kernel maps. Huge pages are refused:
 * they would make fake_bytes_resident count pages that nobody touched. */
static void *map_aligned(size_t size, size_t alignment, int protection)
{
    size_t room = base_max(alignment, os_page_size());
    if (size > SIZE_MAX - room)
        return NULL;
    char *address = mmap(NULL, size + room, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return NULL;
    size_t before = base_align_up((uintptr_t)address, room) - (uintptr_t)address;
    if (before != 0)
        munmap(address, before);
    if (before != room)
        munmap(address + before + size, room - before);
    (void)madvise(address + before, size, MADV_NOHUGEPAGE);
    return address + before;
}

static void check_alignment(const char *function, size_t size, size_t alignment)
{
    check_range(function, NULL, size);
    if (!base_is_pow2(alignment) || alignment < os_page_size())
        broken_contract(function, NULL, size, "the alignment is no power of two from the page size on");
}

void *os_map(size_t size, size_t alignment)
{
    int saved_errno = errno;
    void *address = NULL;
    fake_lock();
    check_alignment("os_map", size, alignment);
    if (!count_call(FAKE_MAP) && fits_address_space(size)) {
        address = map_aligned(size, alignment, PROT_READ | PROT_WRITE);
        if (address != NULL)
            ranges_set(&fake.list, (uintptr_t)address, (uintptr_t)address + size, RANGE_MAPPED);
    }
    fake_unlock();
    errno = saved_errno;
    return address;
}

enum os_place os_map_at(void *address, size_t size)
{
    int saved_errno = errno;
    enum os_place place = OS_PLACE_REFUSED;
    fake_lock();
    check_range("os_map_at", address, size);
    if (!count_call(FAKE_MAP_AT) && fits_address_space(size)) {
        void *got = mmap(address, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        place = got == address ? OS_PLACE_MAPPED : OS_PLACE_TAKEN;
        if (place == OS_PLACE_MAPPED) {
            (void)madvise(address, size, MADV_NOHUGEPAGE);
            ranges_set(&fake.list, (uintptr_t)address, (uintptr_t)address + size, RANGE_PLACED);
        } else if (got != MAP_FAILED) {
            munmap(got, size);
        }
    }
    fake_unlock();
    errno = saved_errno;
    return place;
}

void *os_find_hole(size_t size, size_t alignment)
{
    int saved_errno = errno;
    void *hole = NULL;
    fake_lock();
    check_alignment("os_find_hole", size, alignment);
    if (!count_call(FAKE_HOLE) && fits_address_space(size) && size <= SIZE_MAX - alignment) {
        /* By a system call, because a sanitizer would make and clear shadow memory for hundreds of GiB. */
        long found =
            syscall(SYS_mmap, NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found != -1) {
            hole = (void *)base_align_up((uintptr_t)found, alignment);
            (void)syscall(SYS_munmap, found, size + alignment);
        }
    }
    fake_unlock();
    errno = saved_errno;
    return hole;
}

void os_unmap(void *address, size_t size)
{
    int saved_errno = errno;
    fake_lock();
    check_states("os_unmap", address, size, usable_states, "not all of it is mapped");
    count_call(FAKE_UNMAP);
    HAK_CHECK(munmap(address, size) == 0);
    ranges_set(&fake.list, (uintptr_t)address, (uintptr_t)address + size, RANGE_FREE);
    fake_unlock();
    errno = saved_errno;
}

bool os_decommit(void *address, size_t size)
{
    int saved_errno = errno;
    uintptr_t start = (uintptr_t)address;
    fake_lock();
    check_states("os_decommit", address, size, 1u << RANGE_PLACED, "not all of it is from os_map_at");
    bool done = !count_call(FAKE_PURGE) && munmap(address, size) == 0;
    if (done)
        ranges_set(&fake.list, start, start + size, RANGE_FREE);
    fake_unlock();
    errno = saved_errno;
    return done;
}

/* Moves go to a place of map_aligned's, because the kernel's own need not suit a larger page size. */
static void *remap(void *address, size_t old_size, size_t new_size, bool may_move)
{
    void *place = mremap(address, old_size, new_size, 0);
    if (place != MAP_FAILED || !may_move)
        return place != MAP_FAILED ? place : NULL;
    place = map_aligned(new_size, os_page_size(), PROT_NONE);
    if (place != NULL && mremap(address, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
        munmap(place, new_size);
        return NULL;
    }
    return place;
}

void *os_remap(void *address, size_t old_size, size_t new_size, bool may_move)
{
    int saved_errno = errno;
    void *moved = NULL;
    size_t more = new_size > old_size ? new_size - old_size : 0;
    fake_lock();
    check_states("os_remap", address, old_size, usable_states, "not all of it is mapped");
    check_range("os_remap", address, new_size);
    if (!count_call(FAKE_REMAP) && fits_address_space(more)) {
        moved = remap(address, old_size, new_size, may_move);
        if (moved != NULL) {
            ranges_set(&fake.list, (uintptr_t)address, (uintptr_t)address + old_size, RANGE_FREE);
            ranges_set(&fake.list, (uintptr_t)moved, (uintptr_t)moved + new_size, RANGE_MAPPED);
        }
    }
    fake_unlock();
    errno = saved_errno;
    return moved;
}

bool os_move(void *address, size_t size, void *place)
{
    int saved_errno = errno;
    fake_lock();
    check_states("os_move", address, size, usable_states, "not all of it is mapped");
    check_states("os_move", place, size, 1u << RANGE_PLACED, "not all of it is from os_map_at");
    bool done = !count_call(FAKE_REMAP) &&
                mremap(address, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place;
    if (done) {
        ranges_set(&fake.list, (uintptr_t)address, (uintptr_t)address + size, RANGE_FREE);
        ranges_set(&fake.list, (uintptr_t)place, (uintptr_t)place + size, RANGE_MAPPED);
    }
    fake_unlock();
    errno = saved_errno;
    return done;
}

/* ---- os.h: physical memory ---- */

bool os_purge(void *address, size_t size)
{
    int saved_errno = errno;
    fake_lock();
    check_states("os_purge", address, size, usable_states, "not all of it is mapped");
    bool done = !count_call(FAKE_PURGE) && madvise(address, size, MADV_DONTNEED) == 0;
    fake_unlock();
    errno = saved_errno;
    return done;
}

bool os_memory_is_locked(void)
{
    return fake.memory_locked;
}

bool os_populate(void *address, size_t size)
{
    fake_lock();
    check_states("os_populate", address, size, usable_states, "not all of it is mapped");
    bool done = !count_call(FAKE_POPULATE);
    fake_unlock();
    /* A write that changes nothing, to every page: kernels without MADV_POPULATE_WRITE run the tests too. A loop, as
     * compilers make a load of adding or setting nothing. */
    for (size_t at = 0; done && at < size; at += machine_page_size()) {
        _Atomic uint8_t *byte = (_Atomic uint8_t *)((char *)address + at);
        uint8_t seen = atomic_load(byte);
        while (!atomic_compare_exchange_weak(byte, &seen, seen)) {
        }
    }
    return done;
}

/* The memory is real, and so is its protection. */
bool os_protect(void *address, size_t size, bool accessible)
{
    fake_lock();
    check_states("os_protect", address, size, usable_states, "not all of it is mapped");
    bool fails = count_call(FAKE_PROTECT);
    fake_unlock();
    return !fails && mprotect(address, size, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

bool os_guard(void *address, size_t size, bool on)
{
    fake_lock();
    check_states("os_guard", address, size, usable_states, "not all of it is mapped");
    bool fails = count_call(FAKE_GUARD);
    fake_unlock();
    return !fails && (!on || madvise(address, size, MADV_DONTNEED) == 0) &&
           mprotect(address, size, on ? PROT_NONE : PROT_READ | PROT_WRITE) == 0;
}

bool os_seal(void *address, size_t size) { return mprotect(address, size, PROT_READ) == 0; }

void os_advise_huge(void *address, size_t size, bool wanted)
{
    fake_lock();
    check_states("os_advise_huge", address, size, usable_states, "not all of it is mapped");
    count_call(FAKE_ADVISE_HUGE);
    if (!wanted)
        count_call(FAKE_ADVISE_SMALL);
    fake_unlock();
}

void os_name(void *address, size_t size, const char *name)
{
    fake_lock();
    check_states("os_name", address, size, usable_states, "not all of it is mapped");
    if (name == NULL)
        broken_contract("os_name", address, size, "no name");
    count_call(FAKE_NAME);
    fake_unlock();
}

void os_name_no_more(void)
{
}

/* ---- os.h: limits, time, environment, threads ---- */

size_t os_physical_memory(void)
{
    return fake.physical_memory;
}

size_t os_address_space_limit(void)
{
    return fake.address_space_limit;
}

void os_memory_bounds(struct os_memory_bounds *bounds, bool pressure)
{
    *bounds = fake.bounds;
    if (!pressure)
        bounds->stall_percent = 0;
    fake.bounds_read++;
}

bool os_resident_pages(const void *address, size_t size, unsigned char *pages)
{
    check_range("os_resident_pages", address, size);
    return mincore((void *)(uintptr_t)address, size, pages) == 0;
}

size_t os_resident_memory(void)
{
    int saved_errno = errno;
    size_t bytes = fake_bytes_resident();
    errno = saved_errno;
    return bytes;
}

/* The memory of the fake is the real system's. */
void os_page_faults(uint64_t *soft, uint64_t *hard)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    *soft = (uint64_t)usage.ru_minflt;
    *hard = (uint64_t)usage.ru_majflt;
}

unsigned os_cpu_count(void)
{
    return fake.cpu_count;
}

uint64_t os_now(void)
{
    return atomic_fetch_add(&now, atomic_load(&reading_takes));
}

uint64_t os_now_coarse(void)
{
    return atomic_load(&now);
}

/* The same numbers after every fake_reset (splitmix64). */
uint64_t os_random(void)
{
    fake_lock();
    uint64_t word = fake.randoms += UINT64_C(0x9e3779b97f4a7c15);
    fake_unlock();
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

char *const *os_environment(void)
{
    return fake.environment;
}

uint32_t os_thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    int saved_errno = errno;
    struct timespec slice = { 0, (long)(timeout_ns < WAIT_SLICE_NS ? timeout_ns : WAIT_SLICE_NS) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns == UINT64_MAX ? NULL : &slice, NULL, 0);
    errno = saved_errno;
}

void os_futex_wake(_Atomic uint32_t *word, int count)
{
    int saved_errno = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    errno = saved_errno;
}

enum { THREADS_BEGINNING = 64 };

/* Of the last threads that were started: no test starts so many more before a thread has begun. */
static struct thread_start {
    void (*run)(void);
} thread_starts[THREADS_BEGINNING];
static unsigned threads_started;

static void *thread_main(void *argument)
{
    struct thread_start start = *(struct thread_start *)argument;
    start.run();
    return NULL;
}

bool os_thread_is_ours(void *(*run)(void *))
{
    (void)run;
    return false;
}

bool os_thread_start(os_thread_create *create, void (*run)(void), const char *name)
{
    struct thread_start *start;
    pthread_t thread;
    fake_lock();
    if (name == NULL || strlen(name) > 15)
        broken_contract("os_thread_start", NULL, 0, "no name, or one of more than 15 characters");
    bool fails = count_call(FAKE_THREAD);
    start = &thread_starts[threads_started++ % THREADS_BEGINNING];
    *start = (struct thread_start){ .run = run };
    fake_unlock();
    if (fails || create(&thread, NULL, thread_main, start) != 0)
        return false;
    pthread_detach(thread);
    return true;
}
