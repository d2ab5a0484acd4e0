/* nallocx and sallocx agree, for sizes around each size class and each alignment up to 1 MiB, and beyond both. */
#include <stdint.h>

#include <jemalloc/jemalloc.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
enum { LG_MOST = 21 };

static void pair(size_t size, unsigned lg, int more)
{
    int flags = MALLOCX_LG_ALIGN(lg) | more;
    size_t good = nallocx(size, flags), got;
    char *block = mallocx(size, flags);

    CHECK(block && ((uintptr_t)block & (((uintptr_t)1 << lg) - 1)) == 0);
    got = sallocx(block, flags);
    if (got != good || good < size)
        fprintf(stderr, "size %zu, alignment 2^%u, flags %#x: nallocx %zu, sallocx %zu\n", size, lg, (unsigned)more,
                good, got);
    CHECK(got == good && good >= size);
    CHECK(nallocx(good, flags) == good);
    sdallocx(block, size, flags);
}

static void pairs(int more)
{
    for (unsigned lg = 0; lg <= LG_MOST; lg++)
        for (size_t class = nallocx(1, 0); class <= 2 * MIB; class = nallocx(class + 1, 0)) {
            pair(class - 1, lg, more);
            pair(class, lg, more);
            pair(class + 1, lg, more);
            pair(class / 2 + class / 3, lg, more);
        }
}

int main(void)
{
    pairs(0);
    pairs(MALLOCX_ZERO);
    pairs(MALLOCX_TCACHE_NONE);
    pairs(MALLOCX_ARENA(0));
    /* There can be no such block. */
    for (unsigned lg = 0; lg <= LG_MOST; lg++)
        for (size_t less = 0; less < 3 * MIB; less = less * 2 + 1) {
            size_t size = (size_t)PTRDIFF_MAX - less;
            void *block = mallocx(size, MALLOCX_LG_ALIGN(lg));
            CHECK(block == NULL);
            CHECK(nallocx(size, MALLOCX_LG_ALIGN(lg)) == 0 || nallocx(size, MALLOCX_LG_ALIGN(lg)) >= size);
        }
    CHECK(nallocx(SIZE_MAX, 0) == 0 && nallocx((size_t)PTRDIFF_MAX + 1, 12) == 0 && nallocx(1, 63) == 0);
    puts("done");
    return 0;
}
