/*
 * window late MIB              sets the address-space limit at run time; mappings, a library and threads go on
 * window share SIZE MIB start|late   prints the share of the limit, in hundredths, that blocks of SIZE bytes reach; the
 *                              limit is set before the first malloc or after it
 * window shift MIB             under the limit small, large and small blocks in turn: prints the least share
 * window locked current|all SIZE MIB   blocks, mlockall, freed; again: prints MiB resident before, with and after
 * window memlock MIB           blocks up to the caller's locked-memory limit, after mlockall, without privileges
 * window where 1               prints the place of a small block
 * window foreign MIB           maps memory where the window would grow; neither overwrites the other
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "work.h"

#define MIB ((size_t)1 << 20)

static void set_limit(int which, size_t bytes)
{
    struct rlimit limit = { bytes, bytes };

    if (setrlimit(which, &limit) != 0)
        fail("setrlimit");
}

/* Makes a chain of blocks, written at both ends, up to `most` bytes or ENOMEM. Returns the bytes. */
static size_t fill(char **chain, size_t size, size_t most)
{
    size_t got = 0;

    while (got + size <= most && work_chain(chain, size))
        got += size;
    return got;
}

static void drain(char **chain, size_t size)
{
    while (*chain)
        work_unchain(chain, size);
}

static void *run(void *argument)
{
    char *chain = NULL;

    if (fill(&chain, 1000, MIB) < MIB - 1000)
        fail("malloc in a thread");
    drain(&chain, 1000);
    return argument;
}

static void late(size_t limit)
{
    static const size_t sizes[] = { 100, 20000, 300000, 5000000 };
    pthread_t thread;
    char *chain = NULL;
    void *map, *library;

    run(NULL);
    set_limit(RLIMIT_AS, limit);
    map = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        fail("mmap");
    munmap(map, 64 * MIB);
    library = dlopen("libm.so.6", RTLD_NOW);
    if (!library)
        fail("dlopen");
    dlclose(library);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL))
            fail("pthread_create");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (fill(&chain, sizes[i], 2 * limit) > limit)
            fail("no limit in sight");
        drain(&chain, sizes[i]);
        /* The rest of the program can use the freed memory. */
        malloc_trim(0);
        if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL))
            fail("pthread_create after the limit was reached");
    }
    puts("done");
}

static void share(size_t size, size_t limit, bool is_late)
{
    char *chain = NULL;

    if (is_late)
        run(NULL);
    set_limit(RLIMIT_AS, limit);
    printf("%zu\n", fill(&chain, size, 2 * limit) * 100 / limit);
}

static void shift(size_t limit)
{
    static const size_t sizes[] = { 100, 5000000, 100, 60000, 3000000, 1000 };
    char *chain = NULL;

    set_limit(RLIMIT_AS, limit);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        printf("%zu ", fill(&chain, sizes[i], 2 * limit) * 100 / limit);
        drain(&chain, sizes[i]);
    }
    puts("");
}

static size_t resident(void)
{
    char text[128] = "";
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || !fgets(text, sizeof text, file) || sscanf(text, "%lu %lu", &total, &pages) != 2)
        fail("statm");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE) / MIB;
}

static void locked(int flags, size_t size, size_t bytes)
{
    size_t before = resident(), most;
    char *chain = NULL;

    fill(&chain, size, bytes);
    if (mlockall(flags) != 0)
        fail("mlockall");
    most = resident();
    drain(&chain, size);
    malloc_trim(0);
    printf("%zu %zu %zu ", before, most, resident());
    fill(&chain, size, bytes);
    most = resident();
    drain(&chain, size);
    malloc_trim(0);
    printf("%zu %zu\n", most, resident());
}

/* The window's least unit fits below the limit, and blocks of any size must reach `wanted` bytes. */
static void memlock(size_t wanted)
{
    static const size_t sizes[] = { 100, 3000, 50000 };
    char *chain = NULL;

    run(NULL);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        fail("mlockall");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t got = fill(&chain, sizes[i], 4 * wanted);
        if (got < wanted)
            fail("too little can be had");
        if (got == 4 * wanted)
            fail("no limit in sight");
        drain(&chain, sizes[i]);
        malloc_trim(0);
    }
    puts("done");
}

static void foreign(size_t bytes)
{
    enum { PLACES = 8, SIZE = 3 << 20 };
    char *places[PLACES], *chain = NULL, *block = malloc(100), *last, *volatile inside;

    for (size_t i = 0; i < PLACES; i++) {
        void *wanted = (void *)(((uintptr_t)block & ~(2 * MIB - 1)) + ((size_t)20 << i) * MIB + 0x5000);
        places[i] =
            mmap(wanted, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (places[i] != wanted)
            fail("mmap: the place is not free");
        memset(places[i], (int)i + 1, SIZE);
    }
    if (fill(&chain, 3000, bytes) < bytes - 3000)
        fail("malloc");
    last = chain;
    for (size_t i = 0; i < PLACES; i++)
        for (size_t at = 0; at < SIZE; at++)
            if (places[i][at] != (char)(i + 1))
                fail("somebody wrote into the program's mapping");
    if (last < places[3])
        fail("the window has not passed the mappings");
    drain(&chain, 3000);
    free(block);
    puts("done");
    fflush(stdout);
    inside = places[0] + 0x1000;
    free(inside);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    size_t number = argc > 2 ? (size_t)atol(argv[2]) : 0;

    if (strcmp(what, "late") == 0)
        late(number * MIB);
    else if (strcmp(what, "share") == 0 && argc == 5)
        share(number, (size_t)atol(argv[3]) * MIB, strcmp(argv[4], "late") == 0);
    else if (strcmp(what, "shift") == 0)
        shift(number * MIB);
    else if (strcmp(what, "locked") == 0 && argc == 5)
        locked(strcmp(argv[2], "all") == 0 ? MCL_CURRENT | MCL_FUTURE : MCL_CURRENT,
               (size_t)atol(argv[3]), (size_t)atol(argv[4]) * MIB);
    else if (strcmp(what, "memlock") == 0)
        memlock(number * MIB);
    else if (strcmp(what, "where") == 0)
        printf("%p\n", malloc(100));
    else if (strcmp(what, "foreign") == 0)
        foreign(number * MIB);
    else
        return 2;
    return 0;
}
