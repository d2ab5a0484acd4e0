/* Frees a block a second time after it has gone back to its slab, which other blocks keep in use. Prints when free
 * returns. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 20000 };

int main(void)
{
    static void *volatile blocks[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(64);
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    malloc_trim(0);
    printf("%p\n", blocks[100]);
    fflush(stdout);
    free(blocks[100]);
    puts("free returned");
    fflush(stdout);
    malloc_trim(0);
    puts("the cache was flushed");
    return 0;
}
