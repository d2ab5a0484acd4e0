/*
 * patterns PATTERN SEED [MEBIBYTES]: allocates in one of eighteen ways, and knows the truth. Prints for each site
 *
 *   SITE ALLOCATED_BYTES ALLOCATED_BLOCKS IN_USE_BYTES PEAK_BYTES VARIANCE MOST
 *
 * where PEAK_BYTES are those of the moment when all sites had most; a row `all` has the sums. VARIANCE is the sum of
 * n s^2 (w - 1) over what was allocated in blocks of s bytes, w the blocks that one sample of the default rate stands
 * for. MOST is the most that one sample adds. `patterns` alone prints the names. `patterns fork` lets three children
 * allocate the same blocks.
 */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SITES = 1024, SLOTS = 200000 };
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- Sites: neither inlined nor ended by a tail call, so that their return addresses are on the stack ---- */

#define SITE(n)                                                                                                        \
    static __attribute__((noinline)) void *site_##n(void *old, size_t alignment, size_t size)                          \
    {                                                                                                                  \
        void *volatile block = old ? realloc(old, size) : alignment ? aligned_alloc(alignment, size) : malloc(size);   \
        return block;                                                                                                  \
    }
#define FOUR(USE, n) USE(n##0) USE(n##1) USE(n##2) USE(n##3)
#define SIXTEEN(USE, n) FOUR(USE, n##0) FOUR(USE, n##1) FOUR(USE, n##2) FOUR(USE, n##3)
#define SIXTY_FOUR(USE, n) SIXTEEN(USE, n##0) SIXTEEN(USE, n##1) SIXTEEN(USE, n##2) SIXTEEN(USE, n##3)
#define MANY(USE, n) SIXTY_FOUR(USE, n##0) SIXTY_FOUR(USE, n##1) SIXTY_FOUR(USE, n##2) SIXTY_FOUR(USE, n##3)
#define ALL(USE) MANY(USE, 0) MANY(USE, 1) MANY(USE, 2) MANY(USE, 3)
ALL(SITE)
static struct site {
    void *(*take)(void *old, size_t alignment, size_t size);
    const char *name;
    size_t allocated, blocks, in_use, peak, most;
    uint64_t epoch; /* of the peak at which `peak` was stored */
    double variance;
} sites[] = {
#define ROW(n) { .take = site_##n, .name = "site_" #n },
    ALL(ROW)
};
_Static_assert(sizeof sites / sizeof *sites == SITES, "four digits to the base of four");

/* ---- The truth ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t live, peak, done, budget;
static uint64_t epoch;

/* A block says in its first bytes whose it is. */
struct mark {
    uint32_t site;
};

static void move(struct site *site, size_t bytes, bool add)
{
    if (site->epoch != epoch)
        site->peak = site->in_use;
    site->epoch = epoch;
    site->in_use += add ? bytes : 0 - bytes;
    live += add ? bytes : 0 - bytes;
    if (live > peak) {
        peak = live;
        epoch++;
    }
}

static void note(unsigned number, const void *block)
{
    struct site *site = &sites[number];
    size_t size = malloc_usable_size((void *)block);
    double weight = -1 / expm1(-(double)size / (512 * 1024));

    site->allocated += size;
    site->blocks++;
    site->variance += (double)size * (double)size * (weight - 1);
    if ((double)size * weight > (double)site->most)
        site->most = (size_t)((double)size * weight);
    done += size;
    move(site, size, true);
}

static void *take_aligned(unsigned number, size_t alignment, size_t size)
{
    struct mark *block = sites[number].take(NULL, alignment, size);

    if (block == NULL)
        exit(1);
    block->site = number;
    pthread_mutex_lock(&lock);
    note(number, block);
    pthread_mutex_unlock(&lock);
    return block;
}

static void *take(unsigned number, size_t size) { return take_aligned(number, 0, size); }

static void drop(void *block)
{
    if (block == NULL)
        return;
    pthread_mutex_lock(&lock);
    move(&sites[((struct mark *)block)->site], malloc_usable_size(block), false);
    pthread_mutex_unlock(&lock);
    free(block);
}

/* A block that realloc moves, or whose size changes, is another one. */
static void *grow(void *block, size_t size)
{
    unsigned number = ((struct mark *)block)->site;
    size_t before = malloc_usable_size(block);
    uintptr_t old = (uintptr_t)block;

    block = sites[number].take(block, 0, size);
    if (block == NULL)
        exit(1);
    if ((uintptr_t)block != old || malloc_usable_size(block) != before) {
        move(&sites[number], before, false);
        note(number, block);
    }
    return block;
}

