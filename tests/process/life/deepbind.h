/* The functions that a library opened with RTLD_DEEPBIND gives to its program (deepbind_plugin.c). */
#ifndef DEEPBIND_H
#define DEEPBIND_H

#include <stddef.h>

struct deepbind {
    void *(*make)(size_t size);                /* malloc, in the library */
    void (*drop)(void *block);                 /* free, in the library */
    void *(*grow)(void *block, size_t size);   /* realloc, in the library */
    char *(*text)(void);                       /* strdup, in the library */
    void *(*open)(const char *file, int mode); /* dlopen, in the library */
};

#endif
