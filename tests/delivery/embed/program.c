/* Prints HAKMEM's version, and whether malloc is HAKMEM's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem/hakmem.h>
#include <hakmem/stats.h>

int main(void)
{
    char *volatile block = hak_malloc(1000);
    if (!block || hak_usable_size(block) != hak_good_size(1000))
        return 1;
    memset(block, 1, 1000);
    hak_free_sized(block, 1000);
    /* A block that is not HAKMEM's is in no heap and in no statistics. */
    struct hak_stats before, after;
    if (!hak_stats_get(&before, sizeof before))
        return 1;
    block = malloc(5 << 20);
    if (!block || !hak_stats_get(&after, sizeof after))
        return 1;
    printf("hakmem %s%s\n", hak_version(), after.live >= before.live + (5 << 20) ? " is malloc" : "");
    free(block);
    return 0;
}
