/*
 * Memory bounds of a program whose call sites differ in how long their blocks live: one block in 40 outlives its phase
 * by three, the others end with it.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <hakmem/stats.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bounds.h"

enum { BLOCK = 256, CALLS = 200000, EVERY = 40, LONG = CALLS / EVERY, LATER = 3, PHASES = 50, THREADS = 4 };

enum way { BY_MALLOC, BY_SITE, BY_CALLER, BY_HEAP };

/* The blocks of one thread: the current phase's, and the long-lived ones of this phase and the LATER ones before. */
struct work {
    uint64_t *brief[CALLS];
    uint64_t *longer[LATER + 1][LONG];
    enum way way;
    unsigned calls; /* a phase */
    bool all_brief;
    hak_heap_t *heap;
};

static struct work *work_new(enum way way, unsigned calls)
{
    struct work *work = support_map(sizeof *work);

    memset(work, 0xff, sizeof *work); /* resident before the start is measured */
    memset(work, 0, sizeof *work);
    work->way = way;
    work->calls = calls;
    work->heap = way == BY_HEAP ? hak_heap_new() : NULL;
    return work;
}

/* Any two addresses in code are sites. */
static const void *site_of(bool longer)
{
    return longer ? (const char *)(uintptr_t)case_sites : (const char *)(uintptr_t)case_sites_fork;
}

/* Two callers, which differ so that no compiler makes one of them. */
static __attribute__((noinline)) void *longer_caller(void)
{
    void *volatile block = hak_alloc_at(BLOCK, NULL);
    return block;
}
static __attribute__((noinline)) void *brief_caller(void)
{
    void *volatile block = hak_alloc_at(BLOCK, NULL);
    CHECK(block != NULL, "no block");
    return block;
}

static void *take_block(const struct work *work, bool longer)
{
    switch (work->way) {
    case BY_SITE: return hak_alloc_at(BLOCK, site_of(longer));
    case BY_CALLER: return longer ? longer_caller() : brief_caller();
    case BY_HEAP: return longer ? hak_heap_malloc(work->heap, BLOCK) : hak_malloc(BLOCK);
    case BY_MALLOC: break;
    }
    return hak_malloc(BLOCK);
}

static uint64_t *take(const struct work *work, bool longer)
{
    uint64_t *block = take_block(work, longer);

    CHECK(block != NULL, "no block");
    memset(block, 0x5a, BLOCK);
    block[0] = (uintptr_t)block;
    block[BLOCK / 8 - 1] = ~(uintptr_t)block;
    return block;
}

static void drop(uint64_t **slot)
{
    uint64_t *block = *slot;

    *slot = NULL;
    if (block == NULL)
        return;
    CHECK(block[0] == (uintptr_t)block && block[BLOCK / 8 - 1] == ~(uintptr_t)block, "a block was overwritten");
    hak_free(block);
}

static void phase_takes(struct work *work, unsigned phase)
{
    for (unsigned i = 0; i < work->calls; i++) {
        bool longer = i % EVERY == 0;
        uint64_t *block = take(work, longer);
        *(longer && !work->all_brief ? &work->longer[phase % (LATER + 1)][i / EVERY] : &work->brief[i]) = block;
    }
}

static void phase_drops(struct work *work, unsigned phase)
{
    for (unsigned i = 0; i < work->calls; i++)
        drop(&work->brief[i]);
    for (unsigned i = 0; i < work->calls / EVERY; i++)
        drop(&work->longer[(phase + 1) % (LATER + 1)][i]);
}

static void run_phases(struct work *work, unsigned phases)
{
    for (unsigned phase = 0; phase < phases; phase++) {
        phase_takes(work, phase);
        phase_drops(work, phase);
    }
}

static void drop_all(struct work *work)
{
    for (unsigned i = 0; i <= LATER; i++)
        phase_drops(work, i);
}

/* The heap of long-lived blocks; all 0 if there is none. */
static struct hak_stats_heap long_heap(void)
{
    struct hak_stats_heap rows[64], none = { 0 };
    size_t count = hak_stats_heaps(rows, sizeof rows[0], 64);

    for (size_t i = 0; i < count && i < 64; i++)
        if (rows[i].kind == HAK_STATS_LONG)
            return rows[i];
    return none;
}

/* ---- One thread ---- */

