/* The process's mappings, and what is loaded in them. No call allocates, uses stdio or changes errno. */
#ifndef HAK_OS_MAPS_H
#define HAK_OS_MAPS_H

#include "base/base.h"

struct os_mapping {
    uintptr_t start, end;
    uint64_t offset;  /* in the file */
    bool readable, executable;
    const char *path; /* "" for memory without a name; valid during the call */
};

/* Calls `each` for the mappings in ascending order until it returns false. False: reading failed before that. Works in
 * the buffer, of OS_MAPS_SHORT bytes at least; a line that is longer loses the middle of its path. */
#define OS_MAPS_SHORT 448u /* holds what precedes the path */
#define OS_MAPS_LINE 4608u /* holds a line with the longest path */
HAK_HIDDEN bool os_maps_each(bool (*each)(const struct os_mapping *mapping, void *argument), void *argument,
                             char *buffer, size_t size);

#define OS_BUILD_ID_MOST 32u

/* An object that the kernel or the dynamic linker has loaded. */
struct os_module {
    uintptr_t start, end; /* from the first loaded byte to behind the last */
    unsigned build_id_size;
    uint8_t build_id[OS_BUILD_ID_MOST];
};

/* A walk over the objects, in step with os_maps_each. Each object's headers and GNU build-id are read from memory
 * through /proc/self/mem, where a read of memory that another thread has just unloaded fails. dl_iterate_phdr would
 * wait for the dynamic linker's lock: its holder may wait for one of ours (L2), and in the child of a fork it may be
 * gone. */
#define OS_MODULES_BUFFER 4096u
struct os_modules {
    char *buffer;    /* OS_MODULES_BUFFER bytes, aligned to 8: malloc may write a profile, and its stack is small */
    int memory;      /* /proc/self/mem; negative: it cannot be opened, and no object is found */
    uintptr_t image; /* the last mapping that starts at the first byte of a file */
    uintptr_t looked; /* the image that was last looked at */
    struct os_module module; /* the last object that was found */
};

HAK_HIDDEN void os_modules_begin(struct os_modules *modules, char *buffer);
HAK_HIDDEN void os_modules_end(struct os_modules *modules);

/* Call it for every mapping, in ascending order. For an executable one: the object that it is in, or NULL; valid until
 * the next call. */
HAK_HIDDEN const struct os_module *os_modules_next(struct os_modules *modules, const struct os_mapping *mapping);

#endif
