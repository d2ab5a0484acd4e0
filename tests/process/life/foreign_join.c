/*
 * foreign_join HOW: glibc frees the control data of ended threads under the lock of its stack cache, which
 * pthread_create takes too. A free there must not start a thread or wait for one. Each child process frees N of 24
 * blocks of 1 MiB just before its workers end. For one N the free inside glibc is the one that finds much free memory.
 *
 * HOW: join      a worker frees the blocks as its last act, and main joins it
 *      detached  the workers are detached and end on their own
 *      stacks    as join, with stacks of 32 MiB, so that the stack cache always overflows
 *      key       the destructor of a pthread key frees the blocks
 *      dlclose   main frees them, and the dynamic linker frees a library's memory under its own lock
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "foreign.h"

enum { WORKERS = 120, BLOCKS = 24 };

static const char *how;
static unsigned count; /* blocks to free */
static void *blocks[BLOCKS];
static pthread_barrier_t together, nobody;
static atomic_uint left = WORKERS;
static atomic_bool freed;
static pthread_key_t key;

static void *wait_for_ever(void *unused)
{
    (void)unused;
    free(malloc(100));
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&nobody);
    return NULL;
}

static void free_blocks(void)
{
    for (unsigned i = 0; i < count; i++)
        free(blocks[i]);
}

static void destroy(void *unused)
{
    (void)unused;
    free_blocks();
}

static void *work(void *unused)
{
    (void)unused;
    free(malloc(100));
    pthread_barrier_wait(&together);
    if (atomic_fetch_sub(&left, 1) == 1) {
        if (strcmp(how, "key") == 0)
            pthread_setspecific(key, &key);
        else if (strcmp(how, "dlclose") != 0)
            free_blocks();
        atomic_store(&freed, true);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[WORKERS];
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    if (strcmp(how, "stacks") == 0)
        pthread_attr_setstacksize(&attributes, (size_t)32 << 20);
    if (strcmp(how, "detached") == 0)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], &attributes, work, NULL))
            fail("pthread_create");
    pthread_barrier_wait(&together);
    if (strcmp(how, "detached") == 0)
        usleep(20000);
    while (!atomic_load(&freed))
        usleep(100);
    if (strcmp(how, "detached") != 0)
        for (int i = 0; i < WORKERS; i++)
            pthread_join(threads[i], NULL);
}

static void *ends_at_once(void *unused)
{
    return unused;
}

static void child(void)
{
    pthread_barrier_init(&together, NULL, WORKERS + 2);
    pthread_barrier_init(&nobody, NULL, 2);
    pthread_key_create(&key, destroy);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(1 << 20), 1, 1 << 20);
    begin_thread(wait_for_ever, NULL);
    run_threads();
    if (strcmp(how, "dlclose") == 0) {
        for (unsigned i = 0; i < count; i++) {
            free(blocks[i]);
            void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
            if (library)
                dlclose(library);
        }
    }
    /* pthread_create and dlclose need the locks under which glibc freed. */
    pthread_join(begin_thread(ends_at_once, NULL), NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    how = argv[1];
    for (count = 1; count <= BLOCKS; count++) {
        pid_t pid = fork();
        char what[40];
        if (pid == 0) {
            child();
            _exit(0);
        }
        snprintf(what, sizeof(what), "a child with %u of %d blocks freed", count, BLOCKS);
        expect_child(pid, what);
    }
    puts("done");
    return 0;
}
