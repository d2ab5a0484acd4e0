/* A copy of the library that is opened at run time, and the functions that the programs here use from it. */
#ifndef TESTS_LIFE_PLUGIN_H
#define TESTS_LIFE_PLUGIN_H

#include <dlfcn.h>
#include <stddef.h>

#include "work.h"

struct plugin {
    void *handle;
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*realloc)(void *, size_t);
    size_t (*usable_size)(const void *);
    size_t (*collect)(_Bool);
    const char *(*version)(void);
};

static inline struct plugin plugin_open(const char *path)
{
    struct plugin plugin;

    plugin.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin.handle)
        fail(dlerror());
    *(void **)&plugin.malloc = dlsym(plugin.handle, "hak_malloc");
    *(void **)&plugin.free = dlsym(plugin.handle, "hak_free");
    *(void **)&plugin.realloc = dlsym(plugin.handle, "hak_realloc");
    *(void **)&plugin.usable_size = dlsym(plugin.handle, "hak_usable_size");
    *(void **)&plugin.collect = dlsym(plugin.handle, "hak_collect");
    *(void **)&plugin.version = dlsym(plugin.handle, "hak_version");
    if (!plugin.malloc || !plugin.free || !plugin.realloc || !plugin.usable_size || !plugin.collect || !plugin.version)
        fail("dlsym");
    return plugin;
}

/* Fills, grows and frees blocks of many sizes from the plugin. */
static inline void plugin_use(const struct plugin *plugin, int rounds)
{
    unsigned char *blocks[100];

    for (int n = 0; n < rounds; n++) {
        for (size_t i = 0; i < 100; i++) {
            blocks[i] = plugin->malloc(i * i * 5 + 1);
            if (!blocks[i] || plugin->usable_size(blocks[i]) < i * i * 5 + 1)
                fail("hak_malloc");
            memset(blocks[i], (int)i, i * i * 5 + 1);
        }
        for (size_t i = 0; i < 100; i++) {
            blocks[i] = plugin->realloc(blocks[i], i * i * 7 + 1);
            for (size_t k = 0; k < i * i * 5 + 1; k += 7)
                if (blocks[i][k] != i)
                    fail("contents from hak_realloc");
            plugin->free(blocks[i]);
        }
    }
}

#endif
