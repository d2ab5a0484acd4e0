/*
 * os/older_libc.c on a C library without functions of threads: this program is linked without the linker's --wrap, so
 * they are missing at start. Then it opens a library that has them, like libpthread.so.0 before glibc 2.34.
 *
 * older LIBRARY
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "os/older_libc.h"

int __wrap_pthread_key_create(pthread_key_t *key, void (*at_exit)(void *));
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size);

static void at_exit(void *unused)
{
    (void)unused;
}

int main(int count, char **arguments)
{
    pthread_key_t key = 1;
    const void *(*value_of)(pthread_key_t);

    /* The only thread: nothing needs to be called, and every function succeeds. */
    if (count != 2 || __wrap_pthread_key_create(&key, at_exit) != 0 || __wrap_pthread_setspecific(key, &key) != 0 ||
        __wrap_pthread_attr_setstacksize(NULL, 1) != 0)
        return 3;
    older_libc_before_thread();
    if (key != 1)
        return 4;

    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library == NULL)
        return 5;
    older_libc_before_thread();
    older_libc_before_thread(); /* one call is enough */
    void *symbol = dlsym(library, "value_of");
    memcpy(&value_of, &symbol, sizeof value_of);
    if (key != 40 || __wrap_pthread_setspecific(key, arguments) != 0 || value_of(40) != arguments)
        return 6;
    puts("ok");
    return 0;
}
