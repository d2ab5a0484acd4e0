/*
 * calls FUNCTION CASE SIZE: hands a function an address of a block of SIZE bytes.
 * CASE: inside, unaligned; freed (another block was freed since), gone (flushed from the cache too), cached (only
 * freed); after "first-class " the block is of a first-class heap.
 */
#include <hakmem/hakmem.h>

#include "use.h"

/* The test's program is linked to nothing. The preloaded library has these. */
#pragma weak hak_heap_new
#pragma weak hak_heap_malloc
#pragma weak hak_expand
#pragma weak hak_heap_of

static const char FIRST_CLASS[] = "first-class ";

static void hand(const char *function, void *pointer)
{
    if (!strcmp(function, "hak_expand"))
        hak_expand(pointer, 10000);
    else if (!strcmp(function, "hak_heap_of"))
        hak_heap_of(pointer);
    else
        use(function, pointer);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *what = argv[2];
    size_t size = (size_t)atol(argv[3]);
    hak_heap_t *heap = NULL;
    if (!strncmp(what, FIRST_CLASS, strlen(FIRST_CLASS))) {
        heap = hak_heap_new();
        what += strlen(FIRST_CLASS);
    }
    char *before = heap ? hak_heap_malloc(heap, size) : malloc(size);
    char *block = memset(heap ? hak_heap_malloc(heap, size) : malloc(size), 1, size);
    char *after = heap ? hak_heap_malloc(heap, size) : malloc(size);
    char *pointer = block;

    if (!strcmp(what, "inside"))
        pointer = block + (size / 2 & ~(size_t)15);
    else if (!strcmp(what, "unaligned"))
        pointer = block + 8;
    else
        free(block);
    if (!strcmp(what, "freed"))
        free(after);
    if (!strcmp(what, "gone"))
        malloc_trim(0);
    announce(pointer);
    if (!strcmp(argv[1], "free after reuse")) {
        void *again = malloc(size);
        if (again != pointer)
            return 4;
        free(pointer);
    } else {
        hand(argv[1], pointer);
    }
    malloc_trim(0); /* finds misuse that the call let pass */
    check_the_allocator_works();
    free(before);
    return 0;
}
