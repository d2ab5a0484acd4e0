/* A few ways to allocate in C. A static program of them has no unwinder. Prints the names of its loaded objects. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITE static __attribute__((noinline)) void

static void *volatile kept;

SITE site_malloc(void) { kept = malloc(2000); }
SITE site_calloc(void) { kept = calloc(20, 100); }
SITE site_aligned_alloc(void) { kept = aligned_alloc(64, 2048); }

int main(void)
{
    char line[512];
    FILE *maps;

    for (int i = 0; i < 400; i++) {
        site_malloc();
        site_calloc();
        site_aligned_alloc();
    }
    maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, ".so"))
            fputs(line, stdout);
    return maps ? fclose(maps) : 1;
}
