/* Each function that promises zeroed memory gives it, after blocks of the same size were filled and freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hak_heap hak_heap_t;
hak_heap_t *hak_heap_new(void);
void *hak_heap_calloc(hak_heap_t *, size_t, size_t);
void *mallocx(size_t, int), *rallocx(void *, size_t, int);
void *__alloc_token_calloc(size_t, size_t, size_t), *__alloc_token_0_calloc(size_t, size_t);

enum { ZERO = 0x40, LG_ALIGN_12 = 12, ROUNDS = 20 };

static hak_heap_t *heap;

static void *by_calloc(size_t size) { return calloc(1, size); }
static void *by_heap(size_t size) { return hak_heap_calloc(heap, 1, size); }
static void *by_token(size_t size) { return __alloc_token_calloc(1, size, 1); }
static void *by_fast_token(size_t size) { return __alloc_token_0_calloc(1, size); }
static void *by_flag(size_t size) { return mallocx(size, ZERO); }
static void *by_aligned_flag(size_t size) { return mallocx(size, ZERO | LG_ALIGN_12); }

/* rallocx zeroes what it adds. */
static void *by_growing(size_t size)
{
    char *block = mallocx(size / 2, ZERO);

    return block ? rallocx(block, size, ZERO) : NULL;
}

static const struct way {
    const char *name;
    void *(*allocate)(size_t size);
} ways[] = {
    { "calloc", by_calloc },          { "hak_heap_calloc", by_heap },
    { "__alloc_token_calloc", by_token }, { "__alloc_token_0_calloc", by_fast_token },
    { "mallocx", by_flag },           { "mallocx, aligned", by_aligned_flag },
    { "rallocx", by_growing },
};

int main(void)
{
    static const size_t sizes[] = { 24, 100, 1000, 8000, 30000, 60000, 300000, 1040000, 1300000, 5000000 };

    if (!(heap = hak_heap_new()))
        return 5;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int round = 0; round < ROUNDS; round++) {
                unsigned char *block = ways[i].allocate(sizes[k]);
                if (!block)
                    return 5;
                for (size_t at = 0; at < sizes[k]; at++)
                    if (block[at]) {
                        printf("%s of %zu bytes: byte %zu is %#x\n", ways[i].name, sizes[k], at, block[at]);
                        return 1;
                    }
                memset(block, 0x5a, sizes[k]);
                free(block);
            }
    puts("zero");
    return 0;
}
