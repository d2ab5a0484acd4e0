/* thread.allocated and thread.deallocated: each function that allocates, frees or resizes counts the block's usable
 * size, in a thread with a cache, in one without, and in one that is bound to an arena. */
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <hakmem/hakmem.h>
#include <jemalloc/jemalloc.h>

#include "check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- Names that no header declares, or not every one ---- */

void cfree(void *block);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
void *__libc_reallocarray(void *block, size_t count, size_t size);
int __posix_memalign(void **block, size_t alignment, size_t size);
void __libc_free(void *block);
void __libc_cfree(void *block);

struct sized {
    void *block;
    size_t size;
};
void *_Znwm(size_t size);
void *_Znam(size_t size);
void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow);
void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void *_ZnamSt11align_val_t(size_t size, size_t alignment);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow);
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow);
void *_Znwm12__hot_cold_t(size_t size, unsigned char hint);
void *_ZnwmSt11align_val_t12__hot_cold_t(size_t size, size_t alignment, unsigned char hint);
struct sized __size_returning_new(size_t size);
struct sized __size_returning_new_aligned(size_t size, size_t alignment);
void _ZdlPv(void *block);
void _ZdaPv(void *block);
void _ZdlPvRKSt9nothrow_t(void *block, const void *nothrow);
void _ZdaPvRKSt9nothrow_t(void *block, const void *nothrow);
void _ZdlPvm(void *block, size_t size);
void _ZdaPvm(void *block, size_t size);
void _ZdlPvSt11align_val_t(void *block, size_t alignment);
void _ZdaPvSt11align_val_t(void *block, size_t alignment);
void _ZdlPvmSt11align_val_t(void *block, size_t size, size_t alignment);
void _ZdaPvmSt11align_val_t(void *block, size_t size, size_t alignment);

/* ---- The calling thread's counters ---- */

static _Thread_local uint64_t *allocated, *freed;

static void find_counters(void)
{
    size_t size = sizeof allocated;

    CHECK(mallctl("thread.allocatedp", &allocated, &size, NULL, 0) == 0);
    CHECK(mallctl("thread.deallocatedp", &freed, &size, NULL, 0) == 0);
}

static void check_counts(const char *name, size_t size, uint64_t by, uint64_t back, uint64_t before, uint64_t gone)
{
    if (*allocated - before == by && *freed - gone == back)
        return;
    fprintf(stderr, "%s of %zu bytes: allocated %ju, not %ju; freed %ju, not %ju\n", name, size,
            (uintmax_t)(*allocated - before), (uintmax_t)by, (uintmax_t)(*freed - gone), (uintmax_t)back);
    exit(1);
}

/* ---- Functions that allocate: an entry's expression has `n` bytes ---- */

static hak_heap_t *heap;
static unsigned arena;

static void *by_posix(int (*function)(void **, size_t, size_t), size_t n)
{
    void *block;
    return function(&block, 256, n) == 0 ? block : NULL;
}

static void *by_batch(size_t n)
{
    void *block;
    return hak_malloc_batch(n, 1, &block) == 1 ? block : NULL;
}

