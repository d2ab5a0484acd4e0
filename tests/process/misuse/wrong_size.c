/* wrong_size FUNCTION REAL CLAIMED: frees a block of REAL bytes as one of CLAIMED bytes (`alignment`: aligned so). */
#include <stdint.h>

#include "use.h"

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t real = (size_t)atol(argv[2]), claimed = (size_t)atol(argv[3]);
    char *block = malloc(real);
    char *blocks[64];
    /* A block that is not aligned to the claimed alignment by chance. */
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(real);
        if ((uintptr_t)blocks[i] % claimed != 0)
            block = blocks[i];
    }
    memset(block, 1, real);
    announce(block);
    if (!strcmp(argv[1], "free_sized"))
        free_sized(block, claimed);
    else if (!strcmp(argv[1], "sdallocx"))
        sdallocx(block, claimed, 0);
    else if (!strcmp(argv[1], "free_aligned_sized"))
        free_aligned_sized(block, 16, claimed);
    else if (!strcmp(argv[1], "alignment"))
        free_aligned_sized(block, claimed, real);
    else
        return 2;
    check_the_allocator_works();
    return 0;
}
