/*
 * os.h on Linux: memory, limits, time and threads.
 *
 * System calls that glibc makes cancellation points go through syscall(2), because a thread that is cancelled must not
 * end inside the allocator with a lock held. Nothing here uses stdio or any function that may call malloc, except
 * os_thread_start.
 */
#define _GNU_SOURCE
#include "os/os.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base/errno.h"
#include "os/procfs.h"

/* Names that older C libraries lack. The kernel defines the numbers. */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

enum {
    CPU_MASK_WORDS = 128,            /* 8192 CPUs, the most the kernel can be built for */
    THREAD_STACK = 128 * 1024,       /* for HAKMEM's own threads, whose calls are not deep */
    THREAD_STACK_LARGE = 16 * THREAD_STACK, /* where static TLS takes more than THREAD_STACK */
    NANOSECONDS_PER_SECOND = 1000000000,
};

size_t os_page_size(void)
{
    static _Atomic size_t page_size; /* Order: relaxed; every thread finds the same */
    size_t size = atomic_load_explicit(&page_size, memory_order_relaxed);
    if (HAK_UNLIKELY(size == 0)) {
        BASE_KEEP_ERRNO;
        size = getauxval(AT_PAGESZ);
        if (!base_is_pow2(size))
            size = 4096;
        atomic_store_explicit(&page_size, size, memory_order_relaxed);
    }
    return size;
}

/* ---- Address space ---- */

