/* Calls of the C library that the runtime answers: what the machine is, the time, chance, sleeping, and changes of
 * mappings. For threads that are not the runtime's, and before coherence_begin, the calls do what they always do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "coherence.h"
#include "system.h"

enum { NANOSECONDS = 1000000000, START_SECONDS = 1000 };

static long with_errno(long result)
{
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* ---- The machine ---- */

/* The program's second argument: a library may ask before the C library has read the environment. */
static unsigned read_cores(void)
{
    char text[256] = "";
    const char *at = text;
    unsigned number = 0;
    long file = system_call(SYS_openat, AT_FDCWD, (long)(uintptr_t) "/proc/self/cmdline", O_RDONLY, 0, 0, 0);

    system_call(SYS_read, file, (long)(uintptr_t)text, sizeof text - 1, 0, 0, 0);
    system_call(SYS_close, file, 0, 0, 0, 0, 0);
    for (unsigned i = 0; i < 2 && at < text + sizeof text - 1; i++)
        while (at < text + sizeof text - 1 && *at++ != '\0')
            ;
    while (*at >= '0' && *at <= '9' && number <= CORES_MOST)
        number = number * 10 + (unsigned)(*at++ - '0');
    return number >= 1 && number <= CORES_MOST ? number : 1;
}

static unsigned shown_cores(void)
{
    static unsigned known;

    if (known == 0)
        known = read_cores();
    return known;
}

static long affinity(size_t size, void *mask)
{
    size_t bytes = ((size_t)shown_cores() + 63) / 64 * 8;

    if (size < bytes)
        return -EINVAL;
    memset(mask, 0, size);
    for (unsigned core = 0; core < shown_cores(); core++)
        ((unsigned char *)mask)[core / 8] |= (unsigned char)(1 << core % 8);
    return (long)bytes;
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *mask)
{
    (void)process;
    return with_errno(affinity(size, mask)) < 0 ? -1 : 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *mask)
{
    (void)thread;
    return affinity(size, mask) < 0 ? EINVAL : 0;
}

static long which_cpu(unsigned *cpu, unsigned *node)
{
    unsigned core = current ? coherence_core() : 0;

    core = core < CORES_MOST ? core : core % shown_cores();
    if (cpu)
        *cpu = core;
    if (node)
        *node = core * NODES / shown_cores();
    return 0;
}

int getcpu(unsigned *cpu, unsigned *node) { return (int)which_cpu(cpu, node); }

int sched_getcpu(void)
{
    unsigned cpu;

    which_cpu(&cpu, NULL);
    return (int)cpu;
}

int get_nprocs(void) { return (int)shown_cores(); }
int get_nprocs_conf(void) { return (int)shown_cores(); }

long sysconf(int name)
{
    static long (*real)(int);

    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return (long)shown_cores();
    if (name == _SC_PAGESIZE)
        return 1L << PAGE_SHIFT;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

int sysinfo(struct sysinfo *info)
{
    long result = system_call(SYS_sysinfo, (long)(uintptr_t)info, 0, 0, 0, 0, 0);

    info->totalram = (UINT64_C(64) << 30) / info->mem_unit;
    return (int)with_errno(result);
}

/* The folders of two nodes, which an allocator may count. */
int access(const char *path, int mode)
{
    static const char nodes[] = "/sys/devices/system/node/node";

    if (strncmp(path, nodes, sizeof nodes - 1) == 0) {
        const char *number = path + sizeof nodes - 1;
        if (number[0] >= '0' && number[0] < '0' + NODES && number[1] == '\0')
            return 0;
        errno = ENOENT;
        return -1;
    }
    return (int)with_errno(system_call(SYS_access, (long)(uintptr_t)path, mode, 0, 0, 0, 0));
}

/* ---- Time and chance ---- */

static void now(struct timespec *time)
{
    uint64_t nanoseconds = current ? coherence_now() / CYCLES_PER_NANOSECOND : 0;

    time->tv_sec = (time_t)(START_SECONDS + nanoseconds / NANOSECONDS);
    time->tv_nsec = (long)(nanoseconds % NANOSECONDS);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    now(time);
    return 0;
}

static uint64_t duration(const struct timespec *time)
{
    return ((uint64_t)time->tv_sec * NANOSECONDS + (uint64_t)time->tv_nsec) * CYCLES_PER_NANOSECOND;
}

static void fill_by_chance(void *buffer, size_t size)
{
    unsigned char *bytes = buffer;

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(coherence_random() >> 32);
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    (void)flags;
    fill_by_chance(buffer, size);
    return (ssize_t)size;
}

int getentropy(void *buffer, size_t size)
{
    fill_by_chance(buffer, size);
    return 0;
}

/* ---- Waiting ---- */

int sched_yield(void)
{
    if (!current)
        return (int)system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    schedule_spend(COST_YIELD);
    schedule_point();
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    (void)clock, (void)flags, (void)left;
    if (!current)
        return (int)-system_call(SYS_clock_nanosleep, clock, flags, (long)(uintptr_t)time, (long)(uintptr_t)left, 0, 0);
    (void)schedule_block(time, coherence_now() + duration(time));
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    return (int)with_errno(-clock_nanosleep(CLOCK_MONOTONIC, 0, time, left));
}

int usleep(useconds_t microseconds)
{
    struct timespec time = { microseconds / 1000000, (long)(microseconds % 1000000) * 1000 };

    return nanosleep(&time, NULL);
}

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    operation &= ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    schedule_spend(COST_FUTEX);
    schedule_point();
    if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET)
        return (long)schedule_wake(word, value);
    if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET)
        return -ENOSYS;
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value)
        return -EAGAIN;
    model_wait();
    return schedule_block(word, timeout ? coherence_now() + duration(timeout) : UINT64_MAX) ? 0 : -ETIMEDOUT;
}

