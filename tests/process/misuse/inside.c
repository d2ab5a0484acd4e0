/*
 * inside FUNCTION FIRST LAST [trim]: frees addresses inside blocks of each size class for FIRST (above 16) to LAST
 * bytes, and prints them. After each it takes as many blocks as could come from there, with FUNCTION: malloc, calloc,
 * aligned_alloc, posix_memalign, realloc, mallocx. No two blocks may overlap. Every other time it frees the block
 * itself, too. trim: it returns what the thread cached (malloc_trim) before it takes blocks.
 */
#include "use.h"

enum { TAKEN = 8, AROUND = 16 };

void *mallocx(size_t size, int flags) __attribute__((weak));

static const char *function;

static void *take(size_t size)
{
    void *block = NULL;

    if (!strcmp(function, "malloc"))
        block = malloc(size);
    else if (!strcmp(function, "calloc"))
        block = calloc(1, size);
    else if (!strcmp(function, "aligned_alloc"))
        block = aligned_alloc(32, size);
    else if (!strcmp(function, "posix_memalign")) {
        if (posix_memalign(&block, 4096, size))
            exit(4);
    } else if (!strcmp(function, "realloc"))
        block = realloc(malloc(1), size);
    else if (!strcmp(function, "mallocx"))
        block = mallocx(size, 0);
    else
        exit(2);
    return memset(block, 1, size);
}

static int overlap(const char *one, const char *other, size_t size) { return one < other + size && other < one + size; }

static void misuse_at(size_t size, size_t offset, int free_it, int trim)
{
    char *blocks[TAKEN + 1];
    int count = 0;

    char *block = take(size);
    free(announce(block + offset));
    if (free_it)
        free(block);
    else
        blocks[count++] = block;
    if (trim)
        malloc_trim(0);
    while (count < TAKEN)
        blocks[count++] = take(size);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (overlap(blocks[i], blocks[k], size)) {
                say(1, "%zu bytes at %p and at %p overlap\n", size, (void *)blocks[i], (void *)blocks[k]);
                exit(3);
            }
    while (count)
        free(blocks[--count]);
}

/* Addresses at both ends of a block, at a third of it, and at each smaller power of two. */
static void misuse_class(size_t size, int trim)
{
    static int turn;

    for (size_t offset = 16; offset < size; offset *= 2)
        misuse_at(size, offset, turn++ % 2, trim);
    if (size >= 48)
        misuse_at(size, size / 3 & ~(size_t)15, turn++ % 2, trim);
    misuse_at(size, size - 16, turn++ % 2, trim);
}

int main(int argc, char **argv)
{
    void *around[AROUND];
    size_t size, last;

    if (argc < 4)
        return 2;
    function = argv[1];
    last = (size_t)atol(argv[3]);
    for (size = (size_t)atol(argv[2]); size <= last; size++) {
        for (int i = 0; i < AROUND; i++) /* neighbours, so that slabs stay */
            around[i] = take(size);
        size = malloc_usable_size(around[0]);
        misuse_class(size, argc > 4);
        for (int i = 0; i < AROUND; i++)
            free(around[i]);
    }
    malloc_trim(0); /* what the cache still holds is found */
    check_the_allocator_works();
    return 0;
}
