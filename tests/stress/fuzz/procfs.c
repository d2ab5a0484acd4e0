/* Protects os/procfs.c from any text of /proc and /sys: what it reads is in the text.
 *
 * The target `procfs`: the input is the texts of small files of /proc and /sys, separated by a byte 0xff:
 * /proc/self/cgroup, a limit at the hierarchies' root, one in the group /a, /proc/self/statm and /proc/self/environ.
 * os/procfs.c must read one of the numbers in them, and whole variables.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include "os/procfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMBERSHIP, LIMIT_TOP, LIMIT_INNER, STATM, ENVIRON, FILES };
enum { SEPARATOR = 0xff, TEXT_MOST = 64, LIST_BYTES = 16384 };

static char paths[FILES][64], root[64];
static int files[FILES];

static void link_to(const char *name, int file)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", root, name);
    FUZZ_CHECK(symlink(paths[file], path) == 0, "symlink %s: %s", path, strerror(errno));
}

static void make_folder(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", root, name);
    FUZZ_CHECK(mkdir(path, 0700) == 0, "mkdir %s: %s", path, strerror(errno));
}

static void remove_root(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command) != 0)
        fprintf(stderr, "%s is left\n", root);
}

/* Hierarchies of both versions with the group /a. Their limits are the input's texts. */
static void make_root(void)
{
    static const char *const folders[] = { "a", "memory", "memory/a" };

    strcpy(root, "/tmp/hakmem-fuzz-XXXXXX");
    FUZZ_CHECK(mkdtemp(root) != NULL, "mkdtemp: %s", strerror(errno));
    for (int i = 0; i < FILES; i++)
        files[i] = fuzz_file(paths[i]);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        make_folder(folders[i]);
    link_to("memory.max", LIMIT_TOP);
    link_to("memory/memory.limit_in_bytes", LIMIT_TOP);
    link_to("a/memory.max", LIMIT_INNER);
    link_to("memory/a/memory.limit_in_bytes", LIMIT_INNER);
    atexit(remove_root);
}

/* The number at the start of the text, or SIZE_MAX. A number above a quarter of the address space is none. */
static size_t number_in(struct fuzz_input text)
{
    char digits[TEXT_MOST];
    size_t length = 0;

    for (; length < sizeof digits - 1 && text.at < text.end && *text.at >= '0' && *text.at <= '9'; text.at++)
        digits[length++] = (char)*text.at;
    digits[length] = '\0';
    errno = 0;
    unsigned long long value = strtoull(digits, NULL, 10);
    return length == 0 || errno == ERANGE || value >= UINT64_C(1) << 62 ? SIZE_MAX : (size_t)value;
}

static void check_environment(void)
{
    char *const *list = procfs_own_environment(paths[ENVIRON]);
    size_t bytes = 0;

    for (; *list != NULL; list++) {
        FUZZ_CHECK(strncmp(*list, "HAKMEM_", 7) == 0, "a variable %s", *list);
        bytes += strlen(*list) + 1;
    }
    FUZZ_CHECK(bytes <= LIST_BYTES, "%zu bytes of variables", bytes);
}

static void run(const uint8_t *data, size_t size)
{
    struct fuzz_input input = { data, data + size }, texts[FILES];

    for (int i = 0; i < FILES; i++) {
        if (i == ENVIRON)
            texts[i] = input; /* has zeros, and may have any byte */
        else
            texts[i] = fuzz_take_until(&input, SEPARATOR);
        fuzz_file_set(files[i], texts[i].at, (size_t)(texts[i].end - texts[i].at));
    }
    errno = 4711;
    struct os_memory_bounds bounds;
    procfs_memory_bounds(paths[MEMBERSHIP], root, paths[STATM], &bounds);
    size_t limit = bounds.max, pages = procfs_resident_pages(paths[STATM]);
    FUZZ_CHECK(errno == 4711, "errno %d", errno);
    size_t top = number_in(texts[LIMIT_TOP]), inner = number_in(texts[LIMIT_INNER]);
    FUZZ_CHECK(limit == SIZE_MAX || limit == top || (limit == inner && inner <= top), 
               "a limit of %zu, the files have %zu and in /a %zu", limit, top, inner);
    const uint8_t *blank = memchr(texts[STATM].at, ' ', (size_t)(texts[STATM].end - texts[STATM].at));
    FUZZ_CHECK(blank != NULL || pages == 0, "%zu pages of a statm without a blank", pages);
    check_environment();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    static pid_t maker;

    if (!made) {
        make_root();
        made = true;
        maker = getpid();
    }
    FUZZ_CHECK(maker == getpid(), "the root is another process's");
    fuzz_in_child(run, data, size);
    return 0;
}
