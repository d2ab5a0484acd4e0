/* Symbols of the objects that the dynamic linker has loaded. No call allocates or changes errno. */
#ifndef HAK_OS_SYMBOLS_H
#define HAK_OS_SYMBOLS_H

#include "base/base.h"

/* ---- Who defines a name before this object does, in the order in which names are looked up ---- */

struct os_symbol {
    const char *name;
    const void *own; /* address of this object's definition */
    uint32_t hash;   /* out: of the name */
    void *before;    /* out: address of the first definition in an object before this one, or NULL */
};

/*
 * Fills `before` of all symbols. symbols[0].own tells this object from the others: the walk ends at the object whose
 * definition has that address. False, and all NULL, in a static program, or where this object comes behind the C
 * library: opened late, or in a namespace of its own. Such an object is not the process's allocator, and its names
 * belong to those who looked them up there.
 *
 * Reads the dynamic linker's list of objects without a lock: call it before the program's constructors run, or from
 * one's own.
 */
HAK_HIDDEN bool os_symbols_before(struct os_symbol *symbols, size_t count);

/* The symbol's address in the first loaded library whose file has one of the names (the list ends with NULL), or
 * NULL. dlsym would want a handle, which libraries that came for another's sake don't have. Waits for a thread that
 * loads or unloads a library. */
HAK_HIDDEN void *os_symbol_of(const char *const *libraries, const char *name);

#endif
