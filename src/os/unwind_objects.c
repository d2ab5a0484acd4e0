#define _GNU_SOURCE
#include "os/unwind_objects.h"

#include <link.h>

/* Weak: a program may lack these, and the linker must not add them. */
#pragma weak dl_iterate_phdr
#pragma weak _Unwind_Find_FDE

/* libgcc's, which unwind.h does not declare. */
extern const void *_Unwind_Find_FDE(void *address, void *bases);

/* glibc's since 2.35, by a name of its own because older headers lack it. It takes no lock; dl_iterate_phdr takes one
 * of the loader's. */
struct found_object {
    unsigned long long flags;
    uintptr_t start, end;
    const struct link_map *object;
    const uint8_t *table;
    unsigned long long reserved[16];
};
extern int find_object(void *address, struct found_object *found) __asm__("_dl_find_object") __attribute__((weak));

struct object_search {
    uintptr_t address;
    struct unwind_object found;
};

static int look_at_segments(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object_search *search = argument;
    struct unwind_object found = { 0, 0, NULL };

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && search->address - start < header->p_memsz) {
            found.start = start;
            found.end = start + header->p_memsz;
        } else if (header->p_type == PT_GNU_EH_FRAME) {
            found.table = (const uint8_t *)start;
        }
    }
    if (found.start == 0)
        return 0;
    search->found = found;
    return 1;
}

bool unwind_objects_can(void) { return find_object != NULL || dl_iterate_phdr != NULL; }

struct unwind_object unwind_object_of(uintptr_t address)
{
    struct object_search search = { .address = address };
    struct found_object found;

    if (find_object == NULL)
        dl_iterate_phdr(look_at_segments, &search);
    else if (find_object((void *)address, &found) == 0)
        search.found = (struct unwind_object){ found.start, found.end, found.table };
    return search.found;
}

const uint8_t *unwind_object_registered(uintptr_t address)
{
    const void *bases[3];

    return _Unwind_Find_FDE ? _Unwind_Find_FDE((void *)address, bases) : NULL;
}
