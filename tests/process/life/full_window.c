/* When the window for pooled blocks is full (HAKMEM_ARENA_SIZE), every allocation gets a mapping of its own. */
#include <hakmem/hakmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILL = 400 };

static void *blocks[FILL];

static void check(const char *what, void *block, size_t alignment, size_t size)
{
    if (!block || (uintptr_t)block % alignment != 0) {
        fprintf(stderr, "%s: %p\n", what, block);
        exit(1);
    }
    memset(block, 1, size);
    free(block);
}

int main(void)
{
    hak_heap_t *heap = hak_heap_new();

    for (int i = 0; i < FILL; i++) /* 40 MB */
        if (!(blocks[i] = malloc(100000)))
            return 2;
    for (size_t alignment = 65536; alignment <= 1 << 20; alignment *= 2)
        check("aligned_alloc", aligned_alloc(alignment, alignment), alignment, alignment);
    check("malloc", malloc(70000), 16, 70000);
    for (size_t size = 100; size < 2000000; size *= 3) {
        check("hak_heap_malloc", hak_heap_malloc(heap, size), 16, size);
        check("hak_heap_aligned_alloc", hak_heap_aligned_alloc(heap, 4096, size), 4096, size);
    }
    for (int i = 0; i < FILL; i++)
        free(blocks[i]);
    hak_heap_destroy(heap);
    puts("served");
    return 0;
}