#define ALLOCATIONS(X)                                                        \
    X(malloc, malloc(n)) X(calloc, calloc(1, n)) X(realloc, realloc(NULL, n)) \
    X(reallocarray, reallocarray(NULL, 1, n)) X(aligned_alloc, aligned_alloc(16, n)) \
    X(aligned_alloc_page, aligned_alloc(4096, n)) X(aligned_alloc_unit, aligned_alloc(128 * KIB, n)) \
    X(memalign, memalign(64, n)) X(valloc, valloc(n)) X(pvalloc, pvalloc(n)) \
    X(posix_memalign, by_posix(posix_memalign, n)) X(__posix_memalign, by_posix(__posix_memalign, n)) \
    X(__libc_malloc, __libc_malloc(n)) X(__libc_calloc, __libc_calloc(1, n)) \
    X(__libc_realloc, __libc_realloc(NULL, n)) X(__libc_memalign, __libc_memalign(64, n)) \
    X(__libc_valloc, __libc_valloc(n)) X(__libc_pvalloc, __libc_pvalloc(n)) \
    X(__libc_reallocarray, __libc_reallocarray(NULL, 1, n)) \
    X(hak_malloc, hak_malloc(n)) X(hak_calloc, hak_calloc(1, n)) X(hak_realloc, hak_realloc(NULL, n)) \
    X(hak_reallocarray, hak_reallocarray(NULL, 1, n)) X(hak_aligned_alloc, hak_aligned_alloc(64, n)) \
    X(hak_posix_memalign, by_posix(hak_posix_memalign, n)) X(hak_alloc_at, hak_alloc_at(n, NULL)) \
    X(hak_malloc_batch, by_batch(n)) X(hak_heap_malloc, hak_heap_malloc(heap, n)) \
    X(hak_heap_calloc, hak_heap_calloc(heap, 1, n)) X(hak_heap_realloc, hak_heap_realloc(heap, NULL, n)) \
    X(hak_heap_aligned_alloc, hak_heap_aligned_alloc(heap, 64, n)) \
    X(mallocx, mallocx(n, 0)) X(mallocx_zero, mallocx(n, MALLOCX_ZERO)) X(mallocx_align, mallocx(n, 8)) \
    X(mallocx_both, mallocx(n, 8 | MALLOCX_ZERO)) X(mallocx_none, mallocx(n, MALLOCX_TCACHE_NONE)) \
    X(mallocx_none_both, mallocx(n, MALLOCX_TCACHE_NONE | MALLOCX_ZERO | 8)) \
    X(mallocx_arena, mallocx(n, MALLOCX_ARENA(arena))) X(mallocx_arena_0, mallocx(n, MALLOCX_ARENA(0))) \
    X(je_malloc, je_malloc(n)) X(je_calloc, je_calloc(1, n)) X(je_realloc, je_realloc(NULL, n)) \
    X(je_posix_memalign, by_posix(je_posix_memalign, n)) X(je_aligned_alloc, je_aligned_alloc(64, n)) \
    X(je_memalign, je_memalign(64, n)) X(je_valloc, je_valloc(n)) X(je_mallocx, je_mallocx(n, 0)) \
    X(new, _Znwm(n)) X(new_array, _Znam(n)) X(new_nothrow, _ZnwmRKSt9nothrow_t(n, NULL)) \
    X(new_array_nothrow, _ZnamRKSt9nothrow_t(n, NULL)) X(new_aligned, _ZnwmSt11align_val_t(n, 64)) \
    X(new_array_aligned, _ZnamSt11align_val_t(n, 64)) \
    X(new_aligned_nothrow, _ZnwmSt11align_val_tRKSt9nothrow_t(n, 64, NULL)) \
    X(new_array_aligned_nothrow, _ZnamSt11align_val_tRKSt9nothrow_t(n, 64, NULL)) \
    X(new_hot_cold, _Znwm12__hot_cold_t(n, 0)) X(new_aligned_hot_cold, _ZnwmSt11align_val_t12__hot_cold_t(n, 64, 0)) \
    X(size_returning_new, __size_returning_new(n).block) \
    X(size_returning_new_aligned, __size_returning_new_aligned(n, 64).block)

#define FUNCTION(name, expression) \
    static void *allocates_##name(size_t n) { return expression; }
ALLOCATIONS(FUNCTION)
#undef FUNCTION

static const struct {
    const char *name;
    void *(*call)(size_t n);
} allocations[] = {
#define ROW(name, expression) { #name, allocates_##name },
    ALLOCATIONS(ROW)
#undef ROW
};

/* ---- Functions that free a block of malloc's ---- */