static void *map_anywhere(size_t size, int protection)
{
    BASE_KEEP_ERRNO;
    void *address = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

/* Maps the size first: the kernel packs mappings, so the result is often aligned. Else it maps more, and trims both
 * ends. */
static void *map_aligned(size_t size, size_t alignment, int protection)
{
    char *address = map_anywhere(size, protection);
    if (address == NULL || ((uintptr_t)address & (alignment - 1)) == 0)
        return address;
    os_unmap(address, size);

    size_t room = alignment - os_page_size();
    if (size > SIZE_MAX - room || (address = map_anywhere(size + room, protection)) == NULL)
        return NULL;
    size_t before = base_align_up((uintptr_t)address, alignment) - (uintptr_t)address;
    if (before != 0)
        os_unmap(address, before);
    if (before != room)
        os_unmap(address + before + size, room - before);
    return address + before;
}

void *os_map(size_t size, size_t alignment)
{
    return map_aligned(size, alignment, PROT_READ | PROT_WRITE);
}

void os_unmap(void *address, size_t size)
{
    BASE_KEEP_ERRNO;
    /* At vm.max_map_count the kernel refuses to unmap the middle of a mapping. Then os_purge gives back its memory at
     * least. */
    if (munmap(address, size) != 0)
        (void)os_purge(address, size);
}

enum os_place os_map_at(void *address, size_t size)
{
    BASE_KEEP_ERRNO;
    void *got = mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    enum os_place place = got == address ? OS_PLACE_MAPPED : OS_PLACE_TAKEN;
    if (got == MAP_FAILED && errno != EEXIST)
        place = OS_PLACE_REFUSED;
    if (got != MAP_FAILED && got != address) /* before Linux 4.17 the address is only a hint */
        os_unmap(got, size);
    return place;
}

bool os_decommit(void *address, size_t size)
{
    BASE_KEEP_ERRNO;
    return munmap(address, size) == 0;
}

void *os_find_hole(size_t size, size_t alignment)
{
    size_t room = alignment - os_page_size();
    char *hole = size > SIZE_MAX - room ? NULL : map_anywhere(size + room, PROT_NONE);
    if (hole)
        os_unmap(hole, size + room);
    return hole ? (void *)base_align_up((uintptr_t)hole, alignment) : NULL;
}

void *os_remap(void *address, size_t old_size, size_t new_size, bool may_move)
{
    BASE_KEEP_ERRNO;
    void *moved = mremap(address, old_size, new_size, may_move ? MREMAP_MAYMOVE : 0);
    return moved == MAP_FAILED ? NULL : moved;
}

bool os_move(void *address, size_t size, void *place)
{
    BASE_KEEP_ERRNO;
    return mremap(address, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place;
}

/* ---- Physical memory ---- */

static _Atomic bool memory_is_locked; /* Order: relaxed; what the kernel answered once */

/* Purges locked memory before Linux 5.18: unlocks it, purges it and locks it again. MLOCK_ONFAULT locks only pages that
 * are touched later. */
static bool purge_unlocked(void *address, size_t size)
{
    if (munlock(address, size) != 0)
        return false;
    bool done = madvise(address, size, MADV_DONTNEED) == 0;
    (void)syscall(SYS_mlock2, address, size, MLOCK_ONFAULT);
    return done;
}

bool os_purge(void *address, size_t size)
{
    static _Atomic int advice = MADV_DONTNEED; /* Order: relaxed; a thread that misses a change asks the kernel again */
    BASE_KEEP_ERRNO;
    bool done = madvise(address, size, atomic_load_explicit(&advice, memory_order_relaxed)) == 0;
    if (HAK_UNLIKELY(!done && errno == EINVAL)) { /* locked memory */
        atomic_store_explicit(&memory_is_locked, true, memory_order_relaxed);
        volatile char *probe = address;
        char before = *probe;
        *probe = 1; /* emulators accept advice and do not follow it */
        done = madvise(address, size, MADV_DONTNEED_LOCKED) == 0 && *probe == 0 &&
               madvise(address, size, MADV_DONTNEED_LOCKED) == 0; /* the probe touched its page again */
        if (done)
            atomic_store_explicit(&advice, MADV_DONTNEED_LOCKED, memory_order_relaxed);
        else
            done = purge_unlocked(address, size);
        if (!done)
            *probe = before;
    }
    return done;
}

bool os_memory_is_locked(void)
{
    return atomic_load_explicit(&memory_is_locked, memory_order_relaxed);
}

bool os_populate(void *address, size_t size)
{
    static _Atomic bool unknown_to_kernel; /* Order: relaxed; as `advice` */
    if (atomic_load_explicit(&unknown_to_kernel, memory_order_relaxed))
        return false;
    BASE_KEEP_ERRNO;
    if (madvise(address, size, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno == EINVAL)
        atomic_store_explicit(&unknown_to_kernel, true, memory_order_relaxed);
    return false;
}

bool os_resident_pages(const void *address, size_t size, unsigned char *pages)
{
    BASE_KEEP_ERRNO;
    return mincore((void *)(uintptr_t)address, size, pages) == 0;
}

/* Whether guards close memory and zero it. Emulators accept advice that they do not follow. */
static bool guards_probe(void)
{
    size_t page = os_page_size();
    char *probe = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool found = false;

    if (probe == MAP_FAILED)
        return false;
    *probe = 1;
    if (madvise(probe, page, MADV_GUARD_INSTALL) == 0 && madvise(probe, page, MADV_GUARD_REMOVE) == 0)
        found = *(volatile char *)probe == 0;
    (void)munmap(probe, page);
    return found;
}

static bool has_guards(void)
{
    enum { GUARDS_UNKNOWN, GUARDS_LACK, GUARDS_WORK };
    static _Atomic int known; /* Order: relaxed; every thread finds the same */
    int found = atomic_load_explicit(&known, memory_order_relaxed);

    if (HAK_UNLIKELY(found == GUARDS_UNKNOWN))
        atomic_store_explicit(&known, found = guards_probe() ? GUARDS_WORK : GUARDS_LACK, memory_order_relaxed);
    return found == GUARDS_WORK;
}

bool os_guard(void *address, size_t size, bool on)
{
    BASE_KEEP_ERRNO;
    bool has = has_guards(),
         done = has && madvise(address, size, on ? MADV_GUARD_INSTALL : MADV_GUARD_REMOVE) == 0;

    if (HAK_UNLIKELY(has && on && !done))
        (void)madvise(address, size, MADV_GUARD_REMOVE); /* from the pages that the kernel came to */
    return done;
}

bool os_protect(void *address, size_t size, bool accessible)
{
    BASE_KEEP_ERRNO;
    return mprotect(address, size, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

/* The kernel joins neighbouring mappings of equal rights and flags. The neighbours are PROT_NONE or writable, so
 * PROT_READ keeps this one apart. */
bool os_seal(void *address, size_t size)
{
    BASE_KEEP_ERRNO;
    return mprotect(address, size, PROT_READ) == 0;
}

void os_advise_huge(void *address, size_t size, bool wanted)
{
    BASE_KEEP_ERRNO;
    (void)madvise(address, size, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static _Atomic bool names_are_over; /* the kernel has no names, or the start is over. Order: relaxed; a hint */

void os_name_no_more(void)
{
    atomic_store_explicit(&names_are_over, true, memory_order_relaxed);
}

void os_name(void *address, size_t size, const char *name)
{
    if (atomic_load_explicit(&names_are_over, memory_order_relaxed))
        return;
    BASE_KEEP_ERRNO;
    if (syscall(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, size, name) != 0 && errno == EINVAL)
        os_name_no_more();
}

/* ---- Limits and measures ---- */

size_t os_physical_memory(void)
{
    BASE_KEEP_ERRNO;
    struct sysinfo info;
    return sysinfo(&info) == 0 ? (size_t)info.totalram * info.mem_unit : SIZE_MAX;
}

size_t os_address_space_limit(void)
{
    BASE_KEEP_ERRNO;
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? (size_t)limit.rlim_cur : SIZE_MAX;
}

void os_memory_bounds(struct os_memory_bounds *bounds, bool pressure)
{
    procfs_memory_bounds("/proc/self/cgroup", "/sys/fs/cgroup", pressure ? "/proc/pressure/memory" : NULL, bounds);
}

size_t os_resident_memory(void)
{
    size_t pages = procfs_resident_pages("/proc/self/statm");

    return (pages ? pages : procfs_resident_pages("/proc/thread-self/statm")) * os_page_size(); /* procfs_open_own */
}

void os_page_faults(uint64_t *soft, uint64_t *hard)
{
    BASE_KEEP_ERRNO;
    struct rusage usage;
    bool known = getrusage(RUSAGE_SELF, &usage) == 0;
    *soft = known ? (uint64_t)usage.ru_minflt : 0;
    *hard = known ? (uint64_t)usage.ru_majflt : 0;
}

unsigned os_cpu_count(void)
{
    BASE_KEEP_ERRNO;
    unsigned long mask[CPU_MASK_WORDS];
    unsigned count = 0;
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (size_t i = 0; bytes > 0 && i < (size_t)bytes / sizeof mask[0]; i++)
        count += base_count_bits(mask[i]);
    return count == 0 ? 1 : count;
}

/* ---- Time and chance ---- */

static uint64_t read_clock(clockid_t clock)
{
    BASE_KEEP_ERRNO;
    struct timespec now = { 0, 0 };
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NANOSECONDS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t os_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t os_now_coarse(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

/* A word from the kernel; from what a process has where that is refused: early in boot, or under a filter. */
static uint64_t random_word(void)
{
    enum { RANDOM_NONBLOCK = 1 };
    BASE_KEEP_ERRNO;
    const void *gift = (const void *)getauxval(AT_RANDOM);
    uint64_t word = 0;

    if (syscall(SYS_getrandom, &word, sizeof word, RANDOM_NONBLOCK) != (long)sizeof word) {
        if (gift != NULL)
            memcpy(&word, gift, sizeof word);
        word = (word + os_now()) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    return word;
}

/* One half of the process's key. */
static uint64_t random_key(_Atomic uint64_t *half)
{
    uint64_t key = atomic_load_explicit(half, memory_order_relaxed), none = 0;

    if (HAK_LIKELY(key != 0))
        return key;
    key = random_word() | 1;
    return atomic_compare_exchange_strong_explicit(half, &none, key, memory_order_relaxed, memory_order_relaxed) ? key
                                                                                                                : none;
}

static void random_round(uint64_t v[4])
{
    v[0] += v[1], v[2] += v[3];
    v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0], v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
    v[0] = (v[0] << 32 | v[0] >> 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2], v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
    v[2] = (v[2] << 32 | v[2] >> 32);
}

uint64_t os_random(void)
{
    static _Atomic uint64_t keys[2], calls; /* Order: relaxed; a word stands alone */
    uint64_t one = random_key(&keys[0]), other = random_key(&keys[1]),
             call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    uint64_t v[4] = { one ^ UINT64_C(0x736f6d6570736575), other ^ UINT64_C(0x646f72616e646f6d),
                      one ^ UINT64_C(0x6c7967656e657261), other ^ UINT64_C(0x7465646279746573) ^ call };

    /* SipHash-1-3 of a count. */
    random_round(v);
    v[0] ^= call;
    v[2] ^= 0xff;
    for (unsigned i = 0; i < 3; i++)
        random_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- Environment and threads ---- */

char *const *os_environment(void)
{
    static char *const empty[] = { NULL };
    BASE_KEEP_ERRNO;
    if (getauxval(AT_SECURE) != 0)
        return empty;
    /* The dynamic loader may allocate before it sets the C library's environ. */
    return environ != NULL ? environ : procfs_own_environment("/proc/self/environ");
}

#if defined(__GLIBC__)
/* glibc writes the kernel's id of the thread that locks such a mutex into it, from the thread's descriptor: no system
 * call, which a sandbox may forbid. */
static uint32_t thread_id_of_library(void)
{
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    uint32_t id = 0;
    if (pthread_mutex_lock(&mutex) == 0) {
        id = (uint32_t)mutex.__data.__owner;
        pthread_mutex_unlock(&mutex);
    }
    return id;
}
#else
static uint32_t thread_id_of_library(void)
{
    return 0;
}
#endif

uint32_t os_thread_id(void)
{
    static _Atomic bool trusted; /* Order: relaxed; every thread may ask the kernel */
    BASE_KEEP_ERRNO;
    uint32_t id = thread_id_of_library();
    /* The kernel is asked until it has confirmed the library once. That is at the process's start, before any
     * sandbox. */
    if (!atomic_load_explicit(&trusted, memory_order_relaxed)) {
        uint32_t kernels = (uint32_t)syscall(SYS_gettid);
        if (id == kernels)
            atomic_store_explicit(&trusted, true, memory_order_relaxed);
        id = kernels;
    }
    return id;
}

void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    BASE_KEEP_ERRNO;
    struct timespec timeout = { (time_t)(timeout_ns / NANOSECONDS_PER_SECOND),
                                (long)(timeout_ns % NANOSECONDS_PER_SECOND) };
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

void os_futex_wake(_Atomic uint32_t *word, int count)
{
    BASE_KEEP_ERRNO;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* The starting thread keeps it on its stack for the new one. */
struct thread_start {
    void (*run)(void);
    const char *name;
    _Atomic uint32_t begun; /* Order: release by the new thread, acquire by the starting one: it has read the rest */
};

static void *thread_main(void *argument)
{
    struct thread_start *start = argument;
    void (*run)(void) = start->run;

    (void)syscall(SYS_prctl, PR_SET_NAME, start->name, 0, 0, 0);
    atomic_store_explicit(&start->begun, 1, memory_order_release);
    os_futex_wake(&start->begun, 1);
    run();
    return NULL;
}

bool os_thread_is_ours(void *(*run)(void *)) { return run == thread_main; }

bool os_thread_start(os_thread_create *create, void (*run)(void), const char *name)
{
    BASE_KEEP_ERRNO;
    int cancel_state;
    struct thread_start start = { .run = run, .name = name };
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;

    sigfillset(&all);
    /* of the thread, as pthread_sigmask, which is not in glibc's libc.so before 2.32 */
    sigprocmask(SIG_SETMASK, &all, &before);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool started = create(&thread, &attributes, thread_main, &start) == 0;
    if (!started) {
        pthread_attr_setstacksize(&attributes, THREAD_STACK_LARGE);
        started = create(&thread, &attributes, thread_main, &start) == 0;
    }
    pthread_attr_destroy(&attributes);
    if (started)
        do /* the thread has mostly not begun yet; asking first would make costs differ from run to run */
            os_futex_wait(&start.begun, 0, UINT64_MAX);
        while (atomic_load_explicit(&start.begun, memory_order_acquire) == 0);
    pthread_setcancelstate(cancel_state, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return started;
}
