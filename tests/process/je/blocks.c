/* Each block function, with each flag, under both of its names. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static bool is_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Fills and frees blocks of the size, so that the next ones are not fresh memory. */
static void soil(size_t size)
{
    void *blocks[64];

    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(size);
        memset(blocks[i], 0xa5, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
}

static void sizes_and_flags(int more)
{
    static const size_t sizes[] = { 1, 8, 16, 100, 1000, 1025, 5000, 33000, 70000, 500000, MIB, MIB + 1, 5 * MIB };

    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned lg = 0; lg <= 22; lg += lg < 12 ? 1 : 5) {
            int flags = MALLOCX_LG_ALIGN(lg) | MALLOCX_ZERO | more;
            char *block;
            size_t size;

            if (sizes[i] < 100000)
                soil(sizes[i]);
            block = mallocx(sizes[i], flags);
            CHECK(block && ((uintptr_t)block & (((uintptr_t)1 << lg) - 1)) == 0);
            size = sallocx(block, flags);
            CHECK(size >= sizes[i] && size == malloc_usable_size(block) && is_zero(block, size));
            CHECK(nallocx(sizes[i], flags) == size);
            memset(block, 0x5a, size);
            sdallocx(block, sizes[i], flags);
        }
}

/* Bytes beyond the old usable size are zero, and the bytes before it are unchanged. */
static void grows(int more)
{
    for (size_t size = 16; size < 3 * MIB; size = size * 3 + 7) {
        size_t old, grown;
        char *block = mallocx(size, more);

        old = sallocx(block, 0);
        memset(block, 0x11, old);
        soil(size * 3 < 60000 ? size * 3 : 60000);
        block = rallocx(block, size * 3, MALLOCX_ZERO | more);
        CHECK(block);
        grown = sallocx(block, 0);
        CHECK(grown >= size * 3);
        for (size_t i = 0; i < size; i++)
            CHECK(block[i] == 0x11);
        CHECK(is_zero(block + old, grown - old));
        block = rallocx(block, 10, MALLOCX_ALIGN(4096) | more);
        CHECK(block && ((uintptr_t)block & 4095) == 0 && block[9] == 0x11);
        dallocx(block, more);
    }
}

static void in_place(void)
{
    char *block = mallocx(100, 0), *large;
    size_t size = sallocx(block, 0), got;

    CHECK(xallocx(block, 50, 0, 0) == size && xallocx(block, size, 0, 0) == size);
    CHECK(xallocx(block, size + 1, 100, 0) == size);
    CHECK(xallocx(block, 1, SIZE_MAX - 1, 0) == size);
    dallocx(block, 0);
    large = mallocx(4 * MIB, 0);
    size = sallocx(large, 0);
    memset(large, 1, size);
    got = xallocx(large, 2 * MIB, 0, 0);
    CHECK(got >= 2 * MIB && got < size && got == sallocx(large, 0));
    size = got;
    got = xallocx(large, 3 * MIB, 64 * MIB, MALLOCX_ZERO);
    CHECK(got == sallocx(large, 0) && got >= size && is_zero(large + size, got - size));
    dallocx(large, 0);
}

/* The bytes of a block of at most 64 MiB that are resident. */
static size_t resident(const char *block, size_t size)
{
    static unsigned char pages[64 * MIB / 4096 + 1];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 0;
    char *first = (char *)((uintptr_t)block & -page);

    CHECK(mincore(first, size, pages) == 0);
    for (size_t i = 0; i < size / page; i++)
        bytes += (pages[i] & 1) * page;
    return bytes;
}

/* Zeroed memory costs what is written to it, which is nothing. A huge page at each end may be resident. */
static void costs(int more)
{
    char *block = mallocx(32 * MIB, MALLOCX_LG_ALIGN(12) | MALLOCX_ZERO | more);

    CHECK(resident(block, 32 * MIB) <= 8 * MIB);
    block = rallocx(block, 64 * MIB, MALLOCX_ZERO | more);
    CHECK(resident(block, 64 * MIB) <= 16 * MIB);
    dallocx(block, more);
}

static void limits(void)
{
    CHECK(nallocx(SIZE_MAX, 0) == 0 && nallocx((size_t)PTRDIFF_MAX + 1, 0) == 0);
    CHECK(nallocx(1, MALLOCX_ALIGN((size_t)1 << 62)) == 0 || mallocx(1, MALLOCX_ALIGN((size_t)1 << 62)) == NULL);
    CHECK(mallocx((size_t)PTRDIFF_MAX + 1, 0) == NULL && mallocx(SIZE_MAX, MALLOCX_ZERO) == NULL);
    CHECK(mallocx(16, MALLOCX_ARENA(3000)) == NULL);
    void *block = mallocx(64, 0);
    CHECK(rallocx(block, SIZE_MAX, 0) == NULL && rallocx(block, 64, MALLOCX_ARENA(3000)) == NULL);
    CHECK(sallocx(block, 0) == nallocx(64, 0));
    dallocx(block, 0);
    CHECK(MALLOCX_ALIGN(16) == 4 && MALLOCX_ALIGN((size_t)1 << 33) == 33 && MALLOCX_LG_ALIGN(5) == 5);
}

static void prefixed(void)
{
    void *block = je_mallocx(100, MALLOCX_ZERO), *aligned;

    block = je_rallocx(block, 2000, 0);
    CHECK(je_sallocx(block, 0) == je_malloc_usable_size(block) && je_nallocx(2000, 0) == je_sallocx(block, 0));
    CHECK(je_xallocx(block, 10, 0, 0) == je_sallocx(block, 0));
    je_sdallocx(block, 2000, 0);
    block = je_realloc(je_malloc(10), 3000);
    je_dallocx(block, 0);
    block = je_calloc(10, 10);
    CHECK(is_zero(block, 100));
    je_free(block);
    CHECK(je_posix_memalign(&aligned, 256, 10) == 0 && ((uintptr_t)aligned & 255) == 0);
    je_free(aligned);
    CHECK(je_posix_memalign(&aligned, 3, 10) == EINVAL);
    for (volatile size_t wrong = 0; wrong < 8; wrong += 3) {
        errno = 0;
        CHECK(je_aligned_alloc(wrong, 10) == NULL && errno == EINVAL);
        errno = 0;
        CHECK(aligned_alloc(wrong, 10) == NULL && errno == EINVAL);
    }
    je_free(je_aligned_alloc(64, 64));
    je_free(je_memalign(64, 64));
    je_free(je_valloc(64));
}

int main(void)
{
    sizes_and_flags(0);
    sizes_and_flags(MALLOCX_TCACHE_NONE);
    sizes_and_flags(MALLOCX_TCACHE(3));
    sizes_and_flags(MALLOCX_ARENA(0));
    grows(0);
    grows(MALLOCX_TCACHE_NONE);
    costs(0);
    costs(MALLOCX_TCACHE_NONE);
    in_place();
    limits();
    prefixed();
    dallocx(NULL, MALLOCX_TCACHE_NONE);
    puts("done");
    return 0;
}