#define FREES(X)                                                                       \
    X(free, free(block)) X(cfree, cfree(block)) X(free_sized, free_sized(block, n))    \
    X(free_aligned_sized, free_aligned_sized(block, 16, n)) X(realloc_0, CHECK(realloc(block, 0) == NULL)) \
    X(__libc_free, __libc_free(block)) X(__libc_cfree, __libc_cfree(block)) \
    X(hak_free, hak_free(block)) X(hak_free_sized, hak_free_sized(block, n)) \
    X(hak_free_aligned_sized, hak_free_aligned_sized(block, 16, n)) \
    X(hak_realloc_0, CHECK(hak_realloc(block, 0) == NULL)) \
    X(hak_free_batch, hak_free_batch(&block, 1)) \
    X(hak_heap_realloc_0, CHECK(hak_heap_realloc(heap, block, 0) == NULL)) \
    X(dallocx, dallocx(block, 0)) X(dallocx_none, dallocx(block, MALLOCX_TCACHE_NONE)) \
    X(dallocx_arena, dallocx(block, MALLOCX_ARENA(arena))) \
    X(sdallocx, sdallocx(block, n, 0)) X(sdallocx_align, sdallocx(block, n, 4)) \
    X(sdallocx_none, sdallocx(block, n, MALLOCX_TCACHE_NONE)) \
    X(je_free, je_free(block)) X(je_dallocx, je_dallocx(block, 0)) X(je_sdallocx, je_sdallocx(block, n, 0)) \
    X(delete, _ZdlPv(block)) X(delete_array, _ZdaPv(block)) X(delete_nothrow, _ZdlPvRKSt9nothrow_t(block, NULL)) \
    X(delete_array_nothrow, _ZdaPvRKSt9nothrow_t(block, NULL)) X(delete_sized, _ZdlPvm(block, n)) \
    X(delete_array_sized, _ZdaPvm(block, n)) X(delete_aligned, _ZdlPvSt11align_val_t(block, 16)) \
    X(delete_array_aligned, _ZdaPvSt11align_val_t(block, 16)) \
    X(delete_sized_aligned, _ZdlPvmSt11align_val_t(block, n, 16)) \
    X(delete_array_sized_aligned, _ZdaPvmSt11align_val_t(block, n, 16))

#define FUNCTION(name, statement) \
    static void frees_##name(void *block, size_t n) { (void)n; statement; }
FREES(FUNCTION)
#undef FUNCTION

static const struct {
    const char *name;
    void (*call)(void *block, size_t n);
} frees[] = {
#define ROW(name, expression) { #name, frees_##name },
    FREES(ROW)
#undef ROW
};

/* ---- Functions that resize a block ---- */

static void *expand(void *block, size_t n) { return hak_expand(block, n), block; }

#define RESIZES(X)                                                                              \
    X(realloc, realloc(block, n)) X(reallocarray, reallocarray(block, 1, n)) \
    X(__libc_realloc, __libc_realloc(block, n)) \
    X(hak_realloc, hak_realloc(block, n)) X(hak_reallocarray, hak_reallocarray(block, 1, n)) \
    X(hak_heap_realloc, hak_heap_realloc(heap, block, n)) X(hak_expand, expand(block, n)) \
    X(je_realloc, je_realloc(block, n)) X(rallocx, rallocx(block, n, 0)) X(rallocx_align, rallocx(block, n, 8)) \
    X(rallocx_page, rallocx(block, n, 12 | MALLOCX_ZERO)) X(rallocx_none, rallocx(block, n, MALLOCX_TCACHE_NONE)) \
    X(rallocx_arena, rallocx(block, n, MALLOCX_ARENA(arena))) X(rallocx_arena_0, rallocx(block, n, MALLOCX_ARENA(0))) \
    X(xallocx, (xallocx(block, n, 0, 0), block)) X(xallocx_extra, (xallocx(block, n, 64 * KIB, 0), block))

#define FUNCTION(name, expression) \
    static void *resizes_##name(void *block, size_t n) { return expression; }
RESIZES(FUNCTION)
#undef FUNCTION

static const struct {
    const char *name;
    void *(*call)(void *block, size_t n);
} resizes[] = {
#define ROW(name, expression) { #name, resizes_##name },
    RESIZES(ROW)
#undef ROW
};

/* ---- The checks ---- */

static const size_t sizes[] = { 1, 100, 1000, 1025, 5000, 60000, 200000, MIB, 3 * MIB };
enum { SIZES = sizeof sizes / sizeof *sizes, BLOCKS = 40 };

static unsigned arena_of(void *block)
{
    unsigned number;
    size_t size = sizeof number;

    CHECK(mallctl("arenas.lookup", &number, &size, &block, sizeof block) == 0);
    return number;
}

/* More blocks than a refill gives, so that calls hit and miss the cache. */
static void check_allocation(unsigned row, size_t size)
{
    void *blocks[BLOCKS];
    int count = size > 64 * KIB ? 3 : BLOCKS;

    for (int i = 0; i < count; i++) {
        uint64_t before = *allocated, gone = *freed;
        blocks[i] = allocations[row].call(size);
        CHECK(blocks[i] != NULL);
        check_counts(allocations[row].name, size, sallocx(blocks[i], 0), 0, before, gone);
    }
    for (int i = 0; i < count; i++)
        free(blocks[i]);
}

