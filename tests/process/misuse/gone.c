/*
 * gone FUNCTION SIZE NEIGHBOURS: frees a block and many others of its size, so that it leaves the thread's cache, and
 * then uses it once more. With NEIGHBOURS = 1 some blocks of its size stay live, with 0 none.
 */
#include "use.h"

int main(int argc, char **argv)
{
    enum { COUNT = 2000 };
    static void *blocks[COUNT];

    if (argc != 4)
        return 2;
    size_t size = (size_t)atol(argv[2]);
    int count = size > 100000 ? 20 : COUNT;
    for (int i = 0; i < count; i++)
        blocks[i] = memset(malloc(size), 1, size);
    void *block = blocks[count / 2];
    free(block);
    for (int i = 0; i < count; i++) {
        if (i != count / 2 && (argv[3][0] == '0' || i % 2 == 0)) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    /* Without neighbours the block's memory is free, and no other allocation may take it before the misuse. */
    for (int round = 0; argv[3][0] != '0' && round < 100; round++) {
        for (int i = 0; i < 1000; i++) {
            void *other = malloc(32 + (size_t)i % 1024);
            free(other);
        }
    }
    malloc_trim(0);
    announce(block);
    use(argv[1], block);
    check_the_allocator_works();
    for (int i = 0; i < count; i++)
        if (i != count / 2)
            free(blocks[i]);
    return 0;
}