/* ---- Patterns ---- */

struct pattern {
    const char *name;
    void (*run)(const struct pattern *pattern);
    unsigned slots, sites;
    size_t least, most; /* bytes of a block */
    size_t mebibytes;   /* to allocate, as long as the command line says nothing else */
    unsigned keep;      /* one in so many blocks is never freed; 0: none */
};

static _Thread_local uint64_t state;

static size_t any(size_t from, size_t to)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return from + (state >> 33) % (to - from + 1);
}

static void *slots[SLOTS];

static void *fresh(const struct pattern *pattern)
{
    return take((unsigned)any(0, pattern->sites - 1), any(pattern->least, pattern->most));
}

/* Replaces blocks at random, after the first ones. */
static void replace(const struct pattern *pattern)
{
    for (unsigned i = 0; i < pattern->slots; i++)
        slots[i] = fresh(pattern);
    while (done < budget) {
        size_t i = any(0, pattern->slots - 1);
        if (pattern->keep == 0 || any(1, pattern->keep) != 1)
            drop(slots[i]);
        slots[i] = fresh(pattern);
    }
}

/* Many blocks, and then all are freed; each site has its size. */
static void batch(const struct pattern *pattern)
{
    size_t sizes[16];

    for (unsigned i = 0; i < 16; i++)
        sizes[i] = any(pattern->least, pattern->most);
    while (done < budget) {
        size_t count = pattern->slots > 10 ? any(1, pattern->slots) : pattern->slots;
        for (size_t i = 0; i < count; i++)
            slots[i] = take((unsigned)(i % pattern->sites), sizes[i % pattern->sites % 16]);
        for (size_t i = 0; i < count; i++)
            drop(slots[i]);
        if (pattern->keep && any(1, pattern->keep) == 1)
            (void)take(pattern->sites, 48);
    }
}

/* Vectors that double by a copy, like C++'s. */
static void vectors(const struct pattern *pattern)
{
    while (done < budget) {
        size_t most = any(pattern->least, pattern->most);
        void *vector = NULL;
        for (size_t size = 64; size <= most; size *= 2) {
            void *grown = take(size > 4096, size);
            drop(vector);
            vector = grown;
        }
        drop(vector);
    }
}

static void strings(const struct pattern *pattern)
{
    while (done < budget) {
        size_t most = any(pattern->least, pattern->most);
        void *text = take((unsigned)any(0, pattern->sites - 1), 16);
        for (size_t size = 24; size <= most; size += size / 2)
            text = grow(text, size);
        drop(text);
    }
}

/* A map's nodes and their keys, added and removed at random. */
static void maps(const struct pattern *pattern)
{
    while (done < budget) {
        size_t at = 2 * any(0, pattern->slots / 2 - 1);
        if (slots[at]) {
            drop(slots[at]);
            drop(slots[at + 1]);
            slots[at] = NULL;
        } else {
            slots[at] = take(0, 352);
            slots[at + 1] = take(1, any(pattern->least, pattern->most));
        }
    }
}

static void aligned(const struct pattern *pattern)
{
    while (done < budget) {
        size_t i = any(0, pattern->slots - 1), alignment = (size_t)32 << any(0, 6);
        drop(slots[i]);
        slots[i] = take_aligned((unsigned)any(0, pattern->sites - 1), alignment,
                                any(1, pattern->most / alignment) * alignment);
    }
}

/* One phase after another, each with its own sites and sizes. The largest is neither the first nor the last. */
static void phases(const struct pattern *pattern)
{
    static const unsigned shares[] = { 3, 10, 5, 1 };

    for (unsigned phase = 0; done < budget; phase++) {
        for (unsigned i = 0; i < pattern->slots / 10 * shares[phase % 4]; i++) {
            drop(slots[i]);
            slots[i] = take(phase % 4 * 4 + (unsigned)any(0, 3), any(pattern->least, pattern->most) << phase % 4);
        }
        for (unsigned i = 0; i < pattern->slots && phase % 4 != 3; i++) {
            drop(slots[i]);
            slots[i] = NULL;
        }
    }
}

/* One thread allocates, and another frees. */
enum { RING = 1000 };
static void *_Atomic ring[RING];

static void *reader(void *unused)
{
    for (size_t i = 0;; i++) {
        void *block;
        while ((block = atomic_exchange(&ring[i % RING], NULL)) == NULL)
            sched_yield();
        if (block == (void *)ring)
            return unused;
        drop(block);
    }
}

