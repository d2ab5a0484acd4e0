/* Protects os/maps.c from any text of /proc/self/maps, in any pieces, and from any ELF notes.
 *
 * The target `maps`: the input is the lengths of the reads of /proc/self/maps and its text, or the notes of a loaded
 * file. This file includes src/os/maps.c, so that its system calls come here.
 *
 * Byte 0: 0 to 127: a text, with read lengths made from byte 1. 128 and more: notes.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    struct fuzz_input text;
    unsigned read_most, reads;
    bool interrupts, opened;
} kernel;

/* The system calls of os_maps_each, but for the one that opens the file. */
static long fuzz_syscall(long number, ...)
{
    va_list arguments;
    long result = 0;

    va_start(arguments, number);
    if (number == SYS_close) {
        kernel.opened = false;
    } else {
        (void)va_arg(arguments, int);
        char *into = va_arg(arguments, char *);
        size_t room = va_arg(arguments, size_t), left = (size_t)(kernel.text.end - kernel.text.at);
        FUZZ_CHECK(number == SYS_read && room != 0, "call %ld of %zu bytes", number, room);
        if (kernel.interrupts && kernel.reads++ % 3 == 1) {
            errno = EINTR;
            result = -1;
        } else {
            size_t most = room < kernel.read_most ? room : kernel.read_most;
            result = (long)(left < most ? left : most);
            memcpy(into, kernel.text.at, (size_t)result);
            kernel.text.at += result;
        }
    }
    va_end(arguments);
    return result;
}

#define syscall fuzz_syscall
#include "os/maps.c"
#undef syscall

int procfs_open_own(const char *name)
{
    FUZZ_CHECK(strcmp(name, "maps") == 0, "the file %s", name);
    kernel.opened = true;
    return 1000;
}

struct judge {
    struct fuzz_input text; /* from the next line on */
    size_t lines;
};

/* A line that fits and has the kernel's form must be read completely. */
static bool judge_mapping(const struct os_mapping *mapping, void *argument)
{
    struct judge *judge = argument;
    struct fuzz_input line = fuzz_take_until(&judge->text, '\n');
    size_t length = (size_t)(line.end - line.at), path = strlen(mapping->path);

    judge->lines++;
    FUZZ_CHECK(path <= OS_MAPS_LINE, "a path of %zu bytes", path);
    if (length < (OS_MAPS_LINE / 4) && memchr(line.at, '\0', length) == NULL) {
        FUZZ_CHECK(path <= length && memcmp(mapping->path, line.end - path, path) == 0,
                   "a path that is not the line's end: %s", mapping->path);
        FUZZ_CHECK(*mapping->path != ' ', "a path with blanks before it: %s", mapping->path);
        char *copy = strndup((const char *)line.at, length);
        size_t digits = strspn(copy, "0123456789abcdef");
        if (digits > 0 && digits <= 16 && copy[digits] == '-')
            FUZZ_CHECK(mapping->start == strtoul(copy, NULL, 16), "line %s starts at %#lx", copy,
                       (unsigned long)mapping->start);
        free(copy);
    }
    return true;
}

static void judge_text(struct fuzz_input text, unsigned reads)
{
    static char buffer[OS_MAPS_LINE];
    struct judge judge = { text, 0 };
    size_t lines = 0;
    uint64_t longest = 0, length = 0;

    for (const uint8_t *at = text.at; at < text.end; at++) {
        lines += *at == '\n';
        length = *at == '\n' ? 0 : length + 1;
        longest = length > longest ? length : longest;
    }
    kernel.text = text;
    kernel.read_most = reads % 2 == 0 ? 1u << 16 : 1 + reads / 2;
    kernel.interrupts = reads % 5 == 0;
    kernel.reads = 0;
    errno = 4711;
    FUZZ_CHECK(os_maps_each(judge_mapping, &judge, buffer, sizeof buffer), "the text is not read to its end");
    FUZZ_CHECK(errno == 4711 && !kernel.opened, "errno %d", errno);
    FUZZ_CHECK(judge.lines == lines, "%zu of %zu lines, the longest of %llu bytes", judge.lines, lines,
               (unsigned long long)longest);
}

/* The copy has exactly the notes' size, so AddressSanitizer sees a read behind them. */
static void judge_notes(struct fuzz_input notes)
{
    size_t size = (size_t)(notes.end - notes.at);
    char *copy = malloc(size > 0 ? size : 1);
    struct os_module module = { .build_id_size = 0 };

    memcpy(copy, notes.at, size);
    find_build_id(&module, copy, size);
    FUZZ_CHECK(module.build_id_size <= OS_BUILD_ID_MOST && module.build_id_size <= size, "a build-id of %u bytes",
               module.build_id_size);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = { data, data + size };
    unsigned kind = fuzz_take(&input);

    if (kind >= 128) {
        judge_notes(input);
    } else {
        unsigned reads = fuzz_take(&input);
        judge_text(input, reads);
    }
    return 0;
}
