/* double_direct SIZE...: frees a block of each size twice, with nothing between the two calls. */
#include "use.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t size = (size_t)atol(argv[i]);
        void *before = malloc(size);
        void *block = memset(malloc(size), 1, size);
        void *after = malloc(size);
        announce(block);
        free(block);
        free(block);
        free(before);
        free(after);
    }
    check_the_allocator_works();
    return 0;
}
