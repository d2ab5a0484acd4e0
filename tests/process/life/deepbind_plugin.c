#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "deepbind.h"

static void *make(size_t size) { return malloc(size); }
static void drop(void *block) { free(block); }
static void *grow(void *block, size_t size) { return realloc(block, size); }
static char *text(void) { return strdup("a text of the plugin's"); }
static void *open_other(const char *file, int mode) { return dlopen(file, mode); }

extern const struct deepbind plugin;
const struct deepbind plugin = { make, drop, grow, text, open_other };
