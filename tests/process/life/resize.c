/* realloc from each size to each other keeps the contents. calloc of used memory; sizes of zero; NULL. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>

#include "work.h"

static size_t sizes[400];
static unsigned count;

/* Dense where size classes are dense, sparse above, and the neighbours of powers of two. */
static void choose_sizes(void)
{
    for (size_t size = 1; size < 300; size += 7)
        sizes[count++] = size;
    for (size_t power = 512; power <= (size_t)4 << 20; power *= 2) {
        sizes[count++] = power - 1;
        sizes[count++] = power;
        sizes[count++] = power + 1;
        sizes[count++] = power + power / 2;
    }
}

static unsigned char mark_at(size_t position, unsigned salt)
{
    return (unsigned char)(position / 64 * 31 + position / 16384 * 7 + salt);
}

/* Marks each 64th byte, and the last. */
static void mark(unsigned char *block, size_t size, unsigned salt)
{
    if (!block)
        fail("a block");
    for (size_t i = 0; i < size; i += 64)
        block[i] = mark_at(i, salt);
    block[size - 1] = mark_at(size - 1, salt);
}

static void check(const unsigned char *block, size_t size, unsigned salt, const char *what)
{
    for (size_t i = 0; i < size; i += 64)
        if (block[i] != mark_at(i, salt))
            fail(what);
}

static void resize_all(void)
{
    for (unsigned from = 0; from < count; from++)
        for (unsigned to = 0; to < count; to += sizes[from] > 100000 || sizes[to] > 100000 ? 5 : 1) {
            size_t less = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
            unsigned char *block = malloc(sizes[from]), *moved;
            mark(block, sizes[from], from + to);
            moved = realloc(block, sizes[to]);
            if (!moved || (uintptr_t)moved % 16 || malloc_usable_size(moved) < sizes[to])
                fail("realloc");
            check(moved, less, from + to, "contents after realloc");
            mark(moved, sizes[to], from);
            free(moved);
        }
}

/* A block grows and shrinks, byte by byte and by halves, beside a block that it must not overwrite. */
static void creep(void)
{
    unsigned char *block = malloc(1), *guard = malloc(1);
    size_t size = 1;

    mark(block, 1, 5);
    for (; size < 6000; size++) {
        block = realloc(block, size);
        guard = realloc(guard, size);
        memset(guard, 0xaa, size);
        check(block, size - 1 ? size - 1 : 1, 5, "contents of a block that grows");
        mark(block, size, 5);
    }
    for (; size < (size_t)20 << 20; size += size / 8) {
        block = realloc(block, size);
        mark(block, size, 5);
    }
    size -= size / 9; /* the last block's size */
    for (; size > 1; size -= size / 7 + 1) {
        block = realloc(block, size);
        check(block, size, 5, "contents of a block that shrinks");
    }
    free(block);
    free(guard);
}

static void zero_again(void)
{
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < count; i++) {
            unsigned char *blocks[3];
            for (int k = 0; k < 3; k++) {
                blocks[k] = calloc(1, sizes[i]);
                for (size_t at = 0; at < sizes[i]; at += sizes[i] < 5000 ? 1 : 61)
                    if (blocks[k][at])
                        fail("calloc");
                memset(blocks[k], 0xff, malloc_usable_size(blocks[k]));
            }
            for (int k = 0; k < 3; k++)
                free(blocks[k]);
        }
}

static void edges(void)
{
    void *volatile none = NULL;
    volatile size_t too_many = SIZE_MAX / 4, no = 0;
    unsigned char *block = realloc(none, 100), *first = malloc(no), *second = calloc(no, 5), *third = calloc(5, no);

    if (!block || !first || !second || !third || first == second || second == third || first == third)
        fail("blocks of no size");
    first = realloc(first, 1000);
    mark(first, 1000, 3);
    errno = 0;
    if (realloc(first, 0) != NULL)
        fail("realloc to no size");
    free(second);
    free(third);
    second = realloc(none, 0);
    if (!second)
        fail("realloc of nothing to no size");
    free(second);
    block = reallocarray(block, 10, 1000);
    mark(block, 10000, 9);
    errno = 0;
    if (reallocarray(block, too_many, 5) || errno != ENOMEM)
        fail("reallocarray that overflows");
    check(block, 10000, 9, "contents after a reallocarray that overflows");
    free(block);
    if (malloc_usable_size(NULL) != 0)
        fail("usable size of nothing");
    free(none);
}

int main(void)
{
    choose_sizes();
    resize_all();
    creep();
    zero_again();
    edges();
    puts("done");
    return 0;
}
