/* untouched: prints how many pages of calloc's blocks are resident; the program writes to none of them. Prints this
 * three times for each size: the second and the third block may take the addresses of the one before. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char resident[1 << 16];

/* Pages that lie wholly in the block. */
static size_t count_resident(char *block, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    uintptr_t from = ((uintptr_t)block + page - 1) & -page, to = ((uintptr_t)block + size) & -page;

    if (mincore((void *)from, to - from, resident) != 0)
        exit(1);
    for (size_t i = 0; i < (to - from) / page; i++)
        count += resident[i] & 1;
    return count;
}

int main(void)
{
    static const size_t sizes[] = { 1100000, 3000000, 40000000 };

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (unsigned round = 0; round < 3; round++) {
            char *block = calloc(1, sizes[i]);
            if (!block)
                return 1;
            printf("%zu\n", count_resident(block, sizes[i]));
            free(block);
        }
    return 0;
}
