/* Blocks of each allocating function meet each function that frees, resizes or measures, in a program that is linked to
 * jemalloc: malloc's and mallocx' blocks are of one kind there. */
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

/* Of jemalloc's manual. */
void *mallocx(size_t size, int flags);
void *rallocx(void *block, size_t size, int flags);
size_t xallocx(void *block, size_t size, size_t extra, int flags);
size_t sallocx(const void *block, int flags);
void dallocx(void *block, int flags);
void sdallocx(void *block, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *old, size_t *old_length, void *value, size_t length);

enum { ZERO = 0x40, TCACHE_NONE = 1 << 8, PAGE_LG = 12 };

static int of_an_arena; /* flags for an arena and a thread cache that mallctl made */

static void *by_malloc(size_t size) { return malloc(size); }
static void *by_calloc(size_t size) { return calloc(1, size); }
static void *by_realloc(size_t size) { return realloc(malloc(size / 2 + 1), size); }
static void *by_aligned(size_t size) { return memalign(64, size); }
static void *by_mallocx(size_t size) { return mallocx(size, 0); }
static void *by_arena(size_t size) { return mallocx(size, of_an_arena); }
static void *by_pages(size_t size) { return mallocx(size, PAGE_LG | ZERO); }
static void *by_rallocx(size_t size) { return rallocx(mallocx(size / 2 + 1, TCACHE_NONE), size, TCACHE_NONE); }
static void *(*const taken[])(size_t size) = { by_malloc,  by_calloc, by_realloc, by_aligned,
                                               by_mallocx, by_arena,  by_pages,   by_rallocx };

static void free_sized_by_flags(void *block, size_t size) { (void)size, sdallocx(block, sallocx(block, 0), 0); }
static void free_plainly(void *block, size_t size) { (void)size, free(block); }
static void free_by_flags(void *block, size_t size) { (void)size, dallocx(block, 0); }
static void free_uncached(void *block, size_t size) { (void)size, dallocx(block, TCACHE_NONE); }
static void free_of_arena(void *block, size_t size) { (void)size, dallocx(block, of_an_arena); }
static void free_resized(void *block, size_t size) { free(realloc(block, size * 2)); }
static void free_moved(void *block, size_t size) { free(rallocx(block, size * 3, PAGE_LG)); }
static void (*const freed[])(void *block, size_t size) = {
    free_sized_by_flags, free_plainly, free_by_flags, free_uncached, free_of_arena, free_resized, free_moved
};

static const size_t sizes[] = { 1, 24, 600, 5000, 40000, 200000, 3 << 20 };

static void check_block(char *block, size_t size)
{
    size_t usable = malloc_usable_size(block);

    CHECK(block != NULL && usable >= size && sallocx(block, 0) == usable);
    memset(block, 0x5a, size);
    CHECK(xallocx(block, size, 0, 0) >= size);
}

static bool is_all(const char *bytes, char value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* rallocx keeps what the block held, aligns what moves, and zeroes what is new. */
static void check_growth(char *block, size_t size)
{
    size_t held = malloc_usable_size(block);
    char *grown = rallocx(block, size * 5, PAGE_LG | ZERO);
    size_t usable = malloc_usable_size(grown);

    CHECK(grown != NULL && ((uintptr_t)grown & ((1 << PAGE_LG) - 1)) == 0 && usable >= size * 5);
    CHECK(is_all(grown, 0x5a, size));
    CHECK(usable <= held || is_all(grown + held, 0, usable - held));
    grown = rallocx(grown, size, 0);
    CHECK(grown != NULL && is_all(grown, 0x5a, size));
    dallocx(grown, 0);
}

/* rallocx and xallocx leave a block that sdallocx takes by its new size. */
static void check_shrinking(size_t size)
{
    size_t less = size * 3 / 4 + 1, got;
    char *block;

    for (int flags = 0; flags <= PAGE_LG; flags += 4) {
        block = mallocx(size, flags);
        CHECK(sallocx(block, 0) == nallocx(size, flags));
        memset(block, 0x5a, size);
        block = rallocx(block, less, flags);
        CHECK(block != NULL && ((uintptr_t)block & (((size_t)1 << flags) - 1)) == 0 && is_all(block, 0x5a, less));
        sdallocx(block, less, flags);
        block = mallocx(size, flags);
        memset(block, 0x5a, size);
        got = xallocx(block, less, 0, flags);
        CHECK(got >= less && got == sallocx(block, 0) && is_all(block, 0x5a, less));
        sdallocx(block, got, flags);
    }
}

int main(void)
{
    unsigned arena, cache;
    size_t length = sizeof arena;

    CHECK(mallctl("arenas.create", &arena, &length, NULL, 0) == 0);
    CHECK(mallctl("tcache.create", &cache, &length, NULL, 0) == 0);
    of_an_arena = (int)((arena + 1) << 20 | (cache + 2) << 8);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (unsigned way = 0; way < sizeof taken / sizeof *taken; way++) {
                CHECK(nallocx(sizes[i], 0) >= sizes[i]);
                for (unsigned end = 0; end < sizeof freed / sizeof *freed; end++) {
                    char *block = taken[way](sizes[i]);
                    check_block(block, sizes[i]);
                    freed[end](block, sizes[i]);
                }
                char *block = taken[way](sizes[i]);
                CHECK(block != NULL);
                memset(block, 0x5a, malloc_usable_size(block)); /* what lies behind the request is used, too */
                check_growth(block, sizes[i]);
                check_shrinking(sizes[i]);
            }
    puts("done");
    return 0;
}
