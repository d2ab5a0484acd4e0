/*
 * The C library's names: C17 and C23, POSIX and glibc's extensions. Together with cxx.c and sized.c they are all the
 * allocation functions that a program can call, so that no block of one allocator reaches another.
 *
 * malloc and free are the fast path of front/fast.h and nothing else. tests/cost/golden counts their instructions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/contracts.h"
#include "api/glibc_malloc.h"
#include "api/interposed.h"
#include "api/names.h"
#include "api/sized.h"
#include "base/format.h"
#include "front/fast.h"
#include "front/front.h"
#include "observe/cycle_report.h"
#include "observe/report.h"
#include "observe/usage.h"
#include "os/cycles.h"
#include "os/os.h"

/* Some C libraries, or all, do not declare these. */
void *__libc_malloc(size_t size);
void __libc_free(void *block);
void __libc_cfree(void *block);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
void *__libc_reallocarray(void *block, size_t count, size_t size);
int __posix_memalign(void **block, size_t alignment, size_t size);

/* ---- Blocks ---- */

/* Begins a cache line: each of these two functions lies in two lines, however long the code before them is. */
#define API_HOT API_EXPORT __attribute__((aligned(HAK_CACHE_LINE)))

API_HOT void *malloc(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_malloc(size));
}

API_HOT void free(void *block)
{
    CYCLES_CALL(CYCLES_FREE_HIT, front_free(block); return);
}

API_EXPORT void *calloc(size_t count, size_t size)
{
    return contract_calloc(count, size);
}

API_EXPORT void *realloc(void *block, size_t size)
{
    return contract_realloc(block, size, "realloc");
}

static HAK_COLD void *interposed_reallocarray(void *block, size_t count, size_t size)
{
    size_t total;
    if (interposed_look(INTERPOSED_REALLOCARRAY) && !__builtin_mul_overflow(count, size, &total))
        return interposed.realloc(block, total);
    return contract_reallocarray(block, count, size);
}

API_EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
    if (interposed_may_be(INTERPOSED_REALLOCARRAY))
        return interposed_reallocarray(block, count, size);
    return contract_reallocarray(block, count, size);
}

API_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (interposed_may_be(INTERPOSED_ALIGNED_ALLOC) && base_is_pow2(alignment))
        return interposed_aligned_by(INTERPOSED_ALIGNED_ALLOC, alignment, size);
    return contract_aligned_alloc(alignment, size);
}

static HAK_COLD int interposed_posix_memalign(void **block, size_t alignment, size_t size)
{
    int saved_errno = errno; /* not BASE_KEEP_ERRNO: je/libc.c has exceptions */
    void *got = interposed_aligned_by(INTERPOSED_POSIX_MEMALIGN, alignment, size);

    errno = saved_errno;
    if (got == NULL)
        return ENOMEM;
    *block = got;
    return 0;
}

API_EXPORT int posix_memalign(void **block, size_t alignment, size_t size)
{
    if (interposed_may_be(INTERPOSED_POSIX_MEMALIGN) && base_is_pow2(alignment) && alignment >= sizeof(void *))
        return interposed_posix_memalign(block, alignment, size);
    return contract_posix_memalign(block, alignment, size);
}

/* The alignment is a power of two. */
HAK_INLINE void *aligned_by(enum interposed_name name, size_t alignment, size_t size)
{
    return interposed_may_be(name) ? interposed_aligned_by(name, alignment, size) : contract_aligned(alignment, size);
}

/* As glibc does, rounds an alignment that is no power of two up to the next one. False: there is none. */
HAK_INLINE bool make_alignment(size_t *alignment)
{
    if (HAK_LIKELY(base_is_pow2(*alignment)))
        return true;
    if (*alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return false;
    }
    *alignment = *alignment == 0 ? 1 : (size_t)2 << base_high_bit(*alignment);
    return true;
}

API_EXPORT void *memalign(size_t alignment, size_t size)
{
    return make_alignment(&alignment) ? aligned_by(INTERPOSED_MEMALIGN, alignment, size) : NULL;
}

API_EXPORT void *valloc(size_t size)
{
    return aligned_by(INTERPOSED_VALLOC, os_page_size(), size);
}

/* Rounds the size up to whole pages. False: too many. */
HAK_INLINE bool make_pages(size_t *size)
{
    size_t page = os_page_size();
    if (HAK_UNLIKELY(*size > SIZE_MAX - page + 1)) {
        errno = ENOMEM;
        return false;
    }
    *size = base_align_up(*size, page);
    return true;
}

