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

#include "base/base.h"

/* Bytes of a page, asked of the kernel once, at run time (4, 16 or 64 KiB). */
HAK_HIDDEN size_t os_page_size(void);

/* ---- Address space ---- */

/* Address space without memory: no access, not counted against overcommit, not in core dumps. `alignment` is a power of two >= the
 * page size. NULL when there is none. */
HAK_HIDDEN void *os_reserve(size_t size, size_t alignment);

/* The same at a fixed place, only if it is wholly free there (MAP_FIXED_NOREPLACE). */
HAK_HIDDEN bool os_reserve_at(void *address, size_t size);

/* Readable, writable, zeroed memory at an address of the kernel's choosing, at a multiple of `alignment`. */
HAK_HIDDEN void *os_map(size_t size, size_t alignment);
HAK_HIDDEN void os_unmap(void *address, size_t size);

/* Makes reserved pages readable and writable; they read as zero. Counted against overcommit from here on. */
HAK_HIDDEN bool os_commit(void *address, size_t size);

/* Undoes os_commit: the pages' memory goes back, they read as zero, cannot be written, and are not counted against overcommit. */
HAK_HIDDEN bool os_decommit(void *address, size_t size);

/* Moves or resizes a mapping made by os_map (mremap); the result keeps the contents of the common part, and pages beyond it read as
 * zero. With may_move false it succeeds only in place. NULL: the old mapping is unchanged. */
HAK_HIDDEN void *os_remap(void *address, size_t old_size, size_t new_size, bool may_move);

/* ---- Physical memory ---- */

/* Gives the pages back to the system at once (MADV_DONTNEED); they stay committed and read as zero afterwards. */
HAK_HIDDEN bool os_purge(void *address, size_t size);

/* Faults all pages in with one call (MADV_POPULATE_WRITE); false where the kernel has none (before 5.14). */
HAK_HIDDEN bool os_populate(void *address, size_t size);

/* Asks for (true) or refuses (false) transparent huge pages for the range; failure is harmless. */
HAK_HIDDEN void os_advise_huge(void *address, size_t size, bool wanted);

/* Names the range in /proc/PID/maps where the kernel can (PR_SET_VMA_ANON_NAME). `name` is a literal. */
HAK_HIDDEN void os_name(void *address, size_t size, const char *name);

/* ---- Limits and measures (bytes; SIZE_MAX = unlimited) ---- */

HAK_HIDDEN size_t os_physical_memory(void);
HAK_HIDDEN size_t os_address_space_limit(void);        /* RLIMIT_AS */
HAK_HIDDEN size_t os_cgroup_memory_limit(void);        /* memory.max of this process's cgroup (v2, else v1) */
HAK_HIDDEN size_t os_resident_memory(void);            /* RSS of this process from /proc/self/statm; 0 if unknown */
/* Page faults of this process so far: soft ones found their page in memory, hard ones waited for a disk. */
HAK_HIDDEN void os_page_faults(uint64_t *soft, uint64_t *hard);
HAK_HIDDEN unsigned os_cpu_count(void);                /* of the affinity mask, at least 1 */

/* ---- Time and chance ---- */

/* Monotonic nanoseconds; os_now_coarse is a clock of some milliseconds that costs a few cycles. */
HAK_HIDDEN uint64_t os_now(void);
HAK_HIDDEN uint64_t os_now_coarse(void);
HAK_HIDDEN uint64_t os_random(void);

/* ---- Environment and threads ---- */

/* The variable's value, or NULL when unset or the process is privileged (secure_getenv). */
HAK_HIDDEN const char *os_getenv(const char *name);
/* environ of the process, NULL-terminated, or an empty list when privileged. */
HAK_HIDDEN char *const *os_environment(void);

/* Kernel thread id of the caller. */
HAK_HIDDEN uint32_t os_thread_id(void);

/* Lets another thread run. */
HAK_HIDDEN void os_yield(void);

/* Sleeps until *word differs from `expected`, a wake, or `timeout_ns` (UINT64_MAX: no limit); may wake without cause. */
HAK_HIDDEN void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
HAK_HIDDEN void os_futex_wake(_Atomic uint32_t *word, int count);

/* Starts a detached thread with all signals blocked, named `name` (at most 15 characters). */
HAK_HIDDEN bool os_thread_start(void (*run)(void), const char *name);

#endif
