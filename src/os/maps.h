/* The process's mappings, and what is loaded in them. No call allocates, uses stdio or changes errno. */
#ifndef HAK_OS_MAPS_H
#define HAK_OS_MAPS_H

#include "base/base.h"

struct os_mapping {
    uintptr_t start, end;
    uint64_t offset;  /* in the file */
    bool executable;
    const char *path; /* "" for memory without a name; valid during the call */
};

/* Calls `each` for the mappings in ascending order until it returns false. False if they could not be read to that point. Works in
 * the buffer, of OS_MAPS_SHORT bytes at least; of a line that it does not hold, the middle of the path is lost. */
#define OS_MAPS_SHORT 512u /* holds what precedes the path */
#define OS_MAPS_LINE 4608u /* holds a line with the longest path */
HAK_HIDDEN bool os_maps_each(bool (*each)(const struct os_mapping *mapping, void *argument), void *argument, char *buffer, size_t size);

#define OS_BUILD_ID_MOST 32u

struct os_module {
    uintptr_t start, end; /* from the first loaded byte to behind the last */
    unsigned build_id_size;
    uint8_t build_id[OS_BUILD_ID_MOST];
};

/* Fills modules[] with what the dynamic linker has loaded, or in a static program with it and the vDSO; with GNU build-ids from the notes
 * in memory. Returns how many there are, which may be more than capacity. Takes the dynamic linker's lock: a foreign point (F1). */
HAK_HIDDEN size_t os_modules(struct os_module *modules, size_t capacity);

#endif
