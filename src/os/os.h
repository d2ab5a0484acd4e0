/*
 * The contract between HAKMEM and the kernel. linux.c implements it. tests/support/os/fake.c implements it again for
 * tests, with a clock that stands still and calls that fail on demand.
 *
 * Common to all, unless a comment says otherwise: addresses and sizes are multiples of the page size; any thread may
 * call; no function allocates, waits for a lock or changes errno. `false` and NULL mean that the kernel refused and
 * nothing changed.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include <pthread.h>

#include "base/base.h"

/* Bytes of a page: 4, 16 or 64 KiB. The first call asks the kernel. */
HAK_HIDDEN size_t os_page_size(void);

/* ---- Address space ---- */

/* Readable, writable, zeroed memory at an address of the kernel's choosing, at a multiple of `alignment`. */
HAK_HIDDEN void *os_map(size_t size, size_t alignment);
HAK_HIDDEN void os_unmap(void *address, size_t size);

/* As os_map, at a fixed place that must be wholly free (MAP_FIXED_NOREPLACE). TAKEN: something is mapped in it, or the
 * kernel does not let a process have that place. REFUSED: no memory, or a limit forbids it. */
enum os_place { OS_PLACE_REFUSED = 0, OS_PLACE_TAKEN, OS_PLACE_MAPPED };
HAK_HIDDEN enum os_place os_map_at(void *address, size_t size);

/* Unmaps a part of a mapping of os_map_at. False: the kernel refused, because the process would have one mapping too
 * many (vm.max_map_count). */
HAK_HIDDEN bool os_decommit(void *address, size_t size);

/* An address, a multiple of `alignment`, at which `size` bytes were free at the moment of the call. Maps nothing that
 * stays. NULL: there is no such hole, or a limit keeps the process from finding it. */
HAK_HIDDEN void *os_find_hole(size_t size, size_t alignment);

/* Moves or resizes a mapping made by os_map or os_map_at (mremap); the result keeps the contents of the common part,
 * and pages beyond it read as zero. With may_move false it succeeds only in place. NULL: the old mapping is
 * unchanged. */
HAK_HIDDEN void *os_remap(void *address, size_t old_size, size_t new_size, bool may_move);

/* Moves a mapping made by os_map or os_map_at with its contents to a place that os_map_at mapped and nobody uses.
 * False: the kernel refused, and both are unchanged. */
HAK_HIDDEN bool os_move(void *address, size_t size, void *place);

/* ---- Physical memory ---- */

/* Gives the pages back to the system at once (MADV_DONTNEED), also pages that mlock or mlockall locked. They stay
 * mapped and read as zero afterwards. */
HAK_HIDDEN bool os_purge(void *address, size_t size);

/* Whether os_purge has met locked memory. If so, mlockall may have put memory behind pages that nobody touched. */
HAK_HIDDEN bool os_memory_is_locked(void);

/* Faults in all pages with one call (MADV_POPULATE_WRITE). False: the kernel lacks the call (before 5.14) or
 * refused. */
HAK_HIDDEN bool os_populate(void *address, size_t size);

/* Tells for each page of the range in the lowest bit of pages[] whether it is resident. False: unknown. */
HAK_HIDDEN bool os_resident_pages(const void *address, size_t size, unsigned char *pages);

/* Makes the range inaccessible, or readable and writable again. False: the kernel refused (vm.max_map_count), and
 * nothing changed. */
HAK_HIDDEN bool os_protect(void *address, size_t size, bool accessible);

/* Makes the range inaccessible and gives its pages back, in one call that splits no mapping. With `on` false makes it
 * accessible again, and it reads as zero. False: the kernel cannot (before 6.13, or locked memory). The range may then
 * be accessed as before, and some of its pages may be gone. */
HAK_HIDDEN bool os_guard(void *address, size_t size, bool on);

/* Makes the range read-only for good. False: the kernel refused. */
HAK_HIDDEN bool os_seal(void *address, size_t size);

/* Asks for (true) or refuses (false) transparent huge pages for the range; failure is harmless. */
HAK_HIDDEN void os_advise_huge(void *address, size_t size, bool wanted);

/* Names the range in /proc/PID/maps where the kernel can (PR_SET_VMA_ANON_NAME). `name` is a literal. */
HAK_HIDDEN void os_name(void *address, size_t size, const char *name);
/* Call at the end of the process's start: os_name does nothing from here on, because the program may forbid the system
 * call (seccomp). */
HAK_HIDDEN void os_name_no_more(void);

/* ---- Limits and measures (bytes; SIZE_MAX = unlimited) ---- */

HAK_HIDDEN size_t os_physical_memory(void);
HAK_HIDDEN size_t os_address_space_limit(void);        /* RLIMIT_AS */
HAK_HIDDEN size_t os_resident_memory(void);            /* RSS of this process from /proc/self/statm; 0 if unknown */
/* The memory limits of this process's cgroup (v1 or v2): the least from the cgroup up to the root. With `pressure` also
 * the share of the last 10 seconds in which a task of the cgroup waited for memory, or a task of the machine if the
 * cgroup does not tell. Calls must not race. */
struct os_memory_bounds {
    size_t max;             /* memory.max; SIZE_MAX: none */
    size_t high;            /* memory.high, which v1 lacks; SIZE_MAX: none */
    unsigned stall_percent; /* 0 without `pressure`, and where the kernel has no pressure stall information */
};
HAK_HIDDEN void os_memory_bounds(struct os_memory_bounds *bounds, bool pressure);
/* Page faults of this process so far. A soft fault finds its page in memory; a hard one waits for a disk. */
HAK_HIDDEN void os_page_faults(uint64_t *soft, uint64_t *hard);
HAK_HIDDEN unsigned os_cpu_count(void);                /* of the affinity mask, at least 1 */

/* ---- Time and chance ---- */

/* Monotonic nanoseconds. os_now_coarse is exact to some milliseconds and costs a few cycles. */
HAK_HIDDEN uint64_t os_now(void);
HAK_HIDDEN uint64_t os_now_coarse(void);
/* A word that nobody can tell from others before it. The kernel is asked once in a process. */
HAK_HIDDEN uint64_t os_random(void);

/* ---- Environment and threads ---- */

/* The process's environ, NULL-terminated; an empty list if the process is privileged. */
HAK_HIDDEN char *const *os_environment(void);

/* The caller's thread id in the kernel. With glibc only the process's first call enters the kernel. */
HAK_HIDDEN uint32_t os_thread_id(void);

/* The thread's token: a multiple of 8, not 0, that no other live thread has. It stays the same in the child of a fork.
 * It is the thread pointer, which the ABI keeps at a fixed place: reading it needs no system call and is safe in a
 * signal handler. */
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

/* Sleeps until a wake or for `timeout_ns` (UINT64_MAX: no limit); not at all if *word differs from `expected`. May wake
 * without cause. */
HAK_HIDDEN void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
HAK_HIDDEN void os_futex_wake(_Atomic uint32_t *word, int count);

/* Starts a detached thread with all signals blocked, named `name` (at most 15 characters). `create` is pthread_create
 * or an interposed one. The call returns when the thread has its name and is about to call `run`, because a sandbox
 * that the program enters next may forbid what a thread does as it begins. The call may take locks of the C library and
 * allocate: never use it within malloc or free. */
typedef int os_thread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
HAK_HIDDEN bool os_thread_start(os_thread_create *create, void (*run)(void), const char *name);
/* Whether a thread that runs this is one of os_thread_start's. For an interposed pthread_create. */
HAK_HIDDEN bool os_thread_is_ours(void *(*run)(void *));

#endif
