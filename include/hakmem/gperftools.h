/*
 * gperftools' interface in C, as libhakmem-tc.so serves it: the names of <gperftools/malloc_extension_c.h> and of
 * <gperftools/tcmalloc.h>. docs/jemalloc.md has a table of them, and of the properties.
 *
 * Every function may be called from any thread, but not from a signal handler.
 */
#ifndef HAKMEM_GPERFTOOLS_H
#define HAKMEM_GPERFTOOLS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAKMEM_TC __attribute__((visibility("default")))

/* ---- MallocExtension. Results of type int are 1 for yes and 0 for no ---- */

#define kMallocExtensionHistogramSize 64

/* Counts all blocks, and returns 1. HAKMEM reports damage when a call meets it. */
HAKMEM_TC int MallocExtension_VerifyAllMemory(void);
/* Whether the address is a live block. */
HAKMEM_TC int MallocExtension_VerifyNewMemory(const void *p);
HAKMEM_TC int MallocExtension_VerifyArrayNewMemory(const void *p);
HAKMEM_TC int MallocExtension_VerifyMallocMemory(const void *p);

/* Live blocks: their number, their bytes, and in histogram[i] the number of those of 2^i to 2^(i+1) - 1 bytes. Huge
 * blocks count with their mean size. */
HAKMEM_TC int MallocExtension_MallocMemoryStats(int *blocks, size_t *total,
                                                int histogram[kMallocExtensionHistogramSize]);

/* HAKMEM's statistics as text, cut where the buffer ends, with a NUL. */
HAKMEM_TC void MallocExtension_GetStats(char *buffer, int buffer_length);

/* Read and set a property by name. 0: there is no such property, or it cannot be set. */
HAKMEM_TC int MallocExtension_GetNumericProperty(const char *property, size_t *value);
HAKMEM_TC int MallocExtension_SetNumericProperty(const char *property, size_t value);

HAKMEM_TC void MallocExtension_MarkThreadIdle(void);
HAKMEM_TC void MallocExtension_MarkThreadBusy(void);
HAKMEM_TC void MallocExtension_MarkThreadTemporarilyIdle(void);

/* Give all free memory back to the system, if `num_bytes` is not 0. */
HAKMEM_TC void MallocExtension_ReleaseToSystem(size_t num_bytes);
HAKMEM_TC void MallocExtension_ReleaseFreeMemory(void);

/* Rate 1 is the purge delay as it was before the first call, rate 10 a tenth of it, rate 0 the longest delay. */
HAKMEM_TC void MallocExtension_SetMemoryReleaseRate(double rate);
HAKMEM_TC double MallocExtension_GetMemoryReleaseRate(void);

HAKMEM_TC size_t MallocExtension_GetEstimatedAllocatedSize(size_t size);
HAKMEM_TC size_t MallocExtension_GetAllocatedSize(const void *p);
/* Bytes of free blocks in the calling thread's cache. */
HAKMEM_TC size_t MallocExtension_GetThreadCacheSize(void);

typedef enum {
    MallocExtension_kUnknownOwnership = 0,
    MallocExtension_kOwned,
    MallocExtension_kNotOwned
} MallocExtension_Ownership;

HAKMEM_TC MallocExtension_Ownership MallocExtension_GetOwnership(const void *p);

/* ---- The standard names with tc_ before them ---- */

HAKMEM_TC const char *tc_version(int *major, int *minor, const char **patch);
HAKMEM_TC void *tc_malloc(size_t size);
HAKMEM_TC void *tc_malloc_skip_new_handler(size_t size);
HAKMEM_TC void tc_free(void *p);
HAKMEM_TC void tc_free_sized(void *p, size_t size);
HAKMEM_TC void *tc_realloc(void *p, size_t size);
HAKMEM_TC void *tc_calloc(size_t nmemb, size_t size);
HAKMEM_TC void tc_cfree(void *p);
HAKMEM_TC void *tc_memalign(size_t alignment, size_t size);
HAKMEM_TC int tc_posix_memalign(void **p, size_t alignment, size_t size);
HAKMEM_TC void *tc_valloc(size_t size);
HAKMEM_TC void *tc_pvalloc(size_t size);
HAKMEM_TC size_t tc_malloc_size(void *p);
HAKMEM_TC size_t tc_nallocx(size_t size, int flags);

#undef HAKMEM_TC

#ifdef __cplusplus
}
#endif

#endif
