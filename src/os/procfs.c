/* Small files of /proc and /sys, read with plain system calls into static buffers. */
#define _GNU_SOURCE
#include "os/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/errno.h"
#include "base/format.h"

enum {
    FILE_CAPACITY = 4096, /* of /proc/self/cgroup: a dozen lines at most */
    PATH_CAPACITY = 1024, /* cgroup paths that are longer are passed over */
    NUMBER_CAPACITY = 64,
    PATH_OWN = 64, /* of a file in the process's folder */
    ENVIRONMENT_BYTES = 16384, /* of all HAKMEM_* variables together */
    ENVIRONMENT_ENTRIES = 128,
};

/* v1 says "none" with LONG_MAX rounded down to a page; no machine has half of that. */
static const uint64_t cgroup_v1_unlimited = UINT64_C(1) << 62;

/* ---- Files ---- */

/* All by syscall(): open, read and close are cancellation points. */
static int file_open(const char *path)
{
    long fd;
    do
        fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    return (int)fd;
}

static size_t file_read_some(int fd, char *buffer, size_t capacity)
{
    long got;
    do
        got = syscall(SYS_read, fd, buffer, capacity);
    while (got < 0 && errno == EINTR);
    return got > 0 ? (size_t)got : 0;
}

/* Reads the file's beginning and ends it with NUL. Returns its length; 0: it cannot be read. One read is enough for
 * most of the kernel's files; `in_parts`: reads until the end. */
static size_t file_read(const char *path, char *buffer, size_t capacity, bool in_parts)
{
    size_t length = 0, got;
    int fd = file_open(path);
    if (fd < 0)
        return 0;
    do {
        got = file_read_some(fd, buffer + length, capacity - 1 - length);
        length += got;
    } while (in_parts && got != 0 && length < capacity - 1);
    (void)syscall(SYS_close, fd);
    buffer[length] = '\0';
    return length;
}

/* ---- cgroups ---- */

static size_t cgroup_read_limit(const char *path)
{
    char text[NUMBER_CAPACITY];
    const char *at = text;
    uint64_t limit;
    if (file_read(path, text, sizeof text, false) == 0 || !base_number(&at, &limit) || limit >= cgroup_v1_unlimited)
        return SIZE_MAX; /* "max" is no number */
    return limit;
}

/* The path of `file` in mount+below+group; false when it is too long. */
static bool cgroup_path(char *path, const char *mount, const char *below, const char *group, size_t group_length,
                        const char *file)
{
    if (strlen(mount) + strlen(below) + group_length + 1 + strlen(file) >= PATH_CAPACITY)
        return false;
    path = stpcpy(stpcpy(path, mount), below);
    memcpy(path, group, group_length);
    path[group_length] = '/';
    strcpy(path + group_length + 1, file);
    return true;
}

/* The least of *limit and the limits in `file` of mount+below+group and of all its parents up to mount+below. */
static void cgroup_least_limit(const char *mount, const char *below, const char *group, size_t group_length,
                               const char *file, size_t *limit)
{
    static char path[PATH_CAPACITY];
    for (;;) {
        while (group_length > 0 && group[group_length - 1] == '/')
            group_length--;
        if (cgroup_path(path, mount, below, group, group_length, file))
            *limit = base_min(*limit, cgroup_read_limit(path));
        if (group_length == 0)
            return;
        while (group_length > 0 && group[group_length - 1] != '/')
            group_length--;
    }
}

/* The first figure of "some avg10=0.12 avg60=...", in whole per cents; false when the file is no such one. */
static bool pressure_read(const char *path, unsigned *percent)
{
    static const char before[] = "some avg10=";
    char text[NUMBER_CAPACITY];
    const char *at = text + sizeof before - 1;
    uint64_t value;
    if (file_read(path, text, sizeof text, false) == 0 || strncmp(text, before, sizeof before - 1) != 0 ||
        !base_number(&at, &value))
        return false;
    *percent = value > 100 ? 100 : (unsigned)value;
    return true;
}

/* Whether `name` is in the list `names[0..length)` separated by commas. */
static bool list_has(const char *names, size_t length, const char *name)
{
    size_t name_length = strlen(name);
    for (const char *end = names + length; names < end;) {
        const char *comma = memchr(names, ',', (size_t)(end - names));
        size_t one = (size_t)((comma != NULL ? comma : end) - names);
        if (one == name_length && memcmp(names, name, one) == 0)
            return true;
        names += one + 1;
    }
    return false;
}

/* Reads the limits of the cgroup that a line "ID:controllers:path" names; v2's line is "0::path". If v2 stands beside
 * v1, it is below mount/unified. Unless `told`, also reads the cgroup's own memory pressure. Returns whether the
 * pressure is known now. */
