#define _GNU_SOURCE
#include "effect.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A script's interpreter may itself be a script. Linux follows so many, and reads so many bytes of the first line. */
enum { SCRIPTS_MOST = 5, SCRIPT_LINE_BYTES = 256 };
/* What the Go linker writes before a program's build information. */
static const char GO_MARK[] = "\xff Go buildinf:";

bool effect_map_file(const char *path, struct mapped_file *file)
{
    struct stat status;
    /* O_NONBLOCK: the open of a pipe would wait for its writer. */
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    file->bytes = MAP_FAILED;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        file->size = (size_t)status.st_size;
        file->bytes = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    close(descriptor);
    return file->bytes != MAP_FAILED;
}

/* ---- Scripts ---- */

/* Writes the interpreter's path into `path`. False if the file is no script. */
static bool read_interpreter(const struct mapped_file *file, char path[PATH_MAX])
{
    static const char blanks[] = " \t\r\v\f\n";
    char line[SCRIPT_LINE_BYTES + 1] = "";
    memcpy(line, file->bytes, file->size < SCRIPT_LINE_BYTES ? file->size : SCRIPT_LINE_BYTES);
    if (strncmp(line, "#!", 2) != 0)
        return false;
    line[strcspn(line, "\n")] = '\0';
    const char *word = line + 2 + strspn(line + 2, blanks);
    size_t length = strcspn(word, blanks);
    memcpy(path, word, length);
    path[length] = '\0';
    return length > 0;
}

/* Writes into `path` the file that the kernel loads for the program `word`, and maps it. */
static bool map_program(const char *word, char path[PATH_MAX], struct mapped_file *file)
{
    if ((size_t)snprintf(path, PATH_MAX, "%s", word) >= PATH_MAX)
        return false;
    for (int i = 0; i < SCRIPTS_MOST; i++) {
        if (!effect_map_file(path, file))
            return false;
        if (!read_interpreter(file, path))
            return true;
    }
    return effect_map_file(path, file);
}

/* ---- ELF headers ---- */

/* What a program and its libraries must share. */
struct kind {
    unsigned bits, byte_order, machine;
};

/* False if the file is no ELF file. */
static bool read_kind(const struct mapped_file *file, struct kind *kind)
{
    const unsigned char *head = file->bytes;
    if (file->size < sizeof(Elf64_Ehdr) || memcmp(head, ELFMAG, SELFMAG) != 0)
        return false;
    kind->bits = head[EI_CLASS] == ELFCLASS64 ? 64 : 32;
    kind->byte_order = head[EI_DATA];
    size_t high = kind->byte_order == ELFDATA2LSB ? 1 : 0, at = offsetof(Elf64_Ehdr, e_machine);
    kind->machine = (unsigned)head[at + high] << 8 | head[at + 1 - high];
    return true;
}

/* "x86-64" or "32-bit ARM", and their like. */
static const char *kind_text(const struct kind *kind, char text[32])
{
    static const struct {
        unsigned machine;
        const char *name;
    } names[] = {{EM_386, "x86"}, {EM_ARM, "ARM"}, {EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"},
                 {EM_RISCV, "RISC-V"}};
    char number[16];
    snprintf(number, sizeof number, "machine %u", kind->machine);
    const char *name = number;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].machine == kind->machine)
            name = names[i].name;
    if (kind->bits == 64 && (kind->machine == EM_X86_64 || kind->machine == EM_AARCH64))
        snprintf(text, 32, "%s", name);
    else
        snprintf(text, 32, "%u-bit %s", kind->bits, name);
    return text;
}

/* Whether a 64-bit ELF file names a dynamic linker. */
static bool has_linker(const struct mapped_file *file)
{
    Elf64_Ehdr header;
    memcpy(&header, file->bytes, sizeof header);
    for (size_t i = 0; i < header.e_phnum; i++) {
        uint32_t type;
        uint64_t at = header.e_phoff + i * header.e_phentsize;
        if (at > file->size || file->size - at < sizeof type)
            break;
        memcpy(&type, file->bytes + at, sizeof type);
        if (type == PT_INTERP)
            return true;
    }
    return false;
}

/* Whether the file is a dynamic linker. It names no other, and preloads into its program. */
static bool is_linker(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncmp(name, "ld-", 3) == 0 || strncmp(name, "ld.so", 5) == 0;
}

static bool has_go_mark(const struct mapped_file *file)
{
    return memmem(file->bytes, file->size, GO_MARK, sizeof GO_MARK - 1) != NULL;
}

bool effect_is_go(const char *word)
{
    char path[PATH_MAX];
    struct mapped_file file;
    return map_program(word, path, &file) && has_go_mark(&file);
}

/* ---- Privileges ---- */

/* Which rights the program gets from its file: "is set-user-id" and its like. NULL: none. */
static const char *rights_gained(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return NULL;
    if ((status.st_mode & S_ISUID) && status.st_uid != getuid())
        return "is set-user-id";
    /* Without the group's right to execute, the bit marks a file for mandatory locks. */
    if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid())
        return "is set-group-id";
    if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) >= 0)
        return "has file capabilities";
    return NULL;
}

/* Whether the process or the file system keeps the program from gaining rights. */
static bool gains_nothing(const char *path)
{
    struct statvfs system;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
           (statvfs(path, &system) == 0 && (system.f_flag & ST_NOSUID));
}

void effect_obstacle(const char *word, const char *library, char *why, size_t size)
{
    char path[PATH_MAX], text[32], own_text[32];
    struct mapped_file file, own_file;
    struct kind kind, own;
    why[0] = '\0';
    if (!map_program(word, path, &file) || !effect_map_file(library, &own_file) || !read_kind(&file, &kind) ||
        !read_kind(&own_file, &own))
        return;
    if (kind.bits != own.bits || kind.byte_order != own.byte_order || kind.machine != own.machine) {
        snprintf(why, size, "%s is a program for %s, and the library is for %s: it keeps its own malloc", path,
                 kind_text(&kind, text), kind_text(&own, own_text));
        return;
    }
    if (!has_linker(&file) && !is_linker(path)) {
        snprintf(why, size, has_go_mark(&file)
                 ? "%s is a Go program that is linked statically, as Go does without cgo: it keeps Go's allocator"
                 : "%s is linked statically and loads no library: it keeps its own malloc", path);
        return;
    }
    const char *gained = rights_gained(path);
    if (gained && !gains_nothing(path))
        snprintf(why, size, "%s %s, so the dynamic linker ignores LD_PRELOAD: it keeps the system's malloc", path,
                 gained);
}
