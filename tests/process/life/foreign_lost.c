/*
 * foreign_lost FORKS: main forks beside threads that begin, allocate and end. The child inherits every heap that none
 * of its threads uses. The same number of new threads take these heaps, and no new heap is made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hakmem/stats.h>

#include "foreign.h"

enum { MAKERS = 3, HEAPS = 200 };

static size_t (*get_heaps)(struct hak_stats_heap *, size_t, size_t);
static atomic_bool done;
static pthread_barrier_t all_begun;

static void *live_briefly(void *unused)
{
    for (unsigned i = 0; i < 20; i++)
        free(malloc(size_number(i)));
    return unused;
}

static void *make_threads(void *unused)
{
    while (!atomic_load(&done))
        pthread_join(begin_thread(live_briefly, NULL), NULL);
    return unused;
}

/* The number of heaps that serve threads. */
static unsigned count_heaps(void)
{
    static struct hak_stats_heap heaps[HEAPS];
    size_t made = get_heaps(heaps, sizeof(*heaps), HEAPS);
    unsigned count = 0;

    if (made > HEAPS)
        fail("the number of heaps");
    for (size_t i = 0; i < made; i++)
        count += heaps[i].kind == HAK_STATS_THREAD;
    return count;
}

static void *take_a_heap(void *unused)
{
    void *block = malloc(100);
    pthread_barrier_wait(&all_begun);
    free(block);
    return unused;
}

static void child(void)
{
    pthread_t threads[HEAPS];
    unsigned heaps = count_heaps(), now;

    pthread_barrier_init(&all_begun, NULL, heaps);
    for (unsigned i = 0; i + 1 < heaps; i++)
        threads[i] = begin_thread(take_a_heap, NULL);
    pthread_barrier_wait(&all_begun);
    for (unsigned i = 0; i + 1 < heaps; i++)
        pthread_join(threads[i], NULL);
    now = count_heaps();
    if (now != heaps) {
        dprintf(2, "%u heaps, and %u after as many threads\n", heaps, now);
        _exit(1);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    pthread_t makers[MAKERS];

    if (argc != 2)
        return 2;
    *(void **)&get_heaps = dlsym(RTLD_DEFAULT, "hak_stats_heaps");
    if (!get_heaps)
        fail("hak_stats_heaps");
    for (int i = 0; i < MAKERS; i++)
        makers[i] = begin_thread(make_threads, NULL);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0)
            child();
        expect_child(pid, "a child");
    }
    atomic_store(&done, true);
    for (int i = 0; i < MAKERS; i++)
        pthread_join(makers[i], NULL);
    puts("done");
    return 0;
}
