/*
 * two_copies LIBRARY CASE: the process's malloc is one copy of the library, LIBRARY is another copy. both: several
 * threads use each copy with its own blocks. theirs, ours: a block of one copy is freed in the other.
 */
#include <pthread.h>

#include "plugin.h"

static void *run(void *plugin)
{
    struct work_block blocks[100] = { 0 };
    uint64_t state = 5;

    for (int n = 0; n < 20; n++) {
        plugin_use(plugin, 1);
        work_steps(blocks, 100, 500, &state);
    }
    work_drop_all(blocks, 100);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];

    if (argc < 3)
        return 2;
    struct plugin plugin = plugin_open(argv[1]);
    if (!strcmp(argv[2], "both")) {
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, run, &plugin))
                fail("pthread_create");
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        plugin.collect(1);
        puts("done");
        return 0;
    }
    size_t size = (size_t)atol(argv[3]);
    /* Uses both copies before the misuse. */
    free(malloc(size));
    plugin.free(plugin.malloc(size));
    void *block = !strcmp(argv[2], "theirs") ? plugin.malloc(size) : malloc(size);
    dprintf(1, "%p\n", block);
    if (!strcmp(argv[2], "theirs"))
        free(block);
    else
        plugin.free(block);
    return 0;
}