static void check_free(unsigned row, size_t size)
{
    void *blocks[BLOCKS];
    int count = size > 64 * KIB ? 3 : BLOCKS;

    for (int i = 0; i < count; i++)
        CHECK((blocks[i] = malloc(size)) != NULL);
    for (int i = 0; i < count; i++) {
        size_t usable = sallocx(blocks[i], 0);
        uint64_t before = *allocated, gone = *freed;
        frees[row].call(blocks[i], size);
        check_counts(frees[row].name, size, 0, usable, before, gone);
    }
}

static void check_resize(unsigned row, size_t from, size_t to)
{
    char *block = malloc(from), *now;
    size_t old = sallocx(block, 0), size;
    uint64_t before = *allocated, gone = *freed;
    uintptr_t at = (uintptr_t)block;

    now = resizes[row].call(block, to);
    CHECK(now != NULL);
    size = sallocx(now, 0);
    if ((uintptr_t)now == at && size == old)
        check_counts(resizes[row].name, to, 0, 0, before, gone);
    else
        check_counts(resizes[row].name, to, size, old, before, gone);
    free(now);
}

/* A call that fails counts nothing. */
static void check_failures(void)
{
    volatile size_t too_much = SIZE_MAX;
    void *block = malloc(100), *none[2];
    uint64_t before = *allocated, gone = *freed;

    CHECK(malloc(too_much) == NULL && calloc(too_much, 2) == NULL && aligned_alloc(64, too_much - 63) == NULL);
    CHECK(realloc(block, too_much) == NULL && mallocx(too_much, MALLOCX_TCACHE_NONE) == NULL);
    CHECK(mallocx(100, MALLOCX_ARENA(4000)) == NULL && rallocx(block, 200, MALLOCX_ARENA(4000)) == NULL);
    CHECK(hak_malloc_batch(too_much, 2, none) == 0 && hak_expand(block, too_much) == 0);
    free(NULL);
    hak_free_sized(NULL, 10);
    _ZdlPv(NULL);
    check_counts("a call that fails", 0, 0, 0, before, gone);
    free(block);
}

static void check_all(void)
{
    find_counters();
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned row = 0; row < sizeof allocations / sizeof *allocations; row++)
            check_allocation(row, sizes[i]);
        for (unsigned row = 0; row < sizeof frees / sizeof *frees; row++)
            check_free(row, sizes[i]);
        for (unsigned row = 0; row < sizeof resizes / sizeof *resizes; row++)
            for (unsigned j = 0; j < SIZES; j++)
                check_resize(row, sizes[i], sizes[j]);
    }
    check_failures();
}

static void *with_cache(void *unused)
{
    check_all();
    return unused;
}

static void *without_cache(void *unused)
{
    bool off = false;

    CHECK(mallctl("thread.tcache.enabled", NULL, NULL, &off, sizeof off) == 0);
    check_all();
    return unused;
}

static void *bound(void *unused)
{
    CHECK(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena) == 0);
    check_all();
    return unused;
}

/* In a bound thread each function that names no other arena allocates in the thread's. */
static void *bound_allocates(void *unused)
{
    CHECK(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena) == 0);
    for (unsigned row = 0; row < sizeof allocations / sizeof *allocations; row++) {
        bool elsewhere = strstr(allocations[row].name, "heap") != NULL ||
                         strcmp(allocations[row].name, "mallocx_arena_0") == 0;
        for (unsigned i = 0; i < SIZES; i++) {
            void *block = allocations[row].call(sizes[i]);
            if (arena_of(block) != (elsewhere ? 0 : arena)) {
                fprintf(stderr, "%s of %zu bytes: in arena %u\n", allocations[row].name, sizes[i], arena_of(block));
                exit(1);
            }
            free(block);
        }
    }
    return unused;
}

static void in_a_thread(void *(*function)(void *))
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, function, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(void)
{
    size_t size = sizeof arena;

    heap = hak_heap_new();
    CHECK(mallctl("arenas.create", &arena, &size, NULL, 0) == 0);
    in_a_thread(with_cache);
    in_a_thread(without_cache);
    in_a_thread(bound);
    in_a_thread(bound_allocates);
    puts("done");
    return 0;
}
