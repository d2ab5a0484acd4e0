/* Protects os/maps.c against the kernel's text: many mappings, odd names, cut paths, and build-ids. */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/maps.h"

static char buffer[OS_MAPS_LINE];
static _Alignas(8) char headers[OS_MODULES_BUFFER];

enum { PAGES = 400, TEXT_MOST = 1 << 20, FOLDERS = 15, FOLDER_NAME = 250 };

static char text[TEXT_MOST], later[TEXT_MOST], paths[TEXT_MOST];
static size_t paths_used;
static struct os_mapping seen[8192];
static size_t seen_count;

static size_t read_text(char *into)
{
    int file = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    ssize_t got;

    assert_true(file >= 0);
    while ((got = read(file, into + length, TEXT_MOST - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    into[length] = '\0';
    return length;
}

static bool note(const struct os_mapping *mapping, void *argument)
{
    (void)argument;
    assert_true(seen_count < sizeof seen / sizeof seen[0] && paths_used + strlen(mapping->path) + 1 < sizeof paths);
    seen[seen_count] = *mapping;
    seen[seen_count++].path = strcpy(paths + paths_used, mapping->path);
    paths_used += strlen(mapping->path) + 1;
    return true;
}

/* Maps pages that differ from their neighbours, so that each is a line. An emulator maps no page as executable. */
static char *map_pages(size_t page)
{
    char *pages = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(pages != MAP_FAILED);
    for (size_t i = 0; i < PAGES; i += 2)
        assert_int_equal(mprotect(pages + i * page, page, PROT_READ | PROT_EXEC), 0);
    return pages;
}

static void check_line(char *line, const struct os_mapping *mapping)
{
    unsigned long start, end, offset;
    char rights[5];
    int path_at = 0;

    assert_true(sscanf(line, "%lx-%lx %4s %lx %*s %*s %n", &start, &end, rights, &offset, &path_at) >= 4);
    assert_int_equal(mapping->start, start);
    assert_int_equal(mapping->end, end);
    assert_int_equal(mapping->readable, rights[0] == 'r');
    assert_int_equal(mapping->executable, rights[2] == 'x');
    assert_int_equal(mapping->offset, offset);
    assert_string_equal(mapping->path, line + path_at);
}

static void test_every_mapping(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), line_count = 0;
    char name[64], *pages = map_pages(page), *rest;
    int file, tries = 0;

    (void)state;
    snprintf(name, sizeof name, "/tmp/hakmem unit %d  maps", (int)getpid());
    file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    assert_true(file >= 0 && ftruncate(file, (off_t)(3 * page)) == 0);
    char *mapped = mmap(NULL, page, PROT_READ, MAP_PRIVATE, file, (off_t)(2 * page));
    assert_true(mapped != MAP_FAILED);
    unlink(name);
    do {
        seen_count = paths_used = 0;
        read_text(text);
        errno = 42;
        assert_true(os_maps_each(note, NULL, buffer, sizeof buffer));
        assert_int_equal(errno, 42);
        read_text(later);
    } while (strcmp(text, later) != 0 && ++tries < 100);
    assert_string_equal(text, later);
    assert_true(strlen(text) > 4 * 4096);
    assert_non_null(strstr(text, "maps (deleted)"));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_true(line_count < seen_count);
        check_line(line, &seen[line_count++]);
    }
    assert_int_equal(line_count, seen_count);
    munmap(mapped, page);
    munmap(pages, PAGES * page);
    close(file);
}

static bool first_only(const struct os_mapping *mapping, void *count)
{
    (void)mapping;
    return ++*(size_t *)count < 3;
}

static void test_it_stops_where_it_is_told(void **state)
{
    size_t count = 0;

    (void)state;
    assert_true(os_maps_each(first_only, &count, buffer, sizeof buffer));
    assert_int_equal(count, 3);
}

static bool find(const struct os_mapping *mapping, void *argument)
{
    struct os_mapping *wanted = argument;

    if (mapping->start != wanted->start)
        return true;
    wanted->end = mapping->end;
    wanted->path = strcpy(paths, mapping->path);
    return false;
}

/* A path of 15,000 bytes, with newlines as \\012, fits no read. The mapping's start and end are right. */
static void test_a_long_path(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char folder[FOLDER_NAME + 1], top[64];
    int begin = open(".", O_RDONLY), file, depth = 0;

    (void)state;
    memset(folder, '\n', FOLDER_NAME);
    folder[FOLDER_NAME] = '\0';
    snprintf(top, sizeof top, "/tmp/hakmem-unit-%d", (int)getpid());
    assert_true(begin >= 0 && mkdir(top, 0700) == 0 && chdir(top) == 0);
    for (; depth < FOLDERS; depth++)
        assert_true(mkdir(folder, 0700) == 0 && chdir(folder) == 0);
    file = open("the end", O_RDWR | O_CREAT, 0644);
    assert_true(file >= 0 && ftruncate(file, (off_t)page) == 0);
    char *mapped = mmap(NULL, page, PROT_READ, MAP_PRIVATE, file, 0);
    assert_true(mapped != MAP_FAILED);
    struct os_mapping wanted = { .start = (uintptr_t)mapped };
    assert_true(os_maps_each(find, &wanted, buffer, sizeof buffer));
    assert_int_equal(wanted.end, wanted.start + page);
    assert_memory_equal(wanted.path, top, strlen(top));
    assert_string_equal(wanted.path + strlen(wanted.path) - 8, "/the end");
    assert_in_range(strlen(wanted.path), 1000, 4096);
    munmap(mapped, page);
    close(file);
    assert_int_equal(unlink("the end"), 0);
    for (; depth > 0; depth--)
        assert_true(chdir("..") == 0 && rmdir(folder) == 0);
    assert_true(fchdir(begin) == 0 && rmdir(top) == 0);
    close(begin);
}

struct found {
    struct os_modules modules;
    uintptr_t address;
    bool met; /* a mapping that contains the address was found */
    struct os_module module;
};

static bool find_module(const struct os_mapping *mapping, void *argument)
{
    struct found *found = argument;
    struct os_mapping here = *mapping;
    const struct os_module *module;

    if (found->address >= here.start && found->address < here.end)
        here.executable = true; /* an emulator maps no page as executable */
    module = os_modules_next(&found->modules, &here);
    if (found->address < here.start || found->address >= here.end)
        return true;
    found->met = true;
    if (module)
        found->module = *module;
    return false;
}

static struct os_module module_of(uintptr_t address)
{
    struct found found = { .address = address };

    os_modules_begin(&found.modules, headers);
    assert_true(os_maps_each(find_module, &found, buffer, sizeof buffer));
    os_modules_end(&found.modules);
    assert_true(found.met);
    return found.module;
}

/* The C library's own view of the object. */
struct object {
    uintptr_t address, start, end;
    const char *build_id; /* in memory, or NULL */
};

static int look_at_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object *object = argument, here = { object->address, UINTPTR_MAX, 0, NULL };

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            here.start = start < here.start ? start : here.start;
            here.end = start + header->p_memsz > here.end ? start + header->p_memsz : here.end;
        }
        for (const char *note = (const char *)start;
             header->p_type == PT_NOTE && note < (const char *)start + header->p_memsz;) {
            const ElfW(Nhdr) *sizes = (const ElfW(Nhdr) *)(const void *)note;
            if (sizes->n_type == NT_GNU_BUILD_ID && sizes->n_namesz == 4 && memcmp(sizes + 1, "GNU", 4) == 0)
                here.build_id = (const char *)(sizes + 1) + 4;
            note += sizeof *sizes + ((sizes->n_namesz + 3) & ~3u) + ((sizes->n_descsz + 3) & ~3u);
        }
    }
    if (object->address < here.start || object->address >= here.end)
        return 0;
    *object = here;
    return 1;
}

