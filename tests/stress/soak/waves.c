/*
 * waves WAVES THREADS BLOCKS SEED BOUND_MIB [SECONDS]: in each wave THREADS threads live at once. Each allocates BLOCKS
 * blocks of all sizes, writes a pattern into each, hands some to its neighbour, and checks and frees its own and the
 * received blocks. A few blocks outlive a wave. After each wave the process sleeps and makes a few calls. Within
 * SECONDS (60) its RSS must be at most BOUND_MIB MiB above its first RSS and the held bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 256, KEPT_MOST = 64, SECONDS = 60, TRY_MS = 100, EDGE = 64, PAGE = 4096 };

struct block {
    unsigned char *start;
    size_t size;
    unsigned char mark;
};

struct thread {
    pthread_t id;
    uint64_t state;
    struct block *own, *given; /* `given` by the neighbour before; each has `count` places */
    struct block kept;
    struct thread *next;
};

static struct thread threads[THREADS_MOST];
static struct block kept[KEPT_MOST];
static pthread_barrier_t handed;
static size_t count;
static long tries = SECONDS * 1000 / TRY_MS;

static void fail(const char *what)
{
    fprintf(stderr, "waves: %s (errno %d)\n", what, errno);
    abort();
}

static uint64_t draw(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

/* Writes or checks small blocks completely, and large ones at the edges and one byte in each page. */
static void visit(struct block *block, int writes)
{
    size_t step = block->size < PAGE ? 1 : PAGE, last = block->size < EDGE ? 0 : block->size - EDGE;

    for (size_t at = 0; at < block->size; at += at < EDGE || at >= last ? 1 : step) {
        if (writes)
            block->start[at] = (unsigned char)(block->mark + at);
        else if (block->start[at] != (unsigned char)(block->mark + at))
            fail("contents changed");
    }
}

static struct block make(uint64_t *state)
{
    static const unsigned scales[] = { 4, 6, 6, 8, 8, 10, 12, 14, 16, 21 };
    uint64_t chance = draw(state);
    unsigned scale = chance % 50 == 0 ? 23 : scales[chance / 64 % 10];
    struct block block = { NULL, 1 + draw(state) % ((size_t)1 << (chance % 500 == 0 ? 23 : scale > 16 ? 17 : scale)),
                           (unsigned char)chance };

    block.start = chance >> 32 & 7 ? malloc(block.size) : aligned_alloc((size_t)64 << (chance >> 36 & 7), block.size);
    if (block.start == NULL)
        fail("no memory");
    if (malloc_usable_size(block.start) < block.size)
        fail("usable size");
    visit(&block, 1);
    return block;
}

static void resize(struct block *block, uint64_t *state)
{
    size_t size = block->size / 2 + draw(state) % (block->size + 100) + 1;
    struct block old = *block;

    block->start = realloc(old.start, size);
    if (block->start == NULL)
        fail("no memory");
    block->size = size < old.size && old.size < 4096 ? size : 0;
    visit(block, 0);
    block->size = size;
    visit(block, 1);
}

static void drop(struct block *block)
{
    if (block->start == NULL)
        return;
    visit(block, 0);
    free(block->start);
    block->start = NULL;
}

static void *run(void *argument)
{
    struct thread *self = argument;
    uint64_t *state = &self->state;

    for (size_t i = 0; i < count; i++) {
        self->own[i] = make(state);
        if (draw(state) % 4 == 0)
            resize(&self->own[i], state);
        if (draw(state) % 3 == 0)
            drop(&self->own[draw(state) % (i + 1)]);
    }
    for (size_t i = 0; i < count; i += 3) {
        self->next->given[i] = self->own[i];
        self->own[i].start = NULL;
    }
    self->kept = make(state);
    pthread_barrier_wait(&handed);
    for (size_t i = 0; i < count; i++) {
        drop(&self->given[i]);
        drop(&self->own[i]);
    }
    return NULL;
}

static long rss_kib(void)
{
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        fail("statm");
    fclose(file);
    return strtol(strchr(text, ' '), NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

static long held_kib(void)
{
    size_t held = 0;

    for (size_t i = 0; i < KEPT_MOST; i++)
        held += kept[i].start != NULL ? kept[i].size : 0;
    return (long)(held / 1024);
}

static void come_back(long base, long bound, int wave)
{
    struct timespec rest = { 0, TRY_MS * 1000000 };
    long rss = 0;

    for (long i = 0; i < tries; i++) {
        nanosleep(&rest, NULL);
        for (size_t size = 32; size < 3000000; size *= 7)
            free(malloc(size));
        rss = rss_kib();
        if (rss <= base + held_kib() + bound)
            return;
    }
    fprintf(stderr, "waves: after wave %d the RSS stays %ld KiB; at first it was %ld, %ld are held\n", wave, rss, base,
            held_kib());
    abort();
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 7)
        return 2;
    if (argc == 7)
        tries = atol(argv[6]) * 1000 / TRY_MS;
    int waves = atoi(argv[1]), live = atoi(argv[2]);
    uint64_t seed = strtoull(argv[4], NULL, 10);
    long bound = atol(argv[5]) * 1024;
    count = (size_t)atol(argv[3]);
    if (live < 1 || live > THREADS_MOST || pthread_barrier_init(&handed, NULL, (unsigned)live) != 0)
        return 2;
    struct block *places = calloc((size_t)live * 2 * count, sizeof *places);
    memset(places, 0, (size_t)live * 2 * count * sizeof *places);
    long base = rss_kib() + (long)((size_t)live * 2 * count * sizeof *places / 1024);
    for (int wave = 0; wave < waves; wave++) {
        for (int i = 0; i < live; i++) {
            threads[i].state = seed + (uint64_t)wave * THREADS_MOST + (uint64_t)i;
            threads[i].own = places + 2 * (size_t)i * count;
            threads[i].given = threads[i].own + count;
            threads[i].next = &threads[(i + 1) % live];
        }
        for (int i = 0; i < live; i++)
            if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
                fail("pthread_create");
        for (int i = 0; i < live; i++)
            pthread_join(threads[i].id, NULL);
        for (int i = 0; i < live; i++) {
            size_t place = draw(&seed) % KEPT_MOST;
            drop(&kept[place]);
            kept[place] = threads[i].kept;
        }
        come_back(base, bound, wave);
    }
    for (size_t i = 0; i < KEPT_MOST; i++)
        drop(&kept[i]);
    come_back(base, bound, waves);
    printf("%d waves\n", waves);
    return 0;
}