API_EXPORT void *pvalloc(size_t size)
{
    return make_pages(&size) ? aligned_by(INTERPOSED_PVALLOC, os_page_size(), size) : NULL;
}

API_EXPORT void cfree(void *block)
{
    if (interposed_is(INTERPOSED_CFREE)) {
        interposed.free(block);
        return;
    }
    CYCLES_CALL(CYCLES_FREE_HIT, front_free(block); return);
}

API_EXPORT void free_sized(void *block, size_t size)
{
    sized_free(INTERPOSED_FREE_SIZED, block, size, 1, "free_sized");
}

API_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size)
{
    sized_free(INTERPOSED_FREE_ALIGNED_SIZED, block, size, alignment, "free_aligned_sized");
}

/* 0 for another object's block, whose usable size is not known. */
static HAK_COLD size_t interposed_usable_size(const void *block)
{
    if (interposed_look(INTERPOSED_SIZES))
        return block == NULL ? 0 : front_block_size(block);
    return front_usable_size(block, "malloc_usable_size");
}

API_EXPORT size_t malloc_usable_size(void *block)
{
    if (interposed_may_be(INTERPOSED_SIZES))
        return interposed_usable_size(block);
    return front_usable_size(block, "malloc_usable_size");
}

API_EXPORT size_t malloc_good_size(size_t size)
{
    return sized_good(size);
}

/* ---- The names by which programs call glibc's own malloc. They free the blocks with free. ---- */

API_EXPORT void *__libc_malloc(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_malloc(size));
}

API_EXPORT void __libc_free(void *block)
{
    CYCLES_CALL(CYCLES_FREE_HIT, front_free(block); return);
}

API_EXPORT void __libc_cfree(void *block)
{
    CYCLES_CALL(CYCLES_FREE_HIT, front_free(block); return);
}

API_EXPORT void *__libc_calloc(size_t count, size_t size)
{
    return contract_calloc(count, size);
}

API_EXPORT void *__libc_realloc(void *block, size_t size)
{
    return contract_realloc(block, size, "realloc");
}

API_EXPORT void *__libc_memalign(size_t alignment, size_t size)
{
    return make_alignment(&alignment) ? contract_aligned(alignment, size) : NULL;
}

API_EXPORT void *__libc_valloc(size_t size)
{
    return contract_aligned(os_page_size(), size);
}

API_EXPORT void *__libc_pvalloc(size_t size)
{
    return make_pages(&size) ? contract_aligned(os_page_size(), size) : NULL;
}

API_EXPORT void *__libc_reallocarray(void *block, size_t count, size_t size)
{
    return contract_reallocarray(block, count, size);
}

API_EXPORT int __posix_memalign(void **block, size_t alignment, size_t size)
{
    return contract_posix_memalign(block, alignment, size);
}

/* ---- Figures and settings of the glibc manual ("Statistics for Memory Allocation with malloc") ---- */

/* glibc's identity holds: arena = uordblks + fordblks, with its own headers counted as in use. */
API_EXPORT struct mallinfo2 mallinfo2(void)
{
    struct usage usage;
    struct usage_class rows[CLASS_COUNT];
    struct mallinfo2 info = { 0 };
    observe_usage(&usage);
    size_t classes = observe_usage_classes(rows, CLASS_COUNT);
    for (size_t i = 0; i < classes; i++)
        info.ordblks += rows[i].free_blocks;
    info.hblks = usage.huge_blocks;
    info.hblkhd = usage.huge_live;
    info.arena = usage.mapped - usage.huge_live;
    info.fordblks = usage.cached + usage.free_in_slab + usage.retained;
    info.uordblks = info.arena - info.fordblks;
    info.fsmblks = usage.cached;
    info.keepcost = usage.retained > usage.purged ? usage.retained - usage.purged : 0;
    return info;
}

static int saturate(size_t value)
{
    return value > INT_MAX ? INT_MAX : (int)value;
}

/* glibc deprecates it for its int fields. A figure that does not fit is INT_MAX here. */
API_EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = saturate(wide.arena),       .ordblks = saturate(wide.ordblks),   .hblks = saturate(wide.hblks),
        .hblkhd = saturate(wide.hblkhd),     .fsmblks = saturate(wide.fsmblks),   .uordblks = saturate(wide.uordblks),
        .fordblks = saturate(wide.fordblks), .keepcost = saturate(wide.keepcost),
    };
}

