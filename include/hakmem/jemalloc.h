/*
 * jemalloc's interface, as libhakmem-je.so serves it, for programs written against <jemalloc/jemalloc.h>. Its manual is
 * the contract. docs/jemalloc.md has a table of every name, served or not, and says where meanings differ.
 *
 * A program may call each function by its plain name or with je_ before it. If it defines JEMALLOC_MANGLE before the
 * first inclusion, plain names are macros for those with je_, for sources that have functions of the plain names.
 *
 * Sizes and alignments are bytes. Every function may be called from any thread, but not from a signal handler.
 */
#ifndef HAKMEM_JEMALLOC_H
#define HAKMEM_JEMALLOC_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strings.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface. hak_version() returns the library's own. */
#define JEMALLOC_VERSION "5.3.0-0-g0"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 0
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "0"
#define JEMALLOC_VERSION_GID_IDENT 0

/* Tells Redis, and Valkey before 8.1, that there is a get_defrag_hint. */
#define JEMALLOC_FRAG_HINT

/* ---- Flags of the functions whose names end in x; they are added up ---- */

/* The logarithm of the alignment, or the alignment itself, a power of two. */
#define MALLOCX_LG_ALIGN(la) ((int)(la))
#define MALLOCX_ALIGN(a) ((int)(((size_t)(a) < (size_t)INT_MAX) ? ffs((int)(a)) - 1 : ffs((int)((size_t)(a) >> 32)) + \
    31))

/* New bytes are zero. */
#define MALLOCX_ZERO ((int)0x40)

/* A cache that tcache.create made. NONE: the block comes from no thread cache and will go to none. */
#define MALLOCX_TCACHE(tc) ((int)(((tc) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)

/* An arena that arenas.create made, or 0. */
#define MALLOCX_ARENA(a) ((((int)(a)) + 1) << 20)

/* In names of mallctl in place of an arena's number: all arenas, and those that were destroyed. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

#define JEMALLOC_API __attribute__((visibility("default")))
#ifdef __cplusplus
#define JEMALLOC_NOTHROW noexcept
#else
#define JEMALLOC_NOTHROW
#endif

/* Declares a function by both names. */
#define JEMALLOC_BOTH(result, name, parameters)        \
    JEMALLOC_API result name parameters JEMALLOC_NOTHROW; \
    JEMALLOC_API result je_##name parameters JEMALLOC_NOTHROW;

/* ---- Blocks. `size` is not 0 ---- */

/* NULL: no memory, or no such arena. */
JEMALLOC_BOTH(void *, mallocx, (size_t size, int flags))

/* Resizes the block, which is not NULL, to at least `size` bytes. It may move. NULL: the old block is untouched. */
JEMALLOC_BOTH(void *, rallocx, (void *ptr, size_t size, int flags))

/* Resizes in place to size + extra bytes, or as near as possible. Returns the new usable size, which is less than
 * `size` if there is no room. */
JEMALLOC_BOTH(size_t, xallocx, (void *ptr, size_t size, size_t extra, int flags))

/* The usable size of a block. */
JEMALLOC_BOTH(size_t, sallocx, (const void *ptr, int flags))

/* Frees. `size` is between the requested size and sallocx's. Any other is misuse, and ends the program. */
JEMALLOC_BOTH(void, dallocx, (void *ptr, int flags))
JEMALLOC_BOTH(void, sdallocx, (void *ptr, size_t size, int flags))

/* The usable size that mallocx would give. 0: there can be no such block. */
JEMALLOC_BOTH(size_t, nallocx, (size_t size, int flags))

/* Not 0: a new block of the same size would lie in better-used memory, so this one is worth moving, by mallocx and
 * dallocx with MALLOCX_TCACHE_NONE. */
JEMALLOC_BOTH(int, get_defrag_hint, (void *ptr))

/* ---- Figures and settings ---- */

/* Read and write values by name. Return 0, ENOENT (no such name or number), EINVAL (another size, or a bad value),
 * EPERM (cannot be read, or not be written), EAGAIN (no memory or no number left), EFAULT (it could not be done). */
JEMALLOC_BOTH(int, mallctl, (const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen))
JEMALLOC_BOTH(int, mallctlnametomib, (const char *name, size_t *mibp, size_t *miblenp))
JEMALLOC_BOTH(int, mallctlbymib,
              (const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen))

/* Prints HAKMEM's statistics through `write_cb`, or malloc_message if that is NULL; as JSON if `opts` has a J. */
JEMALLOC_BOTH(void, malloc_stats_print, (void (*write_cb)(void *, const char *), void *cbopaque, const char *opts))

/* Prints the statistics if the caller passes no function. NULL: standard error. */
extern JEMALLOC_API void (*malloc_message)(void *cbopaque, const char *text);
extern JEMALLOC_API void (*je_malloc_message)(void *cbopaque, const char *text);

/* A program may define one of these; it is read before the environment's MALLOC_CONF. */
extern JEMALLOC_API const char *malloc_conf;
extern JEMALLOC_API const char *je_malloc_conf;

/* The results of experimental.utilization.batch_query, for each block, and below of experimental.utilization.query. */
struct jemalloc_utilization {
    size_t nfree; /* free blocks of its slab; 0 if the block has memory of its own */
    size_t nregs; /* all blocks of its slab */
    size_t size;  /* bytes of the slab; 0: there is no such block */
};
struct jemalloc_utilization_verbose {
    void *slabcur_addr; /* the slab of the calling thread's next block of that size, or NULL */
    size_t nfree, nregs, size;
    size_t bin_nfree, bin_nregs; /* of all slabs of that block size */
};

/* ---- The standard names with the prefix ---- */

JEMALLOC_API void *je_malloc(size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void *je_calloc(size_t num, size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void *je_realloc(void *ptr, size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void je_free(void *ptr) JEMALLOC_NOTHROW;
JEMALLOC_API int je_posix_memalign(void **memptr, size_t alignment, size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void *je_aligned_alloc(size_t alignment, size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void *je_memalign(size_t alignment, size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API void *je_valloc(size_t size) JEMALLOC_NOTHROW;
JEMALLOC_API size_t je_malloc_usable_size(const void *ptr) JEMALLOC_NOTHROW;

#undef JEMALLOC_BOTH

#ifdef JEMALLOC_MANGLE
#define mallocx je_mallocx
#define rallocx je_rallocx
#define xallocx je_xallocx
#define sallocx je_sallocx
#define dallocx je_dallocx
#define sdallocx je_sdallocx
#define nallocx je_nallocx
#define get_defrag_hint je_get_defrag_hint
#define mallctl je_mallctl
#define mallctlnametomib je_mallctlnametomib
#define mallctlbymib je_mallctlbymib
#define malloc_stats_print je_malloc_stats_print
#define malloc_message je_malloc_message
#define malloc_conf je_malloc_conf
#endif

#ifdef __cplusplus
}
#endif

#endif