static bool takes_the_mutex(pthread_mutex_t *mutex, const void *code)
{
    static int (*real)(pthread_mutex_t *);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    if (current)
        model_access((uintptr_t)mutex, sizeof(int), ACCESS_UPDATE, code);
    if (real(mutex) != 0)
        return false;
    if (current)
        model_lock_taken((uintptr_t)mutex);
    return true;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return takes_the_mutex(mutex, __builtin_return_address(0)) ? 0 : EBUSY;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    while (!takes_the_mutex(mutex, __builtin_return_address(0))) {
        if (!current) {
            system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
            continue;
        }
        model_wait();
        schedule_spend(COST_FUTEX);
        (void)schedule_block(mutex, UINT64_MAX);
    }
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (current) {
        model_access((uintptr_t)mutex, sizeof(int), ACCESS_UPDATE, __builtin_return_address(0));
        model_lock_left((uintptr_t)mutex);
    }
    real(mutex);
    if (current && schedule_wake(mutex, 1) > 0)
        schedule_spend(COST_FUTEX);
    return 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return schedule_create(thread, attributes, run, argument);
}

/* ---- Mappings ---- */

static void *mapped(long result) { return (void *)with_errno(result); }

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    long result = system_call(SYS_mmap, (long)(uintptr_t)address, (long)size, protection, flags, file, offset);

    model_mapping(false);
    if (current && !(result < 0 && result > -4096))
        model_forget((uintptr_t)result, size);
    return mapped(result);
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *address, size_t size)
{
    model_mapping(true);
    if (current)
        model_forget((uintptr_t)address, size);
    return (int)with_errno(system_call(SYS_munmap, (long)(uintptr_t)address, (long)size, 0, 0, 0, 0));
}

int mprotect(void *address, size_t size, int protection)
{
    model_mapping(true);
    return (int)with_errno(system_call(SYS_mprotect, (long)(uintptr_t)address, (long)size, protection, 0, 0, 0));
}

int madvise(void *address, size_t size, int advice)
{
    enum { POPULATE_WRITE = 23, DONTNEED_LOCKED = 24 };
    bool takes = advice == MADV_DONTNEED || advice == MADV_FREE || advice == DONTNEED_LOCKED;

    if (current) {
        model_mapping(takes);
        if (takes)
            model_forget((uintptr_t)address, size);
        if (advice == POPULATE_WRITE)
            model_populate((uintptr_t)address, size);
    }
    return (int)with_errno(system_call(SYS_madvise, (long)(uintptr_t)address, (long)size, advice, 0, 0, 0));
}

void *mremap(void *address, size_t size, size_t wanted, int flags, ...)
{
    va_list more;
    long place, result;

    va_start(more, flags);
    place = va_arg(more, long);
    va_end(more);
    model_mapping(true);
    result = system_call(SYS_mremap, (long)(uintptr_t)address, (long)size, (long)wanted, flags, place, 0);
    if (current && result != (long)(uintptr_t)address)
        model_forget((uintptr_t)address, size);
    return mapped(result);
}

/* ---- By number ---- */

long syscall(long number, ...)
{
    va_list more;
    long a[6];

    va_start(more, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_sched_getaffinity)
        return with_errno(affinity((size_t)a[1], (void *)a[2]));
    if (number == SYS_getcpu)
        return which_cpu((unsigned *)a[0], (unsigned *)a[1]);
    if (number == SYS_getrandom)
        return getrandom((void *)a[0], (size_t)a[1], 0);
    if (number == SYS_futex && current)
        return with_errno(futex((uint32_t *)a[0], (int)a[1], (uint32_t)a[2], (const struct timespec *)a[3]));
    if (number == SYS_sched_yield)
        return sched_yield();
    return with_errno(system_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

/* ---- Copies, which the compiler does not announce ---- */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static void range(const void *address, size_t size, enum access access, const void *code)
{
    bool by_runtime = (const char *)code >= __ehdr_start && (const char *)code < etext;

    if (current && size > 0 && !by_runtime)
        model_access((uintptr_t)address, size, access, code);
}

void *memset(void *to, int byte, size_t size)
{
    void *at = to;

    range(to, size, ACCESS_WRITE, __builtin_return_address(0));
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(byte) : "memory");
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    void *at = to;

    range(from, size, ACCESS_READ, __builtin_return_address(0));
    range(to, size, ACCESS_WRITE, __builtin_return_address(0));
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size) : : "memory");
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    if ((uintptr_t)to - (uintptr_t)from >= size)
        return memcpy(to, from, size);
    range(from, size, ACCESS_READ, __builtin_return_address(0));
    range(to, size, ACCESS_WRITE, __builtin_return_address(0));
    void *at = (char *)to + size - 1;
    const void *of = (const char *)from + size - 1;
    __asm__ volatile("std; rep movsb; cld" : "+D"(at), "+S"(of), "+c"(size) : : "memory");
    return to;
}