static void check_module(uintptr_t address)
{
    struct object object = { .address = address };
    struct os_module module = module_of(address);

    assert_int_equal(dl_iterate_phdr(look_at_object, &object), 1);
    assert_true(module.start == (object.start & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1)));
    assert_true(module.end == object.end);
    assert_int_equal(module.build_id_size != 0, object.build_id != NULL);
    if (object.build_id)
        assert_memory_equal(module.build_id, object.build_id, module.build_id_size);
}

/* Modules of the program, the C library and the kernel's object, and of code that is in no file. */
static void test_modules(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *code = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    check_module((uintptr_t)test_modules);
    check_module((uintptr_t)dlsym(RTLD_NEXT, "qsort"));
    if (getauxval(AT_SYSINFO_EHDR))
        check_module(getauxval(AT_SYSINFO_EHDR));
    assert_true(code != MAP_FAILED);
    assert_true(module_of((uintptr_t)code).end == 0);
    munmap(code, page);
}

/* An object whose headers say other addresses than those where it is mapped, as of a program at a fixed place: its end
 * and its build-id lie where its first segment says.
 */
static void test_object_at_a_fixed_place(void **state)
{
    enum { OFFSET = 0x1000, PLACE = 0x400000 + OFFSET, SIZE = 0x3000 };
    static const ElfW(Nhdr) note = { .n_namesz = 4, .n_descsz = 8, .n_type = NT_GNU_BUILD_ID };
    static const char words[12] = { 'G', 'N', 'U', '\0', 'b', 'u', 'i', 'l', 'd', 'i', 'd', '8' };
    char *image = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ElfW(Ehdr) *file = (void *)image;
    ElfW(Phdr) *header = (void *)(image + sizeof *file);
    struct os_mapping mapping = { .start = (uintptr_t)image, .end = (uintptr_t)image + 0x1000, .path = "/object" };
    const struct os_module *module;
    struct os_modules modules;

    (void)state;
    assert_true(image != MAP_FAILED);
    memcpy(file->e_ident, ELFMAG, SELFMAG);
    file->e_phoff = sizeof *file;
    file->e_phentsize = sizeof *header;
    file->e_phnum = 4;
    header[0] = (ElfW(Phdr)){ .p_type = PT_PHDR, .p_vaddr = 0x7000000, .p_memsz = 0x7000000 };
    header[1] = (ElfW(Phdr)){ .p_type = PT_LOAD, .p_offset = OFFSET, .p_vaddr = PLACE, .p_memsz = 0x600 };
    header[2] = (ElfW(Phdr)){ .p_type = PT_LOAD, .p_offset = 0x2000, .p_vaddr = PLACE + 0x1000, .p_memsz = 0x700 };
    header[3] = (ElfW(Phdr)){ .p_type = PT_NOTE, .p_vaddr = PLACE + 0x1500, .p_memsz = sizeof note + sizeof words };
    memcpy(image + OFFSET + 0x1500, &note, sizeof note);
    memcpy(image + OFFSET + 0x1500 + sizeof note, words, sizeof words);
    os_modules_begin(&modules, headers);
    assert_null(os_modules_next(&modules, &mapping));
    mapping.start += 0x1000;
    mapping.end += 0x1000;
    mapping.offset = OFFSET;
    mapping.executable = true;
    module = os_modules_next(&modules, &mapping);
    assert_non_null(module);
    assert_true(module->start == (uintptr_t)image);
    assert_true(module->end == (uintptr_t)image + OFFSET + 0x1000 + 0x700);
    assert_int_equal(module->build_id_size, 8);
    assert_memory_equal(module->build_id, "buildid8", 8);
    mapping.start = module->end; /* of another file, right behind it */
    mapping.end = mapping.start + 0x1000;
    assert_null(os_modules_next(&modules, &mapping));
    os_modules_end(&modules);
    munmap(image, SIZE);
}

/* The first mapping of a file that is no object, and a mapping that vanishes before it is read. */
static void test_no_module(void **state)
{
    struct os_mapping mapping = {
        .start = (uintptr_t)buffer, .end = (uintptr_t)buffer + 1, .executable = true, .path = "/no"
    };
    struct os_modules modules;

    (void)state;
    memset(buffer, 'x', sizeof buffer);
    os_modules_begin(&modules, headers);
    errno = 77;
    assert_null(os_modules_next(&modules, &mapping));
    mapping.start = 4096;
    mapping.end = 8192;
    assert_null(os_modules_next(&modules, &mapping));
    assert_int_equal(errno, 77);
    os_modules_end(&modules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mapping),
        cmocka_unit_test(test_it_stops_where_it_is_told),
        cmocka_unit_test(test_a_long_path),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_object_at_a_fixed_place),
        cmocka_unit_test(test_no_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
