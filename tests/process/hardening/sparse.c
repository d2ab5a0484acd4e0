/* sparse KIND: 2,000 blocks of 16,384 bytes, of each of which 100 bytes are written. Prints the KiB that they made
 * resident: while they are held, and after their free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 2000, SIZE = 16384, WRITTEN = 100, SPANS = 600, SPAN = 65000 };

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

static void fill_spans(void)
{
    for (int i = 0; i < SPANS; i++)
        memset(blocks[i] = malloc(SPAN), 0x5a, SPAN);
    for (int i = 0; i < SPANS; i++)
        free(blocks[i]);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    long before = resident_kib();

    if (strcmp(kind, "after_spans") == 0)
        fill_spans();
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = strcmp(kind, "calloc") == 0 ? calloc(1, SIZE) : malloc(SIZE);
        if (!blocks[i])
            return 5;
        memset(blocks[i], 0x5a, WRITTEN);
    }
    printf("%ld", resident_kib() - before);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    printf(" %ld\n", resident_kib() - before);
    return 0;
}
