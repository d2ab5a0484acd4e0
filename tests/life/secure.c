/* Says whether the kernel started it in secure mode (setuid and the like), and allocates. */
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
