/*
 * Programs with a fault of an allocator, for test_analyze.py:
 *   planted waves     fills 32 MiB and frees them, ten times
 *   planted foreign   a second thread frees what the first allocated, and this free asks the kernel about each block
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS 4096

static char *blocks[BLOCKS];
static _Thread_local volatile int consumes; /* a compiler may think that no free reads it */
static void (*next)(void *);

/* Serves every caller in the process, for it is in the program itself. */
void free(void *block)
{
    unsigned char resident;

    if (consumes)
        mincore((void *)((uintptr_t)block & ~(uintptr_t)4095), 4096, &resident);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "free");
    next(block);
}

static void *consume(void *unused)
{
    consumes = 1;
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    consumes = 0;
    return unused;
}

static void fill(size_t size)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(size), 1, size);
}

int main(int count, char **words)
{
    pthread_t thread;

    if (count == 2 && strcmp(words[1], "foreign") == 0) {
        fill(64);
        return pthread_create(&thread, NULL, consume, NULL) || pthread_join(thread, NULL);
    }
    for (int wave = 0; wave < 10; wave++) {
        fill(8192);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    return 0;
}
