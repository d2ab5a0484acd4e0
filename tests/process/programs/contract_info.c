/* Holds argv[1] blocks of argv[2] bytes and writes malloc_info's XML to stdout. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int count = atoi(argv[1]);
    size_t size = (size_t)atol(argv[2]);
    char **blocks = malloc((size_t)count * sizeof(*blocks));
    for (int i = 0; i < count; i++)
        blocks[i] = memset(malloc(size), 1, size);
    int status = malloc_info(0, stdout);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    free(blocks);
    return status;
}