/* glibc's parameters set what HAKMEM does not have. They are accepted, because programs take a refusal for an error. */
API_EXPORT int mallopt(int parameter, int value)
{
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_NLBLKS:
    case M_GRAIN:
    case M_KEEP:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}

/* Gives all free memory back. `pad`, the bytes to keep at the top of glibc's heap, has no counterpart. */
API_EXPORT int malloc_trim(size_t pad)
{
    (void)pad;
    return front_collect(true) != 0;
}

API_EXPORT void malloc_stats(void)
{
    observe_report();
    if (HAK_CYCLES && hak_options.tiny_profile)
        observe_cycles((enum option_format)hak_options.tiny_profile);
}

/* In place of fprintf, whose frames are too large for a small stack. */
static void HAK_PRINTF(2, 3) info_print(FILE *out, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    base_format_v(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fputs(text, out);
}

static void print_totals(FILE *out, const struct usage *usage, size_t free_blocks)
{
    size_t pooled = usage->mapped - usage->huge_live;
    info_print(out, "<total type=\"fast\" count=\"0\" size=\"%zu\"/>\n", usage->cached);
    info_print(out, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", free_blocks,
            usage->free_in_slab + usage->retained);
    info_print(out, "<system type=\"current\" size=\"%zu\"/>\n", pooled);
    info_print(out, "<system type=\"max\" size=\"%zu\"/>\n", base_max(usage->footprint_peak, pooled));
    info_print(out, "<aspace type=\"total\" size=\"%zu\"/>\n", pooled);
    info_print(out, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", pooled);
}

/* glibc's document, with one heap for all, a size element for each class that has free blocks, and an element of
 * HAKMEM's own. From and to are both the class's size, the largest request that its blocks serve. */
API_EXPORT int malloc_info(int options, FILE *out)
{
    struct usage usage;
    struct usage_class rows[CLASS_COUNT];
    size_t free_blocks = 0;
    if (options != 0)
        return EINVAL;
    observe_usage(&usage);
    size_t classes = observe_usage_classes(rows, CLASS_COUNT);

    info_print(out, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
    for (size_t i = 0; i < classes; i++) {
        free_blocks += rows[i].free_blocks;
        if (rows[i].free_blocks != 0)
            info_print(out, "<size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", rows[i].block_size,
                    rows[i].block_size, rows[i].block_size * rows[i].free_blocks, rows[i].free_blocks);
    }
    info_print(out, "</sizes>\n");
    print_totals(out, &usage, free_blocks);
    info_print(out, "</heap>\n");
    print_totals(out, &usage, free_blocks);
    info_print(out, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", usage.huge_blocks, usage.huge_live);
    info_print(out, "<hakmem mapped=\"%zu\" live=\"%zu\" cached=\"%zu\" free_in_slab=\"%zu\" retained=\"%zu\" "
            "metadata=\"%zu\" purged=\"%zu\" superslabs=\"%zu\" heaps=\"%zu\"/>\n",
            usage.mapped, usage.live, usage.cached, usage.free_in_slab, usage.retained, usage.metadata, usage.purged,
            usage.superslabs, usage.heaps);
    info_print(out, "</malloc>\n");
    return 0;
}

/* ---- Names that api/interposed.c looks for ---- */

INTERPOSED_DEFINITION(AT_malloc, malloc, malloc)
INTERPOSED_DEFINITION(AT_free, free, free)
INTERPOSED_DEFINITION(AT_realloc, realloc, realloc)
INTERPOSED_DEFINITION(AT_memalign, memalign, memalign)
INTERPOSED_DEFINITION(AT_posix_memalign, posix_memalign, posix_memalign)
INTERPOSED_DEFINITION(AT_aligned_alloc, aligned_alloc, aligned_alloc)
INTERPOSED_DEFINITION(AT_reallocarray, reallocarray, reallocarray)
INTERPOSED_DEFINITION(AT_valloc, valloc, valloc)
INTERPOSED_DEFINITION(AT_pvalloc, pvalloc, pvalloc)
INTERPOSED_DEFINITION(AT_cfree, cfree, cfree)
INTERPOSED_DEFINITION(AT_free_sized, free_sized, free_sized)
INTERPOSED_DEFINITION(AT_free_aligned_sized, free_aligned_sized, free_aligned_sized)
