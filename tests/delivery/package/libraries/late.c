/*
 * A program of one thread that loads the library of threads late. Before glibc 2.34 HAKMEM is loaded without that
 * library. Prints "ok" and the number of the threads' heaps: an ended thread gives its heap to the next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 300, BLOCKS = 300 };

static void *run(void *unused)
{
    char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(i * 30 + 1), 1, i * 30 + 1);
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*join)(pthread_t, void **);

    run(NULL);
    void *library = dlopen("libpthread.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *symbol = dlsym(RTLD_DEFAULT, "pthread_create");
    memcpy(&create, &symbol, sizeof create);
    symbol = dlsym(library, "pthread_join");
    memcpy(&join, &symbol, sizeof join);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (create(&thread, NULL, run, NULL) != 0 || join(thread, NULL) != 0)
            return 2;
    }
    puts("ok");
    return 0;
}
