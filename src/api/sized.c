/* The two jemalloc names that programs look for in any allocator. libhakmem-je.so has those of je/blocks.c instead.
 *
 * A program that is linked to jemalloc, such as BIND, gets mallocx from there and sdallocx from here. A block that is
 * not HAKMEM's goes on to jemalloc's sdallocx, and nallocx promises what both allocators keep.
 */
#include "api/sized.h"

#include <stdatomic.h>
#include <stddef.h>

#include "api/names.h"
#include "os/symbols.h"

/* ISO C cannot convert a found address to a pointer to a function. */
union sized_symbol {
    void *address;
    void (*sdallocx)(void *block, size_t size, int flags);
    size_t (*nallocx)(size_t size, int flags);
};

/* Not by dlsym: where it finds nothing, it keeps a text for the program's next dlerror. */
static union sized_symbol sized_of_jemalloc(const char *name)
{
    static const char *const libraries[] = { "libjemalloc.so.2", "libjemalloc.so.1", NULL };

    return (union sized_symbol){ .address = os_symbol_of(libraries, name) };
}

/* Looks at each block that is not ours, so that a jemalloc that is loaded later is found, too. */
static __attribute__((noinline)) bool sized_free_foreign(void *block, size_t size, int flags)
{
    union sized_symbol next = sized_of_jemalloc("sdallocx");

    if (next.address != NULL)
        next.sdallocx(block, size, flags);
    return next.address != NULL;
}

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    if (block != NULL && front_block_size(block) == 0 && !interposed_is(INTERPOSED_SDALLOCX) &&
        sized_free_foreign(block, size, flags))
        return;
    sized_free(INTERPOSED_SDALLOCX, block, size, sized_flags_alignment(flags), "sdallocx");
}

API_EXPORT size_t nallocx(size_t size, int flags)
{
    enum { UNKNOWN, NONE }; /* else the address */
    static _Atomic uintptr_t kept; /* Order: relaxed; every thread finds the same */
    union sized_symbol next = { NULL };
    uintptr_t found = atomic_load_explicit(&kept, memory_order_relaxed);
    size_t own = sized_with_flags(size, flags);

    if (HAK_UNLIKELY(found == UNKNOWN)) {
        next = sized_of_jemalloc("nallocx");
        found = next.address != NULL ? (uintptr_t)next.address : NONE;
        atomic_store_explicit(&kept, found, memory_order_relaxed);
    }
    if (HAK_LIKELY(found == NONE))
        return own;
    next.address = (void *)found;
    return base_min(own, next.nallocx(size, flags));
}

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
