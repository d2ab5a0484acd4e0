/* The two jemalloc names that programs look for in any allocator. libhakmem-je.so has those of je/blocks.c instead.
 *
 * A program that is linked to jemalloc, such as BIND, gets mallocx from there and sdallocx from here. A block that is
 * not HAKMEM's goes on to the next sdallocx, and nallocx promises what both allocators keep.
 */
#define _GNU_SOURCE
#include "api/sized.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "api/names.h"

/* Before glibc 2.34 a process may lack the library that defines dlsym. */
extern __typeof__(dlsym) dlsym __attribute__((weak));

/* ISO C cannot convert what dlsym returns to a pointer to a function. */
union sized_symbol {
    void *address;
    void (*sdallocx)(void *block, size_t size, int flags);
    size_t (*nallocx)(size_t size, int flags);
};

/* The next definition of the name after HAKMEM's; NULL: none. The first call looks, and keeps what it finds. */
static union sized_symbol sized_next(const char *name, _Atomic uintptr_t *kept)
{
    enum { UNKNOWN, NONE }; /* else the address. Order: any; every thread finds the same */
    uintptr_t found = atomic_load_explicit(kept, memory_order_relaxed);

    if (found == UNKNOWN) {
        void *address = dlsym != NULL ? dlsym(RTLD_NEXT, name) : NULL;
        found = address != NULL ? (uintptr_t)address : NONE;
        atomic_store_explicit(kept, found, memory_order_relaxed);
    }
    return (union sized_symbol){ .address = found == NONE ? NULL : (void *)found };
}

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    static _Atomic uintptr_t kept; /* Order: relaxed, see sized_next */
    union sized_symbol next = sized_next("sdallocx", &kept);

    if (next.address != NULL && block != NULL && front_block_size(block) == 0)
        next.sdallocx(block, size, flags);
    else
        sized_free(INTERPOSED_SDALLOCX, block, size, sized_flags_alignment(flags), "sdallocx");
}

API_EXPORT size_t nallocx(size_t size, int flags)
{
    static _Atomic uintptr_t kept; /* Order: relaxed, see sized_next */
    union sized_symbol next = sized_next("nallocx", &kept);
    size_t own = sized_with_flags(size, flags);

    return next.address != NULL ? base_min(own, next.nallocx(size, flags)) : own;
}

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
