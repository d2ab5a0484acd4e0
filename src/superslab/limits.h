/*
 * The memory limits in force. Each is a number that an option gives, or with `auto` the limit of the process's cgroup.
 *
 * With LIMIT_AUTO, the files of the cgroup and of memory pressure are read about once a second. With LIMIT_DEFAULT (no
 * option sets the soft limit), the files of the cgroup are read once: when HAKMEM holds more than LIMITS_LATE_BYTES
 * (most processes stay smaller, and the files would cost them more than their start), or before the process enters a
 * sandbox (api/sandbox.c), which may forbid opening files.
 *
 * X1: only one thread reads at a time: the one that set `reading`. A thread that vanishes by fork leaves `reading` set,
 *     so it counts for LIMITS_READING_MS at most.
 */
#ifndef HAK_SUPERSLAB_LIMITS_H
#define HAK_SUPERSLAB_LIMITS_H

#include "options/options.h"

#define LIMITS_LATE_BYTES (8 * HAK_MIB)
#define LIMITS_READ_MS 1000u
#define LIMITS_READING_MS 60000u
/* The soft limit in percent of the cgroup's limit. Memory that is not HAKMEM's needs the rest. */
#define LIMITS_SOFT_PERCENT 90u
/* Memory is short if a task of the cgroup (or of the machine) waited for memory in this part of the last 10 seconds. */
#define LIMITS_STALL_PERCENT 10u

struct limits {
    _Atomic size_t cgroup_max, cgroup_high; /* bytes; SIZE_MAX: none, or never read. Order: relaxed; a hint */
    _Atomic bool pressed;                   /* memory is short: LIMITS_STALL_PERCENT. Order: relaxed; a hint */
    _Atomic uint32_t read_ms;               /* when the limits were read last; 0: never. Order: relaxed; a hint */
    _Atomic uint32_t reading; /* since when a thread reads, in ms; 0: none (X1). Order: acquire, release, as a lock */
};
HAK_DATA struct limits limits;

/* The limits in bytes; 0: none. Any thread, no lock. */
HAK_HIDDEN size_t limits_hard(void);
HAK_HIDDEN size_t limits_soft(void);

/* Whether no limit is in force, as in most processes. */
HAK_INLINE bool limits_are_none(void)
{
    return hak_options.memory_limit == 0 && (hak_options.memory_limit_soft == 0 ||
           (hak_options.memory_limit_soft == LIMIT_DEFAULT &&
            atomic_load_explicit(&limits.cgroup_max, memory_order_relaxed) == SIZE_MAX &&
            atomic_load_explicit(&limits.cgroup_high, memory_order_relaxed) == SIZE_MAX));
}

/* Whether the soft limit is `auto` and the system is short of memory: no free memory may wait then. */
HAK_HIDDEN bool limits_pressed(void);

/* Whether LIMIT_DEFAULT is in force and the cgroup's files were not read yet. */
HAK_INLINE bool limits_are_unread(void)
{
    return HAK_UNLIKELY(atomic_load_explicit(&limits.read_ms, memory_order_relaxed) == 0) &&
           hak_options.memory_limit_soft == LIMIT_DEFAULT;
}

/* Whether it is time for limits_read() in a process that holds `held` bytes. Any thread, under any lock. */
HAK_HIDDEN bool limits_are_due_slow(void);
HAK_INLINE bool limits_are_due(size_t held)
{
    return (HAK_UNLIKELY(hak_options.memory_limit == LIMIT_AUTO || hak_options.memory_limit_soft == LIMIT_AUTO) &&
            limits_are_due_slow()) ||
           (limits_are_unread() && held > LIMITS_LATE_BYTES);
}

/* As the process starts: reads the limits for `auto`, and for LIMIT_DEFAULT where limits_await_sandbox is false. */
HAK_HIDDEN void limits_begin(void);

/* Whether limits_before_sandbox() will be called. True in the shared library alone (limits_shared.c). */
HAK_DATA bool limits_await_sandbox;

/* Call when the process is about to enter a sandbox. Any thread, under no lock. */
HAK_HIDDEN void limits_before_sandbox(void);

/* Reads files of /proc and /sys by plain system calls. Any thread, under no lock of rank LOCK_RANK_POOL or above. */
HAK_HIDDEN void limits_read(void);

#endif
