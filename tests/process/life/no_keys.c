/*
 * The program has taken all thread-specific keys before HAKMEM is loaded. Many threads in turn must not have a heap
 * each.
 *
 * no_keys LIBRARY THREADS
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hakmem/stats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *(*take)(size_t size);
static void (*give)(void *block);
static size_t (*figures)(struct hak_stats *stats, size_t size);

static void look_up(void *handle, const char *name, void *function)
{
    void *address = dlsym(handle, name);
    if (address == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(3);
    }
    memcpy(function, &address, sizeof address);
}

static void *run(void *argument)
{
    (void)argument;
    void *blocks[50];
    for (size_t i = 0; i < 50; i++)
        memset(blocks[i] = take(i * 100 + 1), 1, i * 100 + 1);
    for (size_t i = 0; i < 50; i++)
        give(blocks[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_key_t key;
    struct hak_stats stats;
    void *handle;

    if (argc < 3)
        return 2;
    while (pthread_key_create(&key, NULL) == 0)
        continue;
    if ((handle = dlopen(argv[1], RTLD_NOW)) == NULL)
        return 3;
    look_up(handle, "hak_malloc", &take);
    look_up(handle, "hak_free", &give);
    look_up(handle, "hak_stats_get", &figures);
    for (int i = atoi(argv[2]); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, NULL) != 0)
            return 4;
    }
    run(NULL);
    figures(&stats, sizeof stats);
    printf("heaps %lu, orphans %lu\n", (unsigned long)stats.heaps_live, (unsigned long)stats.heaps_orphan);
    return 0;
}
