/* What linux.c reads from /proc and /sys, by path, so that tests can give it files of their own. No call allocates, uses
 * stdio or changes errno. */
#ifndef HAK_OS_PROCFS_H
#define HAK_OS_PROCFS_H

#include "base/base.h"

/* The least memory limit between this process's cgroup and the root, in bytes; SIZE_MAX when there is none. `membership` is
 * /proc/self/cgroup, `mount` where the hierarchies are (v2 itself, or v1's memory/ below it). */
HAK_HIDDEN size_t procfs_cgroup_memory_limit(const char *membership, const char *mount);

/* The second number of /proc/self/statm; 0 if unknown. */
HAK_HIDDEN size_t procfs_resident_pages(const char *statm);

/* The HAKMEM_* variables in a file of the form of /proc/self/environ, as a NULL-terminated list. The list is static and
 * made by the first call; calls must not race. */
HAK_HIDDEN char *const *procfs_own_environment(const char *file);

#endif
