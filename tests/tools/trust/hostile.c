/*
 * A process that wants its readers to fail: it claims to run HAKMEM, and does what it is told.
 *
 * First writes "ready TABLE ARENA": the addresses of its descriptor, and of zeroed memory behind it. Then obeys lines,
 * and answers each with "0":
 *   poke ADDRESS HEX    write bytes there
 *   name HEX            change its name
 *   map HEX             map the first page of the file at that path, as code
 *   hold ADDRESS BYTES  make readers of these pages wait: nobody serves their faults (userfaultfd)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in src/observe/descriptor.h. The head is in the file, so that readers find it there. */
__attribute__((used, section("hakmem_descriptor"), aligned(4096))) static struct {
    char magic[16];
    char rest[(1 << 16) - 16];
} table = { "HAKMEM\x01inside\x02\xfe", { 1 } };

static char arena[16 << 20] __attribute__((aligned(1 << 21)));
static char line[1 << 18], bytes[1 << 17];

static size_t parse(const char *hex)
{
    size_t count = 0;
    unsigned value;
    for (; sscanf(hex, "%2x", &value) == 1; hex += 2)
        bytes[count++] = (char)value;
    bytes[count] = 0;
    return count;
}

static int hold(uintptr_t address, size_t size)
{
    struct uffdio_api api = { .api = UFFD_API };
    struct uffdio_register range = { .range = { address, size }, .mode = UFFDIO_REGISTER_MODE_MISSING };
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api))
        return 1;
    if (mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return 2;
    return ioctl(faults, UFFDIO_REGISTER, &range) ? 3 : 0;
}

static int map(const char *path)
{
    int file = open(path, O_RDONLY);
    return file < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED;
}

int main(void)
{
    printf("ready %lu %lu\n", (unsigned long)(uintptr_t)&table, (unsigned long)(uintptr_t)arena);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char *rest = strchr(line, ' ') + 1;
        int failed = 1;
        if (line[0] == 'p') {
            uintptr_t address = strtoul(rest, &rest, 10);
            size_t count = parse(rest + 1);
            memcpy((void *)address, bytes, count);
            failed = 0;
        } else if (line[0] == 'n') {
            parse(rest);
            failed = prctl(PR_SET_NAME, bytes);
        } else if (line[0] == 'm') {
            parse(rest);
            failed = map(bytes);
        } else if (line[0] == 'h') {
            uintptr_t address = strtoul(rest, &rest, 10);
            failed = hold(address, strtoul(rest, NULL, 10));
        }
        printf("%d\n", failed);
        fflush(stdout);
    }
    return 0;
}
