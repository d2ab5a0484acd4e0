/*
 * The contract between HAKMEM and the kernel. os/ is the only folder with platform code: linux.c implements this
 * header, and fake.c implements it again for tests, with a clock that stands still and calls that fail on demand.
 *
 * Common to all: addresses and sizes are multiples of the page size; no function allocates, blocks on a lock of
 * HAKMEM's, or changes errno; every function is thread-safe. A `false` or NULL means that the kernel said no and
 * that nothing changed.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include <pthread.h>

#include "base/base.h"

/* Bytes of a page, asked of the kernel once, at run time (4, 16 or 64 KiB). */
HAK_HIDDEN size_t os_page_size(void);

/* ---- Address space ---- */

/* Readable, writable, zeroed memory at an address of the kernel's choosing, at a multiple of `alignment`. */
HAK_HIDDEN void *os_map(size_t size, size_t alignment);
HAK_HIDDEN void os_unmap(void *address, size_t size);

/* The same at a fixed place, only if it is wholly free there (MAP_FIXED_NOREPLACE). TAKEN: something else is mapped in it, or
 * the kernel does not let a process have that place. REFUSED: no memory, or a limit forbids it. */
enum os_place { OS_PLACE_REFUSED = 0, OS_PLACE_TAKEN, OS_PLACE_MAPPED };
HAK_HIDDEN enum os_place os_map_at(void *address, size_t size);

/* Unmaps a part of what os_map_at mapped. False: the kernel refused, for it would make one mapping too many (vm.max_map_count). */
HAK_HIDDEN bool os_decommit(void *address, size_t size);

/* An address, a multiple of `alignment`, from which on `size` bytes were free at the moment of the call; nothing stays mapped.
 * NULL: there is no such hole, or a limit does not let the process see it. */
HAK_HIDDEN void *os_find_hole(size_t size, size_t alignment);

/* Moves or resizes a mapping made by os_map (mremap); the result keeps the contents of the common part, and pages beyond it read as
 * zero. With may_move false it succeeds only in place. NULL: the old mapping is unchanged. */
HAK_HIDDEN void *os_remap(void *address, size_t old_size, size_t new_size, bool may_move);

/* ---- Physical memory ---- */

/* Gives the pages back to the system at once (MADV_DONTNEED), those that mlock or mlockall locked too; they stay mapped and read as
 * zero afterwards. */
HAK_HIDDEN bool os_purge(void *address, size_t size);

/* Whether os_purge met locked memory: mlockall may have put memory behind pages that nobody touched. */
HAK_HIDDEN bool os_memory_is_locked(void);

/* Faults all pages in with one call (MADV_POPULATE_WRITE); false where the kernel has none (before 5.14). */
HAK_HIDDEN bool os_populate(void *address, size_t size);

/* Asks for (true) or refuses (false) transparent huge pages for the range; failure is harmless. */
HAK_HIDDEN void os_advise_huge(void *address, size_t size, bool wanted);

/* Names the range in /proc/PID/maps where the kernel can (PR_SET_VMA_ANON_NAME). `name` is a literal. */
HAK_HIDDEN void os_name(void *address, size_t size, const char *name);
/* The process's start is over: os_name does nothing from here on, because the program may forbid the system call (seccomp). */
HAK_HIDDEN void os_name_no_more(void);

/* ---- Limits and measures (bytes; SIZE_MAX = unlimited) ---- */

HAK_HIDDEN size_t os_physical_memory(void);
HAK_HIDDEN size_t os_address_space_limit(void);        /* RLIMIT_AS */
HAK_HIDDEN size_t os_resident_memory(void);            /* RSS of this process from /proc/self/statm; 0 if unknown */
/* What the system allows this process's cgroup, v1 or v2: the least between it and the root; and with `pressure` the part of the last 10
 * seconds that some task of it, or of the machine where the cgroup does not tell, waited for memory. Calls must not race. */
struct os_memory_bounds {
    size_t max;             /* memory.max; SIZE_MAX: none */
    size_t high;            /* memory.high, which v1 has not; SIZE_MAX: none */
    unsigned stall_percent; /* 0 without `pressure`, and where the kernel has no pressure stall information */
};
HAK_HIDDEN void os_memory_bounds(struct os_memory_bounds *bounds, bool pressure);
/* Page faults of this process so far: soft ones found their page in memory, hard ones waited for a disk. */
HAK_HIDDEN void os_page_faults(uint64_t *soft, uint64_t *hard);
HAK_HIDDEN unsigned os_cpu_count(void);                /* of the affinity mask, at least 1 */

/* ---- Time and chance ---- */

/* Monotonic nanoseconds; os_now_coarse is a clock of some milliseconds that costs a few cycles. */
HAK_HIDDEN uint64_t os_now(void);
HAK_HIDDEN uint64_t os_now_coarse(void);
HAK_HIDDEN uint64_t os_random(void);

/* ---- Environment and threads ---- */

/* environ of the process, NULL-terminated, or an empty list when privileged. */
HAK_HIDDEN char *const *os_environment(void);

/* Kernel thread id of the caller. With glibc only the process's first call enters the kernel. */
HAK_HIDDEN uint32_t os_thread_id(void);

/* A number other than 0 that no other live thread has, a multiple of 8; the same in the child of a fork. No system call, safe in a
 * signal handler: the thread pointer, which the ABI keeps at a fixed place. */
HAK_INLINE uintptr_t os_thread_token(void)
{
    uintptr_t token;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(token));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(token));
#else
    token = (uintptr_t)__builtin_thread_pointer();
#endif
    return token;
}

/* Sleeps until *word differs from `expected`, a wake, or `timeout_ns` (UINT64_MAX: no limit); may wake without cause. */
HAK_HIDDEN void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
HAK_HIDDEN void os_futex_wake(_Atomic uint32_t *word, int count);

/* Starts a detached thread with all signals blocked, named `name` (at most 15 characters), by `create`, which is pthread_create or stands
 * in front of it. It may take locks of the C library's and allocate: never within malloc or free. */
typedef int os_thread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
HAK_HIDDEN bool os_thread_start(os_thread_create *create, void (*run)(void), const char *name);

#endif
