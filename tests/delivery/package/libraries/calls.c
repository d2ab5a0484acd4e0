/*
 * calls SIZE: prints the addresses of the library's malloc and free, and then makes fast hits of that size.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    enum { BLOCKS = 40, ROUNDS = 200 };
    void *blocks[BLOCKS];
    size_t size = count > 1 ? strtoul(arguments[1], NULL, 10) : 64;

    printf("%#zx %#zx\n", (size_t)(uintptr_t)malloc, (size_t)(uintptr_t)free);
    fflush(stdout);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = malloc(size);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    return 0;
}
