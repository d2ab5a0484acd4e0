#include <stdlib.h>

int main(void)
{
    void *volatile block = malloc(3000000);
    free(block);
    free(block);
    return 0;
}
