/*
 * The memory limits in force: a number that an option gives, or with `auto` what the process's cgroup has now.
 *
 * LIMIT_AUTO reads the cgroup, and the kernel's report of memory pressure, again about once a second. LIMIT_DEFAULT,
 * the soft limit where no option is set, reads the cgroup once: before the process holds more than LIMITS_LATE_BYTES,
 * because most processes are small and the files cost them more than their start, and before it enters a sandbox
 * (api/sandbox.c), which may forbid to open files.
 *
 * X1: `reading` is not 0 while a thread reads; no other thread reads then. A thread that vanishes by fork leaves it
 *     set, so it counts no longer than LIMITS_READING_MS.
 */
#ifndef HAK_SUPERSLAB_LIMITS_H
#define HAK_SUPERSLAB_LIMITS_H

#include "options/options.h"

#define LIMITS_LATE_BYTES (8 * HAK_MIB)
#define LIMITS_READ_MS 1000u
#define LIMITS_READING_MS 60000u
/* Of the cgroup's limit: what is not HAKMEM's needs the rest. */
#define LIMITS_SOFT_PERCENT 90u
/* Some task of the cgroup (or of the machine) waited for memory for this part of the last 10 seconds. */
#define LIMITS_STALL_PERCENT 10u

struct limits {
    _Atomic size_t cgroup_max, cgroup_high; /* bytes; SIZE_MAX: none, or never read */
    _Atomic bool pressed;                   /* memory is short: LIMITS_STALL_PERCENT */
    _Atomic uint32_t read_ms;               /* when they were read; 0: never */
    _Atomic uint32_t reading;               /* X1: since when, in ms */
};
HAK_DATA struct limits limits;

/* Bytes; 0: none. Any thread, no lock. */
HAK_HIDDEN size_t limits_hard(void);
HAK_HIDDEN size_t limits_soft(void);

/* No limit is in force, as in most processes. */
HAK_INLINE bool limits_are_none(void)
{
    return hak_options.memory_limit == 0 && (hak_options.memory_limit_soft == 0 ||
           (hak_options.memory_limit_soft == LIMIT_DEFAULT &&
            atomic_load_explicit(&limits.cgroup_max, memory_order_relaxed) == SIZE_MAX &&
            atomic_load_explicit(&limits.cgroup_high, memory_order_relaxed) == SIZE_MAX));
}

/* True while the system is short of memory and the soft limit is `auto`: nothing that is free may wait. */
HAK_HIDDEN bool limits_pressed(void);

/* Whether LIMIT_DEFAULT is in force and was not read yet. */
HAK_INLINE bool limits_are_unread(void)
{
    return HAK_UNLIKELY(atomic_load_explicit(&limits.read_ms, memory_order_relaxed) == 0) &&
           hak_options.memory_limit_soft == LIMIT_DEFAULT;
}

/* Whether it is time for limits_read() in a process that holds so many bytes. Any thread, any lock. */
HAK_HIDDEN bool limits_are_due_slow(void);
HAK_INLINE bool limits_are_due(size_t held)
{
    return (HAK_UNLIKELY(hak_options.memory_limit == LIMIT_AUTO || hak_options.memory_limit_soft == LIMIT_AUTO) &&
            limits_are_due_slow()) ||
           (limits_are_unread() && held > LIMITS_LATE_BYTES);
}

/* As the process starts: reads what `auto` stands for, and LIMIT_DEFAULT where nothing would tell of a sandbox. */
HAK_HIDDEN void limits_begin(void);

/* True where limits_before_sandbox() will be called in time; only the shared library has it (limits_shared.c). */
extern bool limits_await_sandbox __attribute__((weak, visibility("hidden")));

/* The process is about to lose rights. Any thread, under no lock. */
HAK_HIDDEN void limits_before_sandbox(void);

/* Reads files of /proc and /sys by plain system calls. Any thread, under no lock of rank LOCK_RANK_POOL or above. */
HAK_HIDDEN void limits_read(void);

#endif
