#define _GNU_SOURCE
#include "os/maps.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/foreign.h"

/* A static program need not have it, and is not to get it for this. */
#pragma weak dl_iterate_phdr

/* The linker's name for the start of the file that this is linked into. */
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));

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

bool os_maps_each(bool (*each)(const struct os_mapping *mapping, void *argument), void *argument, char *buffer, size_t size)
{
    int saved_errno = errno, file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
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
    errno = saved_errno;
    return file >= 0 && got >= 0;
}

/* ---- Build-ids ---- */

struct collection {
    struct os_module *modules;
    size_t capacity, count;
};

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

static int collect_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct collection *collection = argument;
    struct os_module module = { .start = UINTPTR_MAX };

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            module.start = base_min(module.start, start);
            module.end = base_max(module.end, start + header->p_memsz);
        } else if (header->p_type == PT_NOTE && module.build_id_size == 0) {
            find_build_id(&module, (const char *)start, header->p_memsz);
        }
    }
    if (collection->count < collection->capacity)
        collection->modules[collection->count] = module;
    collection->count++;
    return 0;
}

/* Without the dynamic linker's list there are the program and the kernel's page of code, whose headers it tells. */
static void collect_static(struct collection *collection)
{
    const ElfW(Ehdr) *vdso = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
    struct dl_phdr_info info = { .dlpi_phdr = (const ElfW(Phdr) *)getauxval(AT_PHDR),
                                 .dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM) };

    if (info.dlpi_phdr && __ehdr_start) {
        for (unsigned i = 0; i < info.dlpi_phnum; i++)
            if (info.dlpi_phdr[i].p_type == PT_LOAD && info.dlpi_phdr[i].p_offset == 0)
                info.dlpi_addr = (uintptr_t)__ehdr_start - info.dlpi_phdr[i].p_vaddr;
        collect_module(&info, sizeof info, collection);
    }
    if (vdso) {
        info = (struct dl_phdr_info){ .dlpi_addr = (uintptr_t)vdso, .dlpi_phnum = vdso->e_phnum,
                                      .dlpi_phdr = (const ElfW(Phdr) *)((const char *)vdso + vdso->e_phoff) };
        collect_module(&info, sizeof info, collection);
    }
}

size_t os_modules(struct os_module *modules, size_t capacity)
{
    struct collection collection = { modules, capacity, 0 };

    foreign_point(); /* a thread that holds the dynamic linker's lock may wait for any of ours */
    if (dl_iterate_phdr)
        dl_iterate_phdr(collect_module, &collection);
    else
        collect_static(&collection);
    return collection.count;
}
