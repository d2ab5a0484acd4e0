/* What linux.c reads from /proc and /sys. Callers pass paths, so that tests can pass their own files. No call
 * allocates, uses stdio or changes errno. */
#ifndef HAK_OS_PROCFS_H
#define HAK_OS_PROCFS_H

#include "os/os.h"

/* os_memory_bounds(). `membership` is /proc/self/cgroup. `mount` is where the hierarchies are: v2 itself, or v1's
 * memory/ and v2's unified/ below it. `pressure` is the machine's memory pressure, for a cgroup without such a file;
 * NULL: do not read pressure. Calls must not race: they keep paths and texts in static memory, so that a thread with a
 * small stack may call it. */
HAK_HIDDEN void procfs_memory_bounds(const char *membership, const char *mount, const char *pressure,
                                     struct os_memory_bounds *bounds);

/* Opens a file of the process's folder in /proc for reading. Returns its descriptor; negative: it cannot be opened.
 * /proc/self is the first thread's. Once that thread has ended, before the others, it shows no memory and no
 * descriptors; /proc/thread-self (Linux 3.17) does. */
HAK_HIDDEN int procfs_open_own(const char *name);

/* The second number of a file of the form of /proc/self/statm; 0 if unknown. */
HAK_HIDDEN size_t procfs_resident_pages(const char *statm);
/* The second number minus the third: pages of no file. */
HAK_HIDDEN size_t procfs_anonymous_pages(const char *statm);

/* The HAKMEM_* variables in a file of the form of /proc/self/environ, as a NULL-terminated list. The list is static and
 * made by the first call; calls must not race. */
HAK_HIDDEN char *const *procfs_own_environment(const char *file);

#endif