static bool cgroup_read_line(const char *mount, const char *line, const char *end, bool told,
                             struct os_memory_bounds *bounds)
{
    static const char *const v2_places[] = { "", "/unified" };
    static char path[PATH_CAPACITY];
    const char *controllers = memchr(line, ':', (size_t)(end - line));
    const char *group = controllers == NULL ? NULL : memchr(controllers + 1, ':', (size_t)(end - controllers - 1));
    if (group == NULL)
        return told;
    size_t controllers_length = (size_t)(group - controllers - 1), length = (size_t)(end - group - 1);
    group++;
    if (list_has(controllers + 1, controllers_length, "memory"))
        cgroup_least_limit(mount, "/memory", group, length, "memory.limit_in_bytes", &bounds->max);
    for (size_t i = 0; i < 2 && controllers_length == 0; i++) {
        cgroup_least_limit(mount, v2_places[i], group, length, "memory.max", &bounds->max);
        cgroup_least_limit(mount, v2_places[i], group, length, "memory.high", &bounds->high);
        told = told || (cgroup_path(path, mount, v2_places[i], group, length, "memory.pressure") &&
                        pressure_read(path, &bounds->stall_percent));
    }
    return told;
}

void procfs_memory_bounds(const char *membership, const char *mount, const char *pressure,
                          struct os_memory_bounds *bounds)
{
    static char text[FILE_CAPACITY];
    BASE_KEEP_ERRNO;
    bool told = pressure == NULL;
    size_t length = file_read(membership, text, sizeof text, true);
    *bounds = (struct os_memory_bounds){ SIZE_MAX, SIZE_MAX, 0 };
    for (char *line = text; line < text + length;) {
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (end == NULL)
            break; /* cut by the buffer */
        told = cgroup_read_line(mount, line, end, told, bounds);
        line = end + 1;
    }
    if (!told)
        (void)pressure_read(pressure, &bounds->stall_percent);
}

/* ---- The process itself ---- */

/* Number `field`, from 0. */
static size_t statm_pages(const char *statm, unsigned field)
{
    BASE_KEEP_ERRNO;
    char text[NUMBER_CAPACITY * 3];
    uint64_t pages;
    size_t length = file_read(statm, text, sizeof text, false);
    const char *at = text;
    for (; field && at; field--) {
        at = memchr(at, ' ', length - (size_t)(at - text));
        at = at ? at + 1 : NULL;
    }
    return at != NULL && base_number(&at, &pages) ? pages : 0;
}

size_t procfs_resident_pages(const char *statm) { return statm_pages(statm, 1); }

size_t procfs_anonymous_pages(const char *statm)
{
    size_t all = statm_pages(statm, 1);

    return all - base_min(all, statm_pages(statm, 2));
}

/* Whether /proc/self shows memory, as it does while the first thread lives. An emulator, such as QEMU's for user
 * processes, may know no other folder. */
static bool first_thread_lives(void)
{
    return procfs_resident_pages("/proc/self/statm") != 0;
}

int procfs_open_own(const char *name)
{
    char path[PATH_OWN];

    base_format(path, sizeof path, "/proc/%s/%s", first_thread_lives() ? "self" : "thread-self", name);
    return file_open(path);
}

char *const *procfs_own_environment(const char *file)
{
    static const char prefix[] = "HAKMEM_";
    static char bytes[ENVIRONMENT_BYTES];
    static char *entries[ENVIRONMENT_ENTRIES + 1];
    static bool known;
    BASE_KEEP_ERRNO;
    int fd;
    if (known || (fd = file_open(file)) < 0)
        return entries;
    known = true;

    /* The file may have megabytes. Each entry is stored at `start` as it comes, and dropped at the first letter that
     * differs from the prefix, or when it does not fit. */
    char chunk[NUMBER_CAPACITY * 8];
    size_t start = 0, length = 0, count = 0, got;
    bool wanted = true;
    while ((got = file_read_some(fd, chunk, sizeof chunk)) != 0) {
        for (size_t i = 0; i < got; i++) {
            if (chunk[i] == '\0') {
                if (wanted && length >= sizeof prefix - 1 && count < ENVIRONMENT_ENTRIES) {
                    bytes[start + length] = '\0';
                    entries[count++] = bytes + start;
                    start += length + 1;
                }
                length = 0;
                wanted = true;
            } else if (wanted) {
                wanted = start + length + 1 < sizeof bytes &&
                         (length >= sizeof prefix - 1 || chunk[i] == prefix[length]);
                if (wanted)
                    bytes[start + length++] = chunk[i];
            }
        }
    }
    (void)syscall(SYS_close, fd);
    return entries;
}
