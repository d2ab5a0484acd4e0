/*
 * Threads of five kinds with different loads, GROUPS of each kind:
 *  - a giver only allocates: batches of blocks of 16-512 B, which it hands to its group's taker,
 *  - a taker only frees the blocks of its group's giver,
 *  - a worker replaces its own blocks of 16-4096 B,
 *  - a heavy thread replaces its own few blocks of 8-256 KiB,
 *  - an idle thread allocates blocks, sleeps until the others have ended, and frees them.
 * Blocks that one thread caches are of no use to the others unless the allocator moves them.
 */
#include <pthread.h>

#include "common.h"

enum {
    GROUPS_MOST = 32,
    BATCH_BLOCKS = 100,
    QUEUE_BATCHES = 32,
    WORKER_SLOTS = 1024,
    HEAVY_SLOTS = 16,
    IDLE_BLOCKS = 2000
};
enum kind { GIVER, TAKER, WORKER, HEAVY, IDLE, KINDS };

struct batch {
    void *blocks[BATCH_BLOCKS];
};

/* From the giver to the taker of a group. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch *batches[QUEUE_BATCHES];
    uint64_t put, taken;
};

struct member {
    enum kind kind;
    struct queue *queue;
    uint64_t random, operations, bytes;
} __attribute__((aligned(128)));

static struct member members[GROUPS_MOST * KINDS];
static struct queue queues[GROUPS_MOST];
static uint64_t rounds;
static unsigned busy;
static pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t busy_ended = PTHREAD_COND_INITIALIZER;

static void *member_new(struct member *member, uint32_t least, uint32_t most, uint64_t serial)
{
    size_t size = least + bench_scale((uint32_t)(bench_random(&member->random) >> 32), most - least + 1);
    member->bytes += size;
    member->operations++;
    return bench_block_new(size, serial);
}

static void give(struct member *member)
{
    struct queue *queue = member->queue;

    for (uint64_t round = 0; round < rounds; round++) {
        struct batch *batch = malloc(sizeof *batch);
        if (batch == NULL)
            bench_fail("malloc(%zu) failed", sizeof *batch);
        member->operations++;
        for (unsigned i = 0; i < BATCH_BLOCKS; i++)
            batch->blocks[i] = member_new(member, 16, 512, i);
        pthread_mutex_lock(&queue->lock);
        while (queue->put - queue->taken == QUEUE_BATCHES)
            pthread_cond_wait(&queue->changed, &queue->lock);
        queue->batches[queue->put++ % QUEUE_BATCHES] = batch;
        pthread_cond_signal(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
    }
}

static void take(struct member *member)
{
    struct queue *queue = member->queue;

    for (uint64_t round = 0; round < rounds; round++) {
        pthread_mutex_lock(&queue->lock);
        while (queue->put == queue->taken)
            pthread_cond_wait(&queue->changed, &queue->lock);
        struct batch *batch = queue->batches[queue->taken++ % QUEUE_BATCHES];
        pthread_cond_signal(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
        for (unsigned i = 0; i < BATCH_BLOCKS; i++)
            member->operations += bench_block_free(batch->blocks[i]);
        free(batch);
        member->operations++;
    }
}

/* Replaces blocks at random in `count` slots, then frees all. */
static void replace(struct member *member, unsigned count, uint64_t times, uint32_t least, uint32_t most)
{
    void *slots[WORKER_SLOTS] = { NULL };

    for (uint64_t i = 0; i < times; i++) {
        void **slot = &slots[bench_scale((uint32_t)(bench_random(&member->random) >> 32), count)];
        member->operations += bench_block_free(*slot);
        *slot = member_new(member, least, most, i);
    }
    for (unsigned i = 0; i < count; i++)
        member->operations += bench_block_free(slots[i]);
}

static void idle(struct member *member)
{
    void *blocks[IDLE_BLOCKS];

    for (unsigned i = 0; i < IDLE_BLOCKS; i++)
        blocks[i] = member_new(member, 16, 1024, i);
    pthread_mutex_lock(&busy_lock);
    while (busy > 0)
        pthread_cond_wait(&busy_ended, &busy_lock);
    pthread_mutex_unlock(&busy_lock);
    for (unsigned i = 0; i < IDLE_BLOCKS; i++)
        member->operations += bench_block_free(blocks[i]);
}

static void member_main(void *argument)
{
    struct member *member = argument;

    switch (member->kind) {
    case GIVER:
        give(member);
        break;
    case TAKER:
        take(member);
        break;
    case WORKER:
        replace(member, WORKER_SLOTS, rounds * BATCH_BLOCKS, 16, 4096);
        break;
    case HEAVY:
        replace(member, HEAVY_SLOTS, rounds, 8 * 1024, 256 * 1024);
        break;
    case IDLE:
    case KINDS:
        idle(member);
        return;
    }
    pthread_mutex_lock(&busy_lock);
    if (--busy == 0)
        pthread_cond_broadcast(&busy_ended);
    pthread_mutex_unlock(&busy_lock);
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 3,
        "[GROUPS] [ROUNDS] [SEED]\n"
        "  threads that give, take, work, work on large blocks, and sleep: GROUPS of five, ROUNDS of 100 blocks\n"
        "  (default 1 15000 42)");
    unsigned groups = (unsigned)bench_argument(argc, argv, 1, "GROUPS", 1, 1, GROUPS_MOST);
    rounds = bench_argument(argc, argv, 2, "ROUNDS", 15000, 0, UINT64_C(1) << 40);
    uint64_t seed = bench_argument(argc, argv, 3, "SEED", 42, 0, UINT64_MAX);
    uint64_t operations = 0;
    uint64_t bytes = 0;
    struct bench_run bench;

    for (unsigned i = 0; i < groups; i++) {
        pthread_mutex_init(&queues[i].lock, NULL);
        pthread_cond_init(&queues[i].changed, NULL);
    }
    for (unsigned i = 0; i < groups * KINDS; i++) {
        members[i].kind = (enum kind)(i % KINDS);
        members[i].queue = &queues[i / KINDS];
        members[i].random = bench_seed(seed, i);
    }
    busy = groups * (KINDS - 1);
    bench_begin_threads(&bench, "asymmetric", groups * KINDS, member_main, members, sizeof members[0]);
    bench_join_threads();
    for (unsigned i = 0; i < groups * KINDS; i++) {
        operations += members[i].operations;
        bytes += members[i].bytes;
    }
    bench_end(&bench, operations);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
