/* Symbols of the objects that the dynamic linker has loaded. No call allocates or changes errno. */
#ifndef HAK_OS_SYMBOLS_H
#define HAK_OS_SYMBOLS_H

#include "base/base.h"

/* ---- Which object defines a name before this one does, in the dynamic linker's order of lookup ---- */

struct os_symbol {
    const char *name;
    const void *own; /* address of this object's definition */
    uint32_t hash;   /* out: of the name */
    void *before;    /* out: address of the first definition in an object before this one, or NULL */
};

/*
 * Fills `before` of all symbols. symbols[0].own identifies this object: the walk ends at the object whose definition
 * has that address. False, and all NULL: the program is static, or this object comes after the C library because it
 * was opened late or in a namespace of its own. Such an object is not the process's allocator; only code that looked
 * up its names there uses them.
 *
 * Reads the dynamic linker's list of objects without a lock: call it before the program's constructors run, or from
 * this object's own.
 */
HAK_HIDDEN bool os_symbols_before(struct os_symbol *symbols, size_t count);

/* Whether an object behind this one defines the name, other than those whose file's name begins with one of
 * `exceptions` (which end with NULL). `own` is the address of this object's definition. Reads the list as
 * os_symbols_before does. */
HAK_HIDDEN bool os_symbol_is_behind(const char *name, const void *own, const char *const *exceptions);

/* The symbol's address in the first loaded library whose file's name begins with one of the names (the list ends with
 * NULL), or NULL. dlsym would need a handle, and there is none for a library that another one needs. Waits for a thread
 * that loads or unloads a library. */
HAK_HIDDEN void *os_symbol_of(const char *const *libraries, const char *name);

/* ---- What one object defines ---- */

struct os_definition {
    const char *name;
    uintptr_t address; /* out: 0 if the object does not define it */
    size_t size;       /* out */
};

/* Fills the definitions (functions or data) from the first loaded object that defines definitions[0], and stores where
 * its code is. False: there is none, or the program is static. Waits for a thread that loads or unloads a library. */
HAK_HIDDEN bool os_symbols_defined(struct os_definition *definitions, size_t count, uintptr_t *code_start,
                                   uintptr_t *code_end);

/* ---- os_symbols_defined without a lock (symbols_peek.c) ---- */

/* For the child of a fork: a thread that is gone may hold the dynamic linker's lock. Reads by system calls (os/peek.h),
 * because another thread may unload an object meanwhile: a hundred or so for each object. Knows only objects with a GNU
 * hash table. The code is the mapping around definitions[code]. */
HAK_HIDDEN bool os_symbols_peek(struct os_definition *definitions, size_t count, unsigned code, uintptr_t *code_start,
                                uintptr_t *code_end);

/* Where the mapping of the address is. False: there is none. */
HAK_HIDDEN bool os_mapping_around(uintptr_t address, uintptr_t *start, uintptr_t *end);

#endif
