/* script SCENARIO SIZE COUNT: known calls with known counters. Only the scenario has blocks of SIZE. */
#include <hakmem/hakmem.h>
#include <hakmem/stats.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 100000 };

static void *blocks[MOST];
static size_t size, count;
static pthread_barrier_t barrier;

static void need(bool condition)
{
    if (!condition)
        abort();
}

static void allocate_all(void)
{
    for (size_t i = 0; i < count; i++)
        need((blocks[i] = malloc(size)) != NULL);
}

static void free_all(void)
{
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

/* ---- One thread ---- */

static void churn(void)
{
    struct hak_stats before;

    printf("slabs: "); /* the stream's buffer is a block */
    need(hak_stats_get(&before, sizeof before) != 0);
    printf("%" PRIu64 "\n", before.small.slabs + before.medium.slabs);
    fflush(stdout);
    allocate_all();
    free_all();
}

/* Pairs that the cache serves, except the first. */
static void zeroed_pairs(void)
{
    for (size_t i = 0; i < count; i++)
        free(calloc(1, size));
}

static void free_nulls(void)
{
    for (size_t i = 0; i < count; i++)
        free(NULL);
}

static void too_large(void)
{
    for (size_t i = 0; i < count; i++)
        need(malloc((size_t)PTRDIFF_MAX + size) == NULL && errno == ENOMEM);
}

static void no_blocks(void)
{
    static char none[64];
    for (size_t i = 0; i < count; i++)
        free(none);
}

/* Allocates until memory is out, and COUNT times more. */
static void exhaust(void)
{
    size_t failures = 0;
    while (failures < count)
        failures += malloc(size) == NULL;
}

/* The stack of SIZE is closed while another class makes COUNT calls. The cache serves few of them. */
static void disuse(void)
{
    free(malloc(size));
    for (size_t i = 0; i < count; i++)
        need(malloc(57344) != NULL);
}

static void spans_of_a_superslab(void)
{
    struct hak_stats before, held, freed, purged;

    need(hak_stats_get(&before, sizeof before) != 0);
    allocate_all();
    need(hak_stats_get(&held, sizeof held) != 0);
    free_all();
    hak_collect(false);
    need(hak_stats_get(&freed, sizeof freed) != 0);
    hak_collect(true);
    need(hak_stats_get(&purged, sizeof purged) != 0);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", before.superslabs, before.superslabs_empty,
           held.superslabs, freed.superslabs_empty);
}

/* ---- Two threads: one allocates while the other waits ---- */

static void *allocate_and_end(void *argument)
{
    (void)argument;
    allocate_all();
    return NULL;
}

static void *allocate_and_wait(void *argument)
{
    (void)argument;
    allocate_all();
    pthread_barrier_wait(&barrier); /* the other thread frees */
    pthread_barrier_wait(&barrier);
    free(malloc(size)); /* a miss, if nothing is left in the cache */
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void run_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    need(pthread_create(&thread, NULL, function, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* Frees the blocks of another thread, which lives or has ended. */
static void free_of_other(bool dead)
{
    pthread_t thread;

    pthread_barrier_init(&barrier, NULL, 2);
    need(pthread_create(&thread, NULL, dead ? allocate_and_end : allocate_and_wait, NULL) == 0);
    if (dead)
        need(pthread_join(thread, NULL) == 0);
    else
        pthread_barrier_wait(&barrier);
    free_all();
    hak_collect(false); /* flushes this thread's cache */
    if (dead)
        return;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the owner has collected them */
    pthread_barrier_wait(&barrier);
    need(pthread_join(thread, NULL) == 0);
}

static void remote(void)
{
    free_of_other(false);
}

static void orphan(void)
{
    free_of_other(true);
}

/* The next block that this thread gets is in the dead thread's only slab. */
static void adopt_orphan(void)
{
    run_thread(allocate_and_end, NULL);
    need(malloc(size) != NULL);
}

/* Frees every other block of a waiting thread, and then allocates as many. */
static void adopt_idle(void)
{
    pthread_t thread;

    pthread_barrier_init(&barrier, NULL, 2);
    need(pthread_create(&thread, NULL, allocate_and_wait, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < count; i += 2)
        free(blocks[i]);
    hak_collect(false);
    for (size_t i = 0; i < count; i++) {
        usleep(1000);
        need(malloc(size) != NULL);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_barrier_wait(&barrier);
    need(pthread_join(thread, NULL) == 0);
}

static void *first_call(void *argument)
{
    (void)argument;
    free(malloc(size));
    return NULL;
}

/* Each thread but the first takes over its predecessor's cache. */
static void threads_in_turn(void)
{
    for (size_t i = 0; i < count; i++)
        run_thread(first_call, NULL);
}

static void after_the_end(void *block)
{
    free(block);
    for (size_t i = 0; i < count; i++)
        need(malloc(size) != NULL);
}

static void *set_key(void *argument)
{
    need(pthread_setspecific(*(pthread_key_t *)argument, malloc(size)) == 0);
    return NULL;
}

/* A key's destructor that runs after HAKMEM's frees one block and takes COUNT. */
static void without_cache(void)
{
    pthread_key_t key;
    free(malloc(1));
    need(pthread_key_create(&key, after_the_end) == 0);
    run_thread(set_key, &key);
}

static void nothing(void)
{
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    { "nothing", nothing },           { "churn", churn },           { "zeroed_pairs", zeroed_pairs },
    { "free_nulls", free_nulls },     { "too_large", too_large },   { "no_blocks", no_blocks },
    { "exhaust", exhaust },           { "disuse", disuse },         { "superslabs", spans_of_a_superslab },
    { "remote", remote },             { "orphan", orphan },         { "adopt_orphan", adopt_orphan },
    { "adopt_idle", adopt_idle },     { "in_turn", threads_in_turn }, { "without_cache", without_cache },
};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size = strtoul(argv[2], NULL, 10);
    count = strtoul(argv[3], NULL, 10);
    need(count <= MOST);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
