/*
 * plugin_host PLUGIN: loads the plugin, uses it in a thread, and unloads it before the thread ends. With
 * HAKMEM_PURGE_THREAD=always the plugin has a purge thread, which the host then lets run. Prints "done".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t used, unloaded;

static void fail(const char *what)
{
    fprintf(stderr, "plugin_host: %s\n", what);
    exit(1);
}

static void *use(void *function)
{
    int (*plugin_use)(void) = *(int (**)(void))function;

    if (plugin_use())
        fail("plugin_use");
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&unloaded);
    return NULL;
}

/* How often the thread has gone to sleep, and whether it is the purge thread. */
static unsigned long sleeps_of(const char *thread, int *is_purge_thread)
{
    char path[300], line[200];
    unsigned long sleeps = 0;
    FILE *status;

    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    if (!(status = fopen(path, "r")))
        fail(path);
    while (fgets(line, sizeof line, status)) {
        *is_purge_thread |= strcmp(line, "Name:\thakmem-purge\n") == 0;
        sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps);
    }
    fclose(status);
    return sleeps;
}

/* How often the purge thread has gone to sleep. */
static unsigned long purge_thread_sleeps(void)
{
    DIR *threads = opendir("/proc/self/task");
    struct dirent *entry;
    unsigned long sleeps = 0;
    int found = 0;

    while (!found && threads && (entry = readdir(threads)))
        if (entry->d_name[0] != '.')
            sleeps = sleeps_of(entry->d_name, &found);
    if (!found)
        fail("there is no purge thread");
    closedir(threads);
    return sleeps;
}

int main(int argc, char **argv)
{
    const char *purge = getenv("HAKMEM_PURGE_THREAD");
    void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*plugin_use)(void);
    unsigned long sleeps = 0;
    pthread_t thread;

    if (!plugin)
        fail(dlerror());
    *(void **)&plugin_use = dlsym(plugin, "plugin_use");
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&unloaded, NULL, 2);
    if (pthread_create(&thread, NULL, use, (void *)&plugin_use))
        fail("pthread_create");
    pthread_barrier_wait(&used);
    if (dlclose(plugin))
        fail(dlerror());
    if (purge)
        sleeps = purge_thread_sleeps();
    /* It wakes twice: after one of the two it ran the plugin's code. */
    while (purge && purge_thread_sleeps() < sleeps + 2)
        usleep(1000);
    pthread_barrier_wait(&unloaded);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
