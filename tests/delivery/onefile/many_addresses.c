/*
 * Takes argv[1] GiB of huge blocks and as much of blocks of 512 KiB, and touches none. Prints the size of pages, and
 * how many GiB of each it got.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIB = 1024, BLOCK = 512 * KIB, GIB = KIB * KIB * KIB };

static unsigned long fill(size_t size, unsigned long most)
{
    unsigned long count = 0;

    while (count < most && malloc(size) != NULL)
        count++;
    return count * size / GIB;
}

int main(int argc, char **argv)
{
    unsigned long gib = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, huge = fill(GIB, gib),
                  small = fill(BLOCK, gib * (GIB / BLOCK));

    printf("page %ld huge %lu small %lu\n", sysconf(_SC_PAGESIZE), huge, small);
    return 0;
}
