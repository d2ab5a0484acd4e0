/*
 * Opens libraries in every way that depends on the caller of dlopen.
 *
 * deepbind blocks PLUGIN     with RTLD_DEEPBIND: the program and the plugin free each other's blocks
 * deepbind base PLUGIN       the same with dlmopen into the program's own name space
 * deepbind origin            libplugin.so and libneighbour.so by name only: this program's RUNPATH, then the plugin's
 * deepbind space PLUGIN      dlmopen into a new name space, which has its own malloc
 * deepbind errors            what dlopen and dlerror report for files that are no libraries
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepbind.h"

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dlerror());
    exit(3);
}

static const struct deepbind *plugin_in(void *handle)
{
    const struct deepbind *plugin;
    if (handle == NULL)
        fail("open");
    if ((plugin = dlsym(handle, "plugin")) == NULL)
        fail("plugin");
    return plugin;
}

static void cross(const struct deepbind *plugin)
{
    for (size_t size = 1; size < 5000000; size = size * 3 + 1) {
        char *block = malloc(size);
        memset(block, 1, size);
        block = plugin->grow(block, size * 2);
        plugin->drop(block);
        block = plugin->make(size);
        memset(block, 1, size);
        block = realloc(block, size * 2);
        free(block);
        free(plugin->text());
    }
}

static void origin(void)
{
    void *handle = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND), *mine, *its;
    const struct deepbind *plugin = plugin_in(handle);
    if ((mine = dlopen("libneighbour.so", RTLD_NOW | RTLD_DEEPBIND)) == NULL)
        fail("neighbour");
    if ((its = plugin->open("libbeyond.so", RTLD_NOW)) == NULL)
        fail("beyond");
    printf("%s %s\n", (const char *)dlsym(mine, "neighbour"), (const char *)dlsym(its, "neighbour"));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "blocks") == 0)
        cross(plugin_in(dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND)));
    else if (strcmp(what, "base") == 0)
        cross(plugin_in(dlmopen(LM_ID_BASE, argv[2], RTLD_NOW | RTLD_DEEPBIND)));
    else if (strcmp(what, "origin") == 0)
        origin();
    else if (strcmp(what, "space") == 0) {
        const struct deepbind *plugin = plugin_in(dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW));
        plugin->drop(plugin->grow(plugin->make(100), 2000));
        if (plugin->open("libm.so.6", RTLD_NOW) == NULL)
            fail("in its name space");
    } else if (strcmp(what, "errors") == 0) {
        if (dlopen("/no/such/file.so", RTLD_NOW | RTLD_DEEPBIND) != NULL)
            return 4;
        puts(dlerror());
        if (dlopen("/dev/null", RTLD_LAZY) != NULL)
            return 4;
        puts(dlerror());
        if (dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND) == NULL)
            return 4;
    } else
        return 2;
    puts("done");
    return 0;
}
