/* Blocks that outlive the thread that allocated them. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>

#include "stress.h"

/* ---- Churn: bags of live blocks in shared cells. A thread takes a bag, changes it and leaves it there ---- */

enum { CHURN_SEATS = 4, CHURN_GENERATIONS = 12, CHURN_CELLS = 6, CHURN_BAG = 400 };

struct bag {
    pthread_mutex_t lock;
    struct block blocks[CHURN_BAG];
};
static struct bag *bags;
static uint64_t churn_seed;
static _Atomic uint64_t churn_threads;

static void *run_mortal(void *argument)
{
    struct chance chance;
    (void)argument;

    chance_start(&chance, churn_seed + atomic_fetch_add(&churn_threads, 1));
    for (unsigned visit = 0; visit < 2; visit++) {
        struct bag *bag = &bags[chance_below(&chance, CHURN_CELLS)];

        pthread_mutex_lock(&bag->lock);
        for (size_t i = 0; i < CHURN_BAG; i++) {
            struct block *block = &bag->blocks[i];
            if (block->start != NULL && chance_is(&chance, 600))
                stress_free(block);
            if (block->start == NULL && chance_is(&chance, 700))
                stress_allocate(block, &chance, stress_size(&chance));
        }
        pthread_mutex_unlock(&bag->lock);
    }
    return NULL;
}

static void *run_seat(void *argument)
{
    for (unsigned i = 0; i < CHURN_GENERATIONS; i++)
        support_join(support_thread(run_mortal, argument));
    return NULL;
}

void stress_churn(struct chance *chance)
{
    if (bags == NULL) {
        bags = support_map(CHURN_CELLS * sizeof *bags);
        for (size_t i = 0; i < CHURN_CELLS; i++)
            pthread_mutex_init(&bags[i].lock, NULL);
    }
    churn_seed = chance_next(chance);
    stress_threads(CHURN_SEATS, run_seat, NULL, 0);
    for (size_t i = 0; i < CHURN_CELLS; i++) {
        for (size_t k = 0; k < CHURN_BAG; k++) {
            if (bags[i].blocks[k].start != NULL)
                stress_free(&bags[i].blocks[k]);
        }
    }
}

/* ---- Orphans: short-lived owners feed freers, which allocate as well and so adopt ---- */

enum { ORPHAN_OWNERS = 16, ORPHAN_BLOCKS = 1500, ORPHAN_FREERS = 2, ORPHAN_KEPT = 200 };

static struct channel *orphan_channel;
static uint64_t orphan_seed;
static _Atomic uint64_t orphan_threads;

static void *run_owner(void *argument)
{
    struct chance chance;
    (void)argument;

    chance_start(&chance, orphan_seed + atomic_fetch_add(&orphan_threads, 1));
    for (unsigned i = 0; i < ORPHAN_BLOCKS; i++) {
        struct block block;
        /* Each owner uses few sizes, so that slabs fill. */
        stress_allocate(&block, &chance, chance_is(&chance, 950) ? 16 + 16 * chance_below(&chance, 6)
                                                                  : stress_size(&chance));
        channel_send(orphan_channel, &block);
    }
    return NULL;
}

static void *run_owners(void *argument)
{
    for (unsigned i = 0; i < ORPHAN_OWNERS; i++)
        support_join(support_thread(run_owner, argument));
    channel_end_sender(orphan_channel);
    return NULL;
}

static void *run_freer(void *argument)
{
    struct chance chance;
    struct block block;
    struct block own[ORPHAN_KEPT] = { { 0 } };
    (void)argument;

    chance_start(&chance, orphan_seed + atomic_fetch_add(&orphan_threads, 1));
    while (channel_receive(orphan_channel, &block)) {
        struct block *mine = &own[chance_below(&chance, ORPHAN_KEPT)];

        stress_free(&block);
        if (mine->start != NULL)
            stress_free(mine);
        else
            stress_allocate(mine, &chance, 16 + 16 * chance_below(&chance, 6));
    }
    for (size_t i = 0; i < ORPHAN_KEPT; i++) {
        if (own[i].start != NULL)
            stress_free(&own[i]);
    }
    return NULL;
}

void stress_orphans(struct chance *chance)
{
    pthread_t owners;

    if (orphan_channel == NULL)
        orphan_channel = support_map(sizeof *orphan_channel);
    orphan_seed = chance_next(chance);
    channel_start(orphan_channel, 1);
    owners = support_thread(run_owners, NULL);
    stress_threads(ORPHAN_FREERS, run_freer, NULL, 0);
    support_join(owners);
    channel_stop(orphan_channel);
}

/* ---- Phases: all threads allocate; then each frees a neighbour's blocks, during or after the owner's life ---- */

enum { PHASE_THREADS = 4, PHASE_BLOCKS = 6000, PHASE_ROUNDS = 6 };

struct phase_thread {
    struct chance chance;
    struct block *blocks;
    struct block *neighbours;
    size_t low, high; /* block sizes of this phase */
    size_t count;
    bool frees_too;
};
static struct block *phase_blocks;
static pthread_barrier_t phase_barrier;

static void *run_phase_free(void *argument)
{
    struct phase_thread *self = argument;
    /* A stride without a common factor visits all blocks in a scattered order. */
    size_t at = chance_below(&self->chance, PHASE_BLOCKS);

    for (size_t i = 0; i < PHASE_BLOCKS; i++) {
        at = (at + 3571) % PHASE_BLOCKS;
        if (self->neighbours[at].start != NULL)
            stress_free(&self->neighbours[at]);
    }
    return NULL;
}

static void *run_phase(void *argument)
{
    struct phase_thread *self = argument;

    for (size_t i = 0; i < self->count; i++)
        stress_allocate(&self->blocks[i], &self->chance, chance_log(&self->chance, self->low, self->high));
    if (self->frees_too) {
        pthread_barrier_wait(&phase_barrier);
        run_phase_free(self);
    }
    return NULL;
}

void stress_phases(struct chance *chance)
{
    static const struct {
        size_t low, high, count;
    } kinds[] = { { 0, 128, PHASE_BLOCKS },           { 100, 2 * KIB, PHASE_BLOCKS }, { 2 * KIB, 32 * KIB, 2000 },
                  { 32 * KIB, MIB, 80 },               { 64 * KIB, 4 * MIB, 20 },      { 16, 300 * KIB, 500 } };
    struct phase_thread threads[PHASE_THREADS];

    if (phase_blocks == NULL) {
        phase_blocks = support_map(PHASE_THREADS * PHASE_BLOCKS * sizeof *phase_blocks);
        pthread_barrier_init(&phase_barrier, NULL, PHASE_THREADS);
    }
    for (unsigned phase = 0; phase < PHASE_ROUNDS; phase++) {
        bool frees_too = chance_is(chance, 500);

        for (unsigned i = 0; i < PHASE_THREADS; i++) {
            threads[i] = (struct phase_thread){
                .blocks = phase_blocks + i * PHASE_BLOCKS,
                .neighbours = phase_blocks + (i + 1) % PHASE_THREADS * PHASE_BLOCKS,
                .low = kinds[phase].low,
                .high = kinds[phase].high,
                .count = kinds[phase].count,
                .frees_too = frees_too,
            };
            chance_start(&threads[i].chance, chance_next(chance));
        }
        stress_threads(PHASE_THREADS, run_phase, threads, sizeof threads[0]);
        if (!frees_too)
            stress_threads(PHASE_THREADS, run_phase_free, threads, sizeof threads[0]);
    }
}
