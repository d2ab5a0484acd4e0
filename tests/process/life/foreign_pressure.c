/*
 * foreign_pressure WHAT SIZE: main fills a cache with blocks of SIZE bytes and passes the soft limit several times. The
 * pressure handler uses the allocator. All memory must be accounted for: prints by how many bytes, and blocks of the
 * size's class, the live memory after the last free exceeds that before the first allocation.
 *
 * WHAT: trim      the handler frees blocks of the size that is being allocated
 *       allocate  it allocates and frees all sizes
 *       collect   it calls hak_collect
 *       idle      it calls hak_thread_idle, and another thread begins and allocates
 *       thread    it starts a thread that allocates
 *       fork      it forks, and the child allocates
 *       child     it forks; the child returns from the handler, does the rest of the work, and ends by exit
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hakmem/stats.h>

#include "foreign.h"

enum { TRIMMED = 500, CALLS = 100, FORKS = 4, CLASSES = 100 };

static hak_pressure_handler (*set_handler)(hak_pressure_handler);
static size_t (*get_stats)(struct hak_stats *, size_t);
static size_t (*get_classes)(struct hak_stats_class *, size_t, size_t);
static size_t (*collect)(bool);
static void (*thread_idle)(void);

static const char *what;
static size_t size;
static unsigned char **blocks;
static size_t count, held, trimmed; /* numbers of blocks[], in order: to allocate, allocated, freed */
static unsigned calls;
static bool is_child;
static pthread_t threads[CALLS];
static unsigned started;

static void find(void *function, const char *name)
{
    *(void **)function = dlsym(RTLD_DEFAULT, name);
    if (!*(void **)function)
        fail(name);
}

struct living {
    uint64_t bytes, blocks;
};

static struct living measure(void)
{
    struct hak_stats_class classes[CLASSES];
    struct hak_stats stats;
    size_t used = get_classes(classes, sizeof(*classes), CLASSES);

    if (get_stats(&stats, sizeof(stats)) != sizeof(stats) || used == 0 || used > CLASSES)
        fail("hak_stats_get");
    for (size_t i = 0; i < used; i++)
        if (classes[i].block_size >= size)
            return (struct living){ stats.live, classes[i].live_blocks };
    fail("the size's class");
    return (struct living){ 0, 0 };
}

/* free may call the handler, which then trims again. */
static void trim(size_t most)
{
    while (most-- > 0 && trimmed < held) {
        unsigned char *block = blocks[trimmed++];
        check_block(block, size);
        free(block);
    }
}

static void *allocate(void *unused)
{
    struct work_block own[100] = { 0 };
    unsigned same = size > 10000 ? 10 : 100;
    uint64_t state = calls;

    for (int i = 0; i < 20; i++) {
        void *some[100];
        work_steps(own, 100, 20, &state);
        for (unsigned k = 0; k < same; k++)
            mark_block(some[k] = malloc(size), size);
        for (unsigned k = 0; k < same; k++) {
            check_block(some[k], size);
            free(some[k]);
        }
    }
    work_drop_all(own, 100);
    return unused;
}

static void start_thread(void)
{
    threads[started++] = begin_thread(allocate, NULL);
}

static void fork_here(void)
{
    pid_t pid = fork();
    if (pid != 0) {
        expect_child(pid, "a child of the pressure handler");
        return;
    }
    is_child = true;
    use_all_sizes();
    if (strcmp(what, "fork") == 0)
        _exit(0);
}

static void on_pressure(size_t mapped, size_t limit)
{
    if (mapped <= limit)
        fail("the handler is told of no pressure");
    if (is_child || ++calls > CALLS)
        return;
    if (strcmp(what, "trim") == 0) {
        trim(TRIMMED);
    } else if (strcmp(what, "allocate") == 0) {
        use_all_sizes();
    } else if (strcmp(what, "collect") == 0) {
        trim(TRIMMED);
        collect(calls % 2);
    } else if (strcmp(what, "idle") == 0) {
        thread_idle();
        start_thread();
        usleep(1000); /* the thread takes over the cache that this one gave up */
    } else if (strcmp(what, "thread") == 0) {
        start_thread();
    } else if (calls <= FORKS) {
        fork_here();
    }
}

static void fill_and_free(void)
{
    trimmed = 0;
    for (held = 0; held < count; held++)
        mark_block(blocks[held] = malloc(size), size);
    while (trimmed < count)
        trim(1);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    what = argv[1];
    size = (size_t)atol(argv[2]);
    find(&set_handler, "hak_set_pressure_handler");
    find(&get_stats, "hak_stats_get");
    find(&get_classes, "hak_stats_classes");
    find(&collect, "hak_collect");
    find(&thread_idle, "hak_thread_idle");
    count = ((size_t)32 << 20) / size;
    blocks = calloc(count, sizeof(*blocks));
    free(malloc(size));
    pthread_join(begin_thread(allocate, NULL), NULL);
    struct living before = measure();
    set_handler(on_pressure);
    for (int round = 0; round < 3; round++)
        fill_and_free();
    set_handler(NULL);
    for (unsigned i = 0; i < started && !is_child; i++)
        pthread_join(threads[i], NULL);
    if (calls == 0)
        fail("the handler was not called");
    collect(true);
    struct living after = measure();
    if (is_child)
        exit(after.bytes == before.bytes ? 0 : 4);
    dprintf(1, "%lld blocks, %lld bytes\n", (long long)(after.blocks - before.blocks),
            (long long)(after.bytes - before.bytes));
    return 0;
}
