/*
 * opened LIBRARY: a process with its own malloc opens the library, uses hak_* in several threads, and closes it,
 * repeatedly. Threads that used it end after it was closed. The process's malloc stays the same.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "plugin.h"

static const char *path;
static pthread_barrier_t used, closed;

static const char *file_of_malloc(void)
{
    Dl_info info;
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info))
        fail("dladdr");
    return info.dli_fname;
}

static void *run(void *argument)
{
    struct plugin *plugin = argument;
    void *held;

    plugin_use(plugin, 2);
    held = plugin->malloc(100);
    plugin->free(held);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL; /* HAKMEM's thread exit runs here, after the library was closed */
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    char before[4096];

    if (argc != 2)
        return 2;
    path = argv[1];
    snprintf(before, sizeof(before), "%s", file_of_malloc());
    pthread_barrier_init(&used, NULL, 5);
    pthread_barrier_init(&closed, NULL, 5);
    for (int n = 0; n < 100; n++) {
        struct plugin plugin = plugin_open(path);
        char *ours = malloc(1000), *theirs = plugin.malloc(1000);
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, run, &plugin))
                fail("pthread_create");
        plugin_use(&plugin, 1);
        pthread_barrier_wait(&used);
        plugin.free(theirs);
        free(ours);
        if (dlclose(plugin.handle))
            fail(dlerror());
        pthread_barrier_wait(&closed);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    if (strcmp(before, file_of_malloc()) != 0 || strstr(before, "libc.so") == NULL)
        fail("the process's malloc changed");
    puts("done");
    return 0;
}
