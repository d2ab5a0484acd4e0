/* Allocates by hak_malloc, and by malloc where that is HAKMEM's; prints the version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem/hakmem.h>

int main(void)
{
    char *block = hak_malloc(1000);
    if (!block || hak_usable_size(block) != hak_good_size(1000))
        return 1;
    memset(block, 1, 1000);
    hak_free(block);
    if (MALLOC_IS_HAKMEMS) {
        block = malloc(1000);
        if (!block || hak_usable_size(block) != hak_good_size(1000))
            return 1;
        free(block);
    }
    printf("hakmem %s%s\n", hak_version(), MALLOC_IS_HAKMEMS ? " in place of malloc" : "");
    return strcmp(hak_version(), HAK_VERSION_STRING) != 0;
}