static void put(size_t i, void *block)
{
    while (atomic_load(&ring[i % RING]) != NULL)
        sched_yield();
    atomic_store(&ring[i % RING], block);
}

static void messages(const struct pattern *pattern)
{
    size_t i = 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, reader, NULL) != 0)
        exit(1);
    for (; done < budget; i++)
        put(i, fresh(pattern));
    put(i, ring);
    pthread_join(thread, NULL);
}

static void *worker(void *argument)
{
    const struct pattern *pattern = argument;
    void *held[1000] = { NULL };

    state = (uintptr_t)held;
    for (size_t bytes = 0; bytes < budget / 4;) {
        size_t i = any(0, pattern->slots - 1);
        drop(held[i]);
        held[i] = fresh(pattern);
        bytes += malloc_usable_size(held[i]);
    }
    for (unsigned i = 0; i < pattern->slots / 2; i++)
        drop(held[i]);
    return NULL;
}

static void threads(const struct pattern *pattern)
{
    pthread_t made[4];

    for (unsigned i = 0; i < 4; i++)
        if (pthread_create(&made[i], NULL, worker, (void *)pattern) != 0)
            exit(1);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(made[i], NULL);
}

static const struct pattern patterns[] = {
    { "churn_one", batch, 1, 1, 200, 1000, 1024, 0 },
    { "churn_ten", batch, 10, 2, 100, 2000, 1024, 1000 },
    { "batches", batch, 20000, 16, 96, 640, 1024, 0 },
    { "vectors", vectors, 1, 2, 64, 256000, 1024, 0 },
    { "strings", strings, 1, 8, 100, 20000, 1024, 0 },
    { "maps", maps, 40000, 2, 100, 600, 1024, 0 },
    { "messages", messages, RING, 4, 280, 900, 1024, 0 },
    { "threads", threads, 1000, 16, 16, 2000, 1024, 0 },
    { "aligned", aligned, 2000, 8, 16, 8192, 1024, 0 },
    { "pages", replace, 64, 8, 64 * KIB, 256 * KIB, 8192, 0 },
    { "huge", replace, 16, 8, MIB, 16 * MIB, 32768, 0 },
    { "small", replace, 1200, 4, 16, 464, 1024, 0 },
    { "medium", replace, 430, 8, 8192, 65536, 2048, 0 },
    { "types", replace, 90000, 256, 16, 496, 1024, 0 },
    { "sites", replace, 180000, SITES, 16, 1008, 1024, 0 },
    { "rise", replace, 180000, 64, 16, 1008, 0, 0 },
    { "leak", replace, 20000, 16, 16, 1008, 1024, 40 },
    { "phases", phases, 40000, 16, 64, 256, 1024, 0 },
};

/* All children do the same, beginning with blocks that their parent's countdowns have reached. */
static void fork_children(void)
{
    drop(take(0, 64));
    for (unsigned child = 0; child < 3; child++) {
        pid_t process = fork();
        int status;
        if (process == 0) {
            state = 1;
            for (unsigned i = 0; i < 90000; i++)
                slots[i] = take((unsigned)any(0, 255), any(16, 496));
            exit(0);
        }
        if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
            exit(1);
    }
}

static void show(void)
{
    struct site all = { .name = "all" };

    for (unsigned i = 0; i <= SITES; i++) {
        struct site *site = i < SITES ? &sites[i] : &all;
        size_t at_peak = site->epoch == epoch || site == &all ? site->peak : site->in_use;
        if (site->blocks == 0)
            continue;
        printf("%s %zu %zu %zu %zu %.0f %zu\n", site->name, site->allocated, site->blocks, site->in_use, at_peak,
               site->variance, site->most);
        all.allocated += site->allocated;
        all.blocks += site->blocks;
        all.in_use += site->in_use;
        all.peak += at_peak;
        all.variance += site->variance;
        all.most = site->most > all.most ? site->most : all.most;
    }
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";

    state = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    if (strcmp(name, "fork") == 0)
        fork_children();
    for (unsigned i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (count == 1)
            puts(patterns[i].name);
        if (strcmp(name, patterns[i].name) != 0)
            continue;
        budget = (count > 3 ? strtoull(arguments[3], NULL, 10) : patterns[i].mebibytes) << 20;
        patterns[i].run(&patterns[i]);
        show();
    }
    return 0;
}
