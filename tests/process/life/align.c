/* Protects the aligning functions at each power of two to 64 MiB: address, usable size, contents, realloc, free. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>

#include "work.h"

static const size_t most = (size_t)64 << 20;

static void *by_posix(size_t alignment, size_t size)
{
    void *block = NULL;
    if (alignment < sizeof(void *))
        return NULL;
    if (posix_memalign(&block, alignment, size))
        fail("posix_memalign");
    return block;
}

static void check(const unsigned char *block, size_t size, unsigned char mark, const char *what)
{
    /* Checks all of a small block, and both ends of a large one. */
    for (size_t i = 0; i < size; i += size > 8192 && i == 4096 ? size - 8192 : 1)
        if (block[i] != mark)
            fail(what);
}

static void fill(unsigned char *block, size_t size, unsigned char mark)
{
    if (size <= 8192) {
        memset(block, mark, size);
    } else {
        memset(block, mark, 4097);
        memset(block + size - 4096, mark, 4096);
    }
}

static void try_one(void *(*function)(size_t, size_t), size_t alignment, size_t size, unsigned char mark)
{
    unsigned char *block = function(alignment, size), *neighbour = function(alignment, size), *moved;
    size_t usable = malloc_usable_size(block), grown = size * 2 + 1;

    if (!block || !neighbour || (uintptr_t)block % alignment || (uintptr_t)neighbour % alignment)
        fail("an aligned block");
    if (usable < size || (block < neighbour && block + usable > neighbour) ||
        (neighbour < block && neighbour + malloc_usable_size(neighbour) > block))
        fail("usable size");
    fill(neighbour, malloc_usable_size(neighbour), (unsigned char)~mark);
    fill(block, usable, mark);
    check(neighbour, malloc_usable_size(neighbour), (unsigned char)~mark, "contents beside a block that is filled");
    moved = realloc(block, grown);
    if (!moved)
        fail("realloc");
    check(moved, size < 4096 ? size : 4096, mark, "contents after realloc");
    moved = realloc(moved, size / 2 + 1);
    if (!moved)
        fail("realloc to less");
    check(moved, size / 2 < 4096 ? size / 2 : 4096, mark, "contents after realloc to less");
    free(moved);
    free(neighbour);
}

static void sweep(void *(*function)(size_t, size_t))
{
    unsigned char mark = 1;

    for (size_t alignment = 8; alignment <= most; alignment *= 2) {
        size_t sizes[] = { 1,
                           24,
                           100,
                           1000,
                           4095,
                           4097,
                           40000,
                           70000,
                           300000,
                           alignment - 1,
                           alignment,
                           alignment + 1,
                           3 * alignment + 7 };
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
            if (sizes[i] <= most + 1)
                try_one(function, alignment, sizes[i], mark = (unsigned char)(mark * 5 + 3));
    }
}

/* Many live at once: no two overlap, in any order of sizes. */
static void hold_many(void)
{
    enum { COUNT = 600 };
    static unsigned char *blocks[COUNT];
    uint64_t state = 7;

    for (int round = 0; round < 3; round++) {
        size_t sizes[COUNT];
        for (int i = 0; i < COUNT; i++) {
            size_t alignment = (size_t)16 << work_next(&state) % 13;
            sizes[i] = 1 + work_next(&state) % 20000;
            blocks[i] = aligned_alloc(alignment, sizes[i]);
            if (!blocks[i] || (uintptr_t)blocks[i] % alignment)
                fail("aligned_alloc");
            memset(blocks[i], i, sizes[i]);
        }
        for (int i = 0; i < COUNT; i++) {
            int k = (i * 7 + round) % COUNT;
            for (size_t at = 0; at < sizes[k]; at++)
                if (blocks[k][at] != (unsigned char)k)
                    fail("two blocks overlap");
            free(blocks[k]);
        }
    }
}

static void whole_pages(void)
{
    for (size_t size = 0; size < 20000; size += 777) {
        unsigned char *page = valloc(size), *pages = pvalloc(size);
        if (!page || !pages || (uintptr_t)page % 4096 || (uintptr_t)pages % 4096)
            fail("valloc");
        if (malloc_usable_size(page) < size || malloc_usable_size(pages) < (size + 4095) / 4096 * 4096)
            fail("usable size of pages");
        memset(pages, 1, malloc_usable_size(pages));
        free(page);
        free(pages);
    }
}

static void expect_refusal(size_t alignment, size_t size, int wanted)
{
    void *block = &block;
    errno = 77;
    if (posix_memalign(&block, alignment, size) != wanted || block != &block || errno != 77)
        fail("posix_memalign that refuses");
}

int main(void)
{
    sweep(memalign);
    sweep(aligned_alloc);
    sweep(by_posix);
    hold_many();
    whole_pages();
    expect_refusal(0, 100, EINVAL);
    expect_refusal(4, 100, EINVAL);
    expect_refusal(24, 100, EINVAL);
    expect_refusal(sizeof(void *) + 1, 100, EINVAL);
    expect_refusal(SIZE_MAX, 100, EINVAL);
    expect_refusal(64, SIZE_MAX - 50, ENOMEM);
    expect_refusal((size_t)1 << 63, 1, ENOMEM);
    puts("done");
    return 0;
}
