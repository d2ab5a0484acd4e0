/* Threads call mallopt, malloc_trim, mallinfo, mallinfo2, malloc_info and malloc_stats, beside others that allocate. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>

#include "foreign.h"

static atomic_bool done;

static void *ask(void *argument)
{
    FILE *file = fopen("/dev/null", "w");
    struct work_block blocks[100] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    if (!file)
        fail("fopen");
    for (int i = 0; i < 25; i++) {
        work_steps(blocks, 100, 300, &state);
        struct mallinfo2 now = mallinfo2();
        if (now.uordblks + now.hblkhd == 0 || now.uordblks > (size_t)1 << 40)
            fail("mallinfo2");
        if (malloc_info(0, file))
            fail("malloc_info");
        if (malloc_info(1, file) == 0)
            fail("malloc_info with options that are none");
        malloc_stats();
        malloc_trim((size_t)i * 1000);
        if (!mallopt(M_TRIM_THRESHOLD, 100000 + i) || !mallopt(M_MMAP_THRESHOLD, 200000 + i) ||
            !mallopt(M_ARENA_MAX, 2))
            fail("mallopt");
        mallopt(-100, 1);
    }
    fclose(file);
    work_drop_all(blocks, 100);
    return NULL;
}

static void *allocate(void *argument)
{
    struct work_block blocks[200] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&done))
        work_steps(blocks, 200, 500, &state);
    work_drop_all(blocks, 200);
    return NULL;
}

static ssize_t write_and_allocate(void *cookie, const char *text, size_t size)
{
    (void)cookie;
    (void)text;
    use_all_sizes();
    malloc_trim(0);
    return (ssize_t)size;
}

/* The report is written by a function of the program, which allocates and gives memory back. */
static void report_to_function(void)
{
    FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_and_allocate });

    if (!file)
        fail("fopencookie");
    setvbuf(file, NULL, _IONBF, 0);
    if (malloc_info(0, file))
        fail("malloc_info to a function");
    fclose(file);
}

int main(void)
{
    enum { THREADS = 3 };
    pthread_t askers[THREADS], allocators[THREADS];
    int quiet = open("/dev/null", O_WRONLY), said = dup(2);

    if (quiet < 0 || dup2(quiet, 2) != 2)
        fail("dup2");
    for (uintptr_t i = 0; i < THREADS; i++) {
        askers[i] = begin_thread(ask, (void *)(i + 1));
        allocators[i] = begin_thread(allocate, (void *)(i + 10));
    }
    report_to_function();
    for (int i = 0; i < THREADS; i++)
        pthread_join(askers[i], NULL);
    atomic_store(&done, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(allocators[i], NULL);
    dup2(said, 2);
    puts("done");
    return 0;
}
