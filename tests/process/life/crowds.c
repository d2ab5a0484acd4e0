/*
 * crowds KIND COUNT [at once]: COUNT threads or COUNT first-class heaps (KIND: threads, heaps) live at once and then
 * end. Each holds one block of 64 bytes.
 *
 * Prints resident bytes for each: while all live, and after they ended and the allocator's ticks ran. With `at once`
 * it does not wait for ticks, for an instruction counter under which none are due. That compares the same work in
 * work_before, work_after (after the crowd ended) and work_settled (after all is given back).
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include "work.h"

enum { BLOCKS = 20000, HEAPS = 50, TICKS = 150, TICK_US = 10000 };

static void *(*heap_new)(void);
static void *(*heap_malloc)(void *heap, size_t size);
static void (*heap_destroy)(void *heap);

static void find_heaps(void)
{
    *(void **)&heap_new = dlsym(RTLD_DEFAULT, "hak_heap_new");
    *(void **)&heap_malloc = dlsym(RTLD_DEFAULT, "hak_heap_malloc");
    *(void **)&heap_destroy = dlsym(RTLD_DEFAULT, "hak_heap_destroy");
    if (!heap_new || !heap_malloc || !heap_destroy)
        fail("no first-class heaps");
}

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib = -1;

    while (file && kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Rss: %ld", &kib);
    if (kib < 0)
        fail("smaps_rollup");
    fclose(file);
    return kib;
}

/* Takes slabs of many classes from the pool and returns them. Makes heaps and destroys them. */
static void work(void)
{
    static void *blocks[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(16 + (size_t)(i * 37) % 2000);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < HEAPS; i++) {
        void *heap = heap_new();
        if (!heap || !heap_malloc(heap, 100))
            fail("hak_heap_new");
        heap_destroy(heap);
    }
}

__attribute__((noipa)) void work_before(void) { work(); }
__attribute__((noipa)) void work_after(void) { work(); }
__attribute__((noipa)) void work_settled(void) { work(); }

static pthread_barrier_t barrier;

static void *run(void *unused)
{
    volatile char *block = malloc(64);

    (void)unused;
    *block = 1;
    pthread_barrier_wait(&barrier); /* all threads hold their blocks */
    pthread_barrier_wait(&barrier); /* the resident bytes are measured */
    free((void *)block);
    return NULL;
}

/* Returns the KiB that are resident while all threads live. */
static long crowd_of_threads(int count)
{
    static pthread_t threads[10000];
    long kib;

    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, NULL))
            fail("pthread_create");
    pthread_barrier_wait(&barrier);
    kib = resident_kib();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return kib;
}

static long crowd_of_heaps(int count)
{
    static void *heaps[10000];
    long kib;

    for (int i = 0; i < count; i++) {
        volatile char *block;
        heaps[i] = heap_new();
        block = heap_malloc(heaps[i], 64);
        *block = 1;
    }
    kib = resident_kib();
    for (int i = 0; i < count; i++)
        heap_destroy(heaps[i]);
    return kib;
}

/* Makes slow calls, because only slow calls run ticks. A call for a huge block always is slow. */
static void let_ticks_run(useconds_t pause)
{
    void *volatile block; /* volatile: a compiler removes a malloc whose block is only freed */

    for (int i = 0; i < TICKS; i++) {
        for (size_t size = 16; size < 8 << 20; size *= 2) {
            block = malloc(size);
            free(block);
        }
        usleep(pause);
    }
}

int main(int argc, char **argv)
{
    int count = argc >= 3 ? atoi(argv[2]) : 0, threads;
    useconds_t pause = argc == 4 && strcmp(argv[3], "at once") == 0 ? 0 : TICK_US;
    long before, live;

    if (count < 1 || count > 10000)
        return 2;
    threads = strcmp(argv[1], "threads") == 0;
    find_heaps();
    work();
    work_before();
    (threads ? crowd_of_threads : crowd_of_heaps)(1); /* pays for what only the first one needs */
    let_ticks_run(pause);
    malloc_trim(0);
    before = resident_kib();
    live = (threads ? crowd_of_threads : crowd_of_heaps)(count);
    work_after();
    let_ticks_run(pause);
    printf("live %ld\n", (live - before) * 1024 / count);
    printf("gone %ld\n", (resident_kib() - before) * 1024 / count);
    malloc_trim(0);
    work_settled();
    return 0;
}
