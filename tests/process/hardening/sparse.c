/* Three times 2,000 blocks of 16,384 bytes, of each of which 100 bytes are written. Prints the KiB that they made
 * resident: while they are held, and after their free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 2000, SIZE = 16384, WRITTEN = 100 };

static void *blocks[BLOCKS];

static long resident_kib(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1)
        exit(5);
    fclose(statm);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void)
{
    long before = resident_kib();

    for (int time = 0; time < 3; time++) {
        for (int i = 0; i < BLOCKS; i++) {
            if (!(blocks[i] = malloc(SIZE)))
                return 5;
            memset(blocks[i], 0x5a, WRITTEN);
        }
        printf("%ld\n", resident_kib() - before);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        printf("%ld\n", resident_kib() - before);
    }
    return 0;
}
