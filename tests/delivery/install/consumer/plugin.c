/* A plugin that allocates by HAKMEM, which it contains. */
#include <string.h>

#include <hakmem/hakmem.h>

int plugin_use(void);
int plugin_use(void)
{
    char *block = hak_malloc(1000);

    if (!block)
        return 1;
    memset(block, 1, 1000);
    hak_free(block);
    return 0;
}
