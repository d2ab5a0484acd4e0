/* Blocks that move between running threads. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>

#include "stress.h"

static uint64_t pass_seed;
static _Atomic uint64_t pass_threads;

static void start_thread_chance(struct chance *chance)
{
    chance_start(chance, pass_seed + atomic_fetch_add(&pass_threads, 1));
}

/* ---- Producers and consumers ---- */

enum { PRODUCERS = 2, CONSUMERS = 2, PRODUCED = 12000 };

static struct channel *products;

static void *run_producer(void *argument)
{
    struct chance chance;
    (void)argument;

    start_thread_chance(&chance);
    for (unsigned i = 0; i < PRODUCED; i++) {
        struct block block;
        stress_allocate(&block, &chance, stress_size(&chance));
        channel_send(products, &block);
    }
    channel_end_sender(products);
    return NULL;
}

static void *run_consumer(void *argument)
{
    struct block block;
    (void)argument;

    while (channel_receive(products, &block))
        stress_free(&block);
    return NULL;
}

static void *run_producer_or_consumer(void *argument)
{
    return *(bool *)argument ? run_producer(NULL) : run_consumer(NULL);
}

void stress_producers(struct chance *chance)
{
    bool produces[PRODUCERS + CONSUMERS] = { true, false, true, false };

    if (products == NULL)
        products = support_map(sizeof *products);
    pass_seed = chance_next(chance);
    channel_start(products, PRODUCERS);
    stress_threads(PRODUCERS + CONSUMERS, run_producer_or_consumer, produces, sizeof produces[0]);
    channel_stop(products);
}

/* ---- Ring: each hop answers a message with a new block made from the old block's contents ---- */

enum { RING_THREADS = 5, RING_MESSAGES = 100, RING_HOPS = 60 };

struct ring_place {
    struct channel inbox;
    struct channel *next;
};
static struct ring_place *ring;
static _Atomic unsigned ring_hops[RING_MESSAGES];
static _Atomic unsigned ring_messages;

static void ring_pass(struct channel *next, struct block *block, struct chance *chance)
{
    struct block answer;
    unsigned number = (unsigned)(block->seed % RING_MESSAGES);
    size_t size = stress_size(chance);

    if (chance_is(chance, 300)) { /* the same block, resized */
        struct block old = *block;
        void *start = hak_realloc(block_release(block), size + 1);

        CHECK(start != NULL, "realloc to %zu", size + 1);
        block_verify_at(&old, start, size + 1 < old.usable ? size + 1 : old.usable);
        block_adopt(&answer, start, size + 1, 1, old.seed + RING_MESSAGES);
    } else {
        block_adopt(&answer, hak_malloc(size), size, 1, block->seed + RING_MESSAGES);
        stress_free(block);
    }
    atomic_fetch_add(&ring_hops[number], 1);
    channel_send(next, &answer);
}

static void *run_ring(void *argument)
{
    struct ring_place *place = argument;
    struct chance chance;
    struct block block;

    start_thread_chance(&chance);
    while (channel_receive(&place->inbox, &block)) {
        if (atomic_load(&ring_hops[block.seed % RING_MESSAGES]) < RING_HOPS) {
            ring_pass(place->next, &block, &chance);
            continue;
        }
        stress_free(&block);
        if (atomic_fetch_sub(&ring_messages, 1) == 1) { /* the last message: all threads may end */
            for (unsigned i = 0; i < RING_THREADS; i++)
                channel_end_sender(&ring[i].inbox);
        }
    }
    return NULL;
}

void stress_ring(struct chance *chance)
{
    if (ring == NULL)
        ring = support_map(RING_THREADS * sizeof *ring);
    pass_seed = chance_next(chance);
    for (unsigned i = 0; i < RING_THREADS; i++) {
        channel_start(&ring[i].inbox, 1);
        ring[i].next = &ring[(i + 1) % RING_THREADS].inbox;
    }
    atomic_store(&ring_messages, RING_MESSAGES);
    for (unsigned i = 0; i < RING_MESSAGES; i++) {
        struct block block;
        size_t size = stress_size(chance);

        atomic_store(&ring_hops[i], 0);
        block_adopt(&block, hak_malloc(size), size, 1, i);
        channel_send(&ring[i % RING_THREADS].inbox, &block);
    }
    stress_threads(RING_THREADS, run_ring, ring, sizeof *ring);
    for (unsigned i = 0; i < RING_THREADS; i++)
        channel_stop(&ring[i].inbox);
}

/* ---- Batches ---- */

enum { BATCH_MAKERS = 2, BATCH_ROUNDS = 150, BATCH_MOST = 300 };

static struct channel *batches;

static void *run_batch_maker(void *argument)
{
    struct chance chance;
    (void)argument;

    start_thread_chance(&chance);
    for (unsigned i = 0; i < BATCH_ROUNDS; i++) {
        void *starts[BATCH_MOST];
        size_t size = chance_is(&chance, 900) ? chance_log(&chance, 1, 2 * KIB) : chance_log(&chance, 1, 200 * KIB);
        size_t count = chance_below(&chance, size > 8 * KIB ? 10 : BATCH_MOST + 1);
        size_t got = hak_malloc_batch(size, count, starts);

        CHECK(got == count, "%zu of a batch of %zu blocks of %zu", got, count, size);
        for (size_t k = 0; k < count; k++) {
            struct block block;
            block_adopt(&block, starts[k], size, 1, chance_next(&chance));
            channel_send(batches, &block);
        }
    }
    channel_end_sender(batches);
    return NULL;
}

static void *run_batch_freer(void *argument)
{
    struct block block;
    void *starts[BATCH_MOST];
    struct chance chance;
    size_t count = 0;
    size_t goal;
    (void)argument;

    start_thread_chance(&chance);
    goal = 1 + chance_below(&chance, BATCH_MOST);
    while (channel_receive(batches, &block)) {
        starts[count++] = block_release(&block);
        if (count == goal) {
            hak_free_batch(starts, count);
            count = 0;
            goal = 1 + chance_below(&chance, BATCH_MOST);
        }
    }
    hak_free_batch(starts, count);
    return NULL;
}

static void *run_batch_thread(void *argument)
{
    return *(bool *)argument ? run_batch_maker(NULL) : run_batch_freer(NULL);
}

void stress_batches(struct chance *chance)
{
    bool makes[2 * BATCH_MAKERS] = { true, false, true, false };

    if (batches == NULL)
        batches = support_map(sizeof *batches);
    pass_seed = chance_next(chance);
    channel_start(batches, BATCH_MAKERS);
    stress_threads(2 * BATCH_MAKERS, run_batch_thread, makes, sizeof makes[0]);
    channel_stop(batches);
}