static size_t held_by(enum way way)
{
    size_t *held = support_map_shared(sizeof *held);
    int status = 0;
    pid_t child = fork();

    CHECK(child >= 0, "fork");
    if (child == 0) {
        struct work *work = work_new(way, CALLS);
        size_t start = bounds_start();
        run_phases(work, PHASES);
        hak_collect(true);
        *held = bounds_above(support_rss(), start);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ended with %#x", (unsigned)status);
    return *held;
}

void case_sites(void)
{
    size_t by_malloc = held_by(BY_MALLOC);

    bounds_note("held with malloc", by_malloc);
    bounds_note("held with a heap for the long-lived blocks", held_by(BY_HEAP));
    bounds_figure("held with hak_alloc_at, at most half of malloc's", held_by(BY_SITE), by_malloc / 2);
    bounds_figure("the same by the return address", held_by(BY_CALLER), by_malloc / 2);
}

/* A site whose blocks live as briefly as the others' from now on leaves nothing behind. */
void case_sites_turn(void)
{
    struct work *work = work_new(BY_SITE, CALLS);
    size_t start = bounds_start();

    run_phases(work, 12);
    CHECK(long_heap().used_bytes >= (size_t)LATER * LONG * BLOCK / 2, "%lu bytes in the heap of long-lived blocks",
          (unsigned long)long_heap().used_bytes);
    work->all_brief = true;
    run_phases(work, 12);
    phase_takes(work, 0);
    CHECK(long_heap().used_bytes < (size_t)LONG * BLOCK / 4, "the site is long still, with %lu bytes",
          (unsigned long)long_heap().used_bytes);
    drop_all(work);
    hak_collect(true);
    CHECK(long_heap().used_bytes == 0 && long_heap().slab_bytes == 0, "%lu bytes used, %lu bytes of slabs are left",
          (unsigned long)long_heap().used_bytes, (unsigned long)long_heap().slab_bytes);
    bounds_figure("left when all is freed", bounds_above(support_rss(), start), 2 * MIB);
}

/* ---- Threads and children ---- */

static struct work *works[THREADS];
static pthread_barrier_t barrier;

/* Each thread frees what its neighbour allocated. */
static void *run_beside(void *own)
{
    struct work *const *mine = own;
    struct work *const *next = &works[(size_t)(mine - works + 1) % THREADS];

    for (unsigned phase = 0; phase < PHASES; phase++) {
        phase_takes(*mine, phase);
        pthread_barrier_wait(&barrier);
        phase_drops(*next, phase);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

void case_sites_threads(void)
{
    pthread_t threads[THREADS];
    size_t start, longer = (size_t)LATER * LONG * BLOCK;

    for (unsigned i = 0; i < THREADS; i++)
        works[i] = work_new(BY_SITE, CALLS / THREADS);
    start = bounds_start();
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0, "a barrier");
    for (unsigned i = 0; i < THREADS; i++)
        threads[i] = support_thread(run_beside, &works[i]);
    for (unsigned i = 0; i < THREADS; i++)
        support_join(threads[i]);
    hak_collect(true);
    bounds_note("held after the last phase", bounds_above(support_rss(), start));
    CHECK(long_heap().used_bytes >= longer / 2, "%lu bytes in the heap of long-lived blocks",
          (unsigned long)long_heap().used_bytes);
    for (unsigned i = 0; i < THREADS; i++)
        drop_all(works[i]);
    hak_collect(true);
    CHECK(long_heap().used_bytes == 0 && long_heap().slab_bytes == 0, "%lu bytes used, %lu bytes of slabs are left",
          (unsigned long)long_heap().used_bytes, (unsigned long)long_heap().slab_bytes);
    bounds_figure("left when all is freed", bounds_above(support_rss(), start), 4 * MIB);
}

static _Atomic bool ended;

static void *run_until_ended(void *work)
{
    for (unsigned phase = 0; !ended; phase++) {
        phase_takes(work, phase);
        phase_drops(work, phase);
    }
    return NULL;
}

/* Children begin while another thread allocates. There, as here, the site's blocks live where they did. */
void case_sites_fork(void)
{
    struct work *work = work_new(BY_SITE, CALLS), *other = work_new(BY_SITE, CALLS / 10);
    pthread_t thread;
    size_t start = bounds_start();

    run_phases(work, 12);
    thread = support_thread(run_until_ended, other);
    for (unsigned i = 0; i < 20; i++) {
        int status = 0;
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            size_t before = long_heap().used_bytes;
            phase_takes(work, 12);
            CHECK(long_heap().used_bytes >= before + (size_t)LONG * BLOCK / 2, "%zu bytes before, %lu after", before,
                  (unsigned long)long_heap().used_bytes);
            drop_all(work);
            CHECK(long_heap().used_bytes <= before, "%zu bytes before, %lu after", before,
                  (unsigned long)long_heap().used_bytes);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ended with %#x", (unsigned)status);
    }
    ended = true;
    support_join(thread);
    drop_all(work);
    drop_all(other);
    CHECK(long_heap().used_bytes == 0, "%lu bytes are used still", (unsigned long)long_heap().used_bytes);
    hak_collect(true);
    bounds_figure("left when all is freed", bounds_above(support_rss(), start), 4 * MIB);
}
