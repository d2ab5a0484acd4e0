/* Allocates in one function, and writes the heap profile to the given file. */
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

static void *kept[2000];

__attribute__((noinline)) void *only_site(size_t size)
{
    void *block = malloc(size);

    return memset(block, 1, size);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        kept[i] = only_site(10000);
    return argc == 2 ? hak_profile_write(argv[1]) : 2;
}
