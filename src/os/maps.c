#define _GNU_SOURCE
#include "os/maps.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/errno.h"
#include "os/os.h"
#include "os/procfs.h"

/* ---- /proc/self/maps: "start-end rwxp offset dev inode   path" ---- */

static uint64_t read_hex(const char **text)
{
    const char *at = *text;
    uint64_t value = 0;

    for (;; at++) {
        unsigned digit = (unsigned char)*at - (unsigned)'0', letter = (unsigned char)*at - (unsigned)'a';
        if (digit < 10)
            value = value * 16 + digit;
        else if (letter < 6)
            value = value * 16 + letter + 10;
        else
            break;
    }
    *text = at;
    return value;
}

static struct os_mapping parse_line(const char *line)
{
    struct os_mapping mapping = { .path = "" };

    mapping.start = (uintptr_t)read_hex(&line);
    line += *line == '-';
    mapping.end = (uintptr_t)read_hex(&line);
    if (strnlen(line, 6) < 6)
        return mapping;
    mapping.readable = line[1] == 'r';
    mapping.executable = line[3] == 'x';
    line += 6;
    mapping.offset = read_hex(&line);
    for (unsigned fields = 0; *line && fields < 3; fields++) { /* to the device, the inode and the path */
        while (*line == ' ')
            line++;
        if (fields == 2)
            break;
        while (*line && *line != ' ')
            line++;
    }
    mapping.path = line;
    return mapping;
}

bool os_maps_each(bool (*each)(const struct os_mapping *mapping, void *argument), void *argument, char *buffer,
                  size_t size)
{
    BASE_KEEP_ERRNO;
    int file = procfs_open_own("maps");
    size_t held = 0; /* of a line that is not whole yet */
    bool more = true;
    long got = -1;

    while (file >= 0 && more && (got = syscall(SYS_read, file, buffer + held, size - held)) != 0) {
        char *line = buffer, *end = buffer + held + got, *line_end;
        if (got < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        while (more && (line_end = memchr(line, '\n', (size_t)(end - line))) != NULL) {
            *line_end = '\0';
            struct os_mapping mapping = parse_line(line);
            more = each(&mapping, argument);
            line = line_end + 1;
        }
        held = (size_t)(end - line);
        memmove(buffer, line, held);
        if (held == size)
            held = size / 4;
    }
    if (file >= 0)
        syscall(SYS_close, file);
    return file >= 0 && got >= 0;
}

/* ---- Build-ids ---- */

/* A note is its three sizes, then name and contents, each padded to 4 bytes. */
static void find_build_id(struct os_module *module, const char *notes, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        size_t name, contents;
        memcpy(&note, notes, sizeof note);
        name = base_align_up(note.n_namesz, 4);
        contents = base_align_up(note.n_descsz, 4);
        if (name > size - sizeof note || contents > size - sizeof note - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + sizeof note, "GNU", 4) == 0) {
            module->build_id_size = (unsigned)base_min(note.n_descsz, OS_BUILD_ID_MOST);
            memcpy(module->build_id, notes + sizeof note + name, module->build_id_size);
            return;
        }
        notes += sizeof note + name + contents;
        size -= sizeof note + name + contents;
    }
}

/* ---- Objects ---- */

/* Bytes to read: of headers, which is 35 segments; of a segment of notes, which has the build-id near its start. */
enum { HEADERS_MOST = 2048, NOTES_MOST = OS_MODULES_BUFFER - HEADERS_MOST };

static bool read_memory(int memory, uintptr_t address, void *into, size_t size)
{
    return syscall(SYS_pread64, memory, into, size, address) == (long)size;
}

static void read_notes(int memory, struct os_module *module, uintptr_t address, size_t size, char *notes)
{
    size = base_min(size, NOTES_MOST);
    if (read_memory(memory, address, notes, size))
        find_build_id(module, notes, size);
}

/* The object whose file's first byte is mapped at `image`. The headers are there; the first loaded segment tells how
 * far the object's addresses lie from those in the file. */
static bool read_module(int memory, uintptr_t image, struct os_module *module, char *bytes)
{
    const ElfW(Ehdr) *file = (const ElfW(Ehdr) *)(const void *)bytes;
    const ElfW(Phdr) *headers, *first = NULL;

    *module = (struct os_module){ .start = image };
    if (!read_memory(memory, image, bytes, HEADERS_MOST) || memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 ||
        file->e_phentsize != sizeof *headers || file->e_phoff % _Alignof(ElfW(Phdr)) != 0 ||
        file->e_phoff > HEADERS_MOST || file->e_phnum > (HEADERS_MOST - file->e_phoff) / sizeof *headers)
        return false;
    headers = (const ElfW(Phdr) *)(const void *)(bytes + file->e_phoff);
    for (const ElfW(Phdr) *header = headers; header < headers + file->e_phnum; header++) {
        if (header->p_type != PT_LOAD)
            continue;
        first = first ? first : header;
        module->end =
            base_max(module->end, image + first->p_offset - first->p_vaddr + header->p_vaddr + header->p_memsz);
    }
    for (const ElfW(Phdr) *header = headers; first && header < headers + file->e_phnum && module->build_id_size == 0;
         header++)
        if (header->p_type == PT_NOTE)
            read_notes(memory, module, image + first->p_offset - first->p_vaddr + header->p_vaddr, header->p_memsz,
                       bytes + HEADERS_MOST);
    return first != NULL;
}

void os_modules_begin(struct os_modules *modules, char *buffer)
{
    BASE_KEEP_ERRNO;

    *modules = (struct os_modules){ .buffer = buffer };
    modules->memory = procfs_open_own("mem");
}

void os_modules_end(struct os_modules *modules)
{
    BASE_KEEP_ERRNO;

    if (modules->memory >= 0)
        syscall(SYS_close, modules->memory);
}

static bool is_in(const struct os_module *module, uintptr_t address)
{
    return address >= module->start && address < module->end;
}

const struct os_module *os_modules_next(struct os_modules *modules, const struct os_mapping *mapping)
{
    BASE_KEEP_ERRNO;

    if (mapping->offset == 0 && mapping->path[0])
        modules->image = mapping->start;
    if (!mapping->executable)
        return NULL;
    if (!is_in(&modules->module, mapping->start) && modules->image != modules->looked) {
        modules->looked = modules->image;
        if (!read_module(modules->memory, modules->image, &modules->module, modules->buffer))
            modules->module = (struct os_module){ 0 };
    }
    return is_in(&modules->module, mapping->start) ? &modules->module : NULL;
}
