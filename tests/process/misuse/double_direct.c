/* double_direct SIZE: frees a block twice, with nothing between the two calls. */
#include "use.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    size_t size = (size_t)atol(argv[1]);
    void *before = malloc(size);
    void *block = memset(malloc(size), 1, size);
    void *after = malloc(size);
    announce(block);
    free(block);
    free(block);
    free(before);
    free(after);
    check_the_allocator_works();
    return 0;
}
