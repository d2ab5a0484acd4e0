/*
 * Allocation functions that another object defines before ours. A program, or an earlier preload, may define any set of
 * them. The dynamic linker then binds all calls of those names to that object, and all others to us.
 *
 * I1: where the C or C++ run-time implements a function by an interposable name (reallocarray by realloc, delete by
 *     free), ours calls the other object's function of that name if it comes first: the block is that object's.
 * I2: a function of ours whose own name another object defines first forwards nothing: its caller asked for the next
 *     definition (RTLD_NEXT).
 * I3: malloc, free, calloc, realloc and the hak_* names never forward. glibc's calloc and realloc call no malloc that
 *     could be interposed, and wrappers of malloc call them while they begin.
 *
 * docs/dev/interposition.md has the table of names. A library that was opened late is not the process's allocator: it
 * forwards nothing (os/symbols.h).
 */
#ifndef HAK_API_INTERPOSED_H
#define HAK_API_INTERPOSED_H

#include "base/base.h"

/* Functions of ours that forward to another object's. A bit is not set where I2 holds. */
enum interposed_name {
    INTERPOSED_REALLOCARRAY = 1 << 0,       /* to realloc */
    INTERPOSED_CFREE = 1 << 1,              /* to free, as the next three */
    INTERPOSED_FREE_SIZED = 1 << 2,
    INTERPOSED_FREE_ALIGNED_SIZED = 1 << 3,
    INTERPOSED_SDALLOCX = 1 << 4,
    INTERPOSED_ALIGNED_ALLOC = 1 << 5,      /* to an aligned function where free comes first, as the next four */
    INTERPOSED_MEMALIGN = 1 << 6,
    INTERPOSED_POSIX_MEMALIGN = 1 << 7,
    INTERPOSED_VALLOC = 1 << 8,
    INTERPOSED_PVALLOC = 1 << 9,
    INTERPOSED_SIZES = 1 << 10,             /* a block may be another object's, so its size is not known */
    INTERPOSED_OPERATORS = 1 << 11,         /* C++ operators */
};

/* The names that interposed_look looks for. */
enum interposed_at {
    AT_malloc, /* first: os/symbols.h tells this object by it */
    AT_free,
    AT_realloc,
    AT_memalign,
    AT_posix_memalign,
    AT_aligned_alloc,
    AT_new_one,
    AT_new_array,
    AT_new_aligned,
    AT_new_aligned_array,
    AT_delete_one,
    AT_delete_array,
    AT_delete_aligned,
    AT_delete_aligned_array,
    AT_reallocarray,
    AT_valloc,
    AT_pvalloc,
    AT_cfree,
    AT_free_sized,
    AT_free_aligned_sized,
    AT_sdallocx,
    AT_COUNT
};

/* Each definition registers itself, so that no list names them all. `retain`: lld with --gc-sections drops a section
 * that only its start and end symbols name. */
struct interposed_definition {
    unsigned at;
    const char *name;
    void (*visible)(void); /* what the public name is bound to here */
    void (*own)(void);     /* our definition, which a program's may replace where ours is weak */
};
#define INTERPOSED_DEFINITION(at, public_name, own_name)                                              \
    static const struct interposed_definition definition_of_##public_name                             \
        __attribute__((used, retain, section("hakmem_names"))) =                                      \
        { at, #public_name, (void (*)(void))(public_name), (void (*)(void))(own_name) };

/* Another object's functions that come before ours. NULL: ours is first. */
struct interposed {
    void *(*malloc)(size_t size);
    void (*free)(void *block);
    void *(*realloc)(void *block, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    void *(*memalign)(size_t alignment, size_t size);
    int (*posix_memalign)(void **block, size_t alignment, size_t size);
    /* The C++ operators on which the run-time builds the rest. */
    void *(*new_one)(size_t size);
    void *(*new_array)(size_t size);
    void *(*new_aligned)(size_t size, size_t alignment);
    void *(*new_aligned_array)(size_t size, size_t alignment);
    void (*delete_one)(void *block);
    void (*delete_array)(void *block);
    void (*delete_aligned)(void *block, size_t alignment);
    void (*delete_aligned_array)(void *block, size_t alignment);
};
HAK_DATA struct interposed interposed; /* valid once interposed_look returned */

/* Bits of interposed_name; all are set until the first look. Order: any; if a bit is set, ask interposed_look. */
HAK_DATA _Atomic uint32_t interposed_names;
HAK_HIDDEN bool interposed_look(enum interposed_name name);

/* Whether the function may have to forward; two instructions if not. If so, interposed_look tells: a separate function,
 * so that the usual path needs no frame. Any thread. */
HAK_INLINE bool interposed_may_be(enum interposed_name name)
{
    return HAK_UNLIKELY((atomic_load_explicit(&interposed_names, memory_order_relaxed) & name) != 0);
}

HAK_INLINE bool interposed_is(enum interposed_name name)
{
    return interposed_may_be(name) && interposed_look(name);
}

/* An aligned block from the other object, if it has a function for that, else from us. alignment: a power of two. */
HAK_HIDDEN void *interposed_aligned(size_t alignment, size_t size);

/* As interposed_aligned, for the function `name`, which may forward. */
HAK_HIDDEN void *interposed_aligned_by(enum interposed_name name, size_t alignment, size_t size);

/* Frees a block of the other object's. An `aligned` block may be ours (interposed_aligned). */
HAK_HIDDEN void interposed_free(void *block, bool aligned, const char *function);

#endif
