/*
 * A library to preload beside the allocator. Its constructor runs before the allocator's, and calls every entry point,
 * free(NULL) first. Its destructor runs after main has ended.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *kept;
static void *large;

static void *run(void *argument)
{
    free(memset(malloc(300), 1, 300));
    return argument;
}

__attribute__((constructor(101))) static void early(void)
{
    pthread_t thread;

    free(NULL);
    free(malloc(1));
    kept = calloc(10, 10);
    large = malloc(3 << 20);
    if (!kept || !large || malloc_usable_size(kept) < 100)
        abort();
    memset(large, 1, 3 << 20);
    kept = realloc(kept, 5000);
    free(aligned_alloc(4096, 100));
    if (pthread_create(&thread, NULL, run, NULL) == 0)
        pthread_join(thread, NULL);
    setenv("EARLY", "done", 1);
}

__attribute__((destructor(101))) static void late(void)
{
    free(kept);
    free(large);
    void *last = malloc(10);
    dprintf(1, "late %d\n", last != NULL);
    free(last);
}
