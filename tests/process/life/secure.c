/* Prints whether the kernel started it in secure mode (as for setuid programs), and allocates. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

int main(void)
{
    void *block = malloc(100);
    printf("secure %lu\n", getauxval(AT_SECURE));
    free(block);
    return 0;
}
