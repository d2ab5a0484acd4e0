/* Allocates by hak_malloc and prints HAKMEM's version. With the argument `malloc` it also passes a block of malloc to
 * hak_free, which is misuse unless malloc is HAKMEM's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem/hakmem.h>

int main(int argc, char **argv)
{
    char *block = hak_malloc(1000);
    if (!block || hak_usable_size(block) != hak_good_size(1000)) {
        return 1;
    }
    memset(block, 1, 1000);
    hak_free(block);
    if (argc > 1 && strcmp(argv[1], "malloc") == 0) {
        hak_free(malloc(1000));
    }
    printf("%s\n", hak_version());
    return strcmp(hak_version(), HAK_VERSION_STRING) != 0;
}
