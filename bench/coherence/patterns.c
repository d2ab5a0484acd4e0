/* What the virtual cores do: patterns of the drivers in bench/drivers, scaled to a few thousand calls a core. A thread
 * warms up, meets the other threads, and is counted from then on. An operation is one malloc or one free. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coherence.h"
#include "system.h"

enum { CHUNKS = 256, RING = 64, BATCH = 300, CHURN_BLOCKS = 100, TURNS = 4, FAILED = 1, MISUSED = 2 };

static unsigned cores;
static uint64_t operations; /* counted ones */
static uint64_t began, ended;
static unsigned arrived;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static size_t size_between(uint64_t *state, size_t least, size_t most)
{
    return least + (size_t)(next_random(state) >> 33) % (most - least + 1);
}

static void *block_new(size_t size)
{
    char *block = malloc(size);

    if (block == NULL)
        _exit(FAILED);
    coherence_touch(block, sizeof(uint64_t), true);
    *(volatile uint64_t *)block = size;
    return block;
}

static void block_free(void *block)
{
    coherence_touch(block, sizeof(uint64_t), false);
    if (*(volatile uint64_t *)block == 0)
        _exit(FAILED);
    free(block);
}

/* All `number` threads go on together. Counting begins when they have met for the first time, and ends at the next. */
static void meet(unsigned number)
{
    static unsigned meetings;

    if (++arrived < number) {
        schedule_block(&arrived, UINT64_MAX);
        return;
    }
    arrived = 0;
    meetings++;
    coherence_count(meetings == 1);
    *(meetings == 1 ? &began : &ended) = coherence_now();
    schedule_wake(&arrived, UINT32_MAX);
}

/* ---- messages: each producer has a consumer on a core that chance chose; the ring between them costs nothing ---- */

static struct ring {
    void *blocks[RING];
    unsigned given, taken;
} rings[CORES_MOST / 2];

static unsigned messages_each;

static void *producer(void *argument)
{
    struct ring *ring = argument;
    uint64_t random = 88172645463325252u + 977 * (uint64_t)(ring - rings);

    for (unsigned i = 0; i < 2 * messages_each; i++) {
        if (i == messages_each)
            meet(cores);
        void *block = block_new(size_between(&random, 16, 512));
        while (ring->given - ring->taken == RING)
            schedule_block(&ring->taken, UINT64_MAX);
        ring->blocks[ring->given++ % RING] = block;
        schedule_wake(&ring->given, 1);
    }
    meet(cores);
    return NULL;
}

static void *consumer(void *argument)
{
    struct ring *ring = argument;

    for (unsigned i = 0; i < 2 * messages_each; i++) {
        if (i == messages_each)
            meet(cores);
        while (ring->given == ring->taken)
            schedule_block(&ring->given, UINT64_MAX);
        void *block = ring->blocks[ring->taken++ % RING];
        schedule_wake(&ring->taken, 1);
        block_free(block);
    }
    meet(cores);
    return NULL;
}

static struct thread *started[CORES_MOST];

static void join_all(void)
{
    for (unsigned i = 0; i < cores; i++)
        coherence_join(started[i]);
}

static void messages(unsigned each)
{
    unsigned place[CORES_MOST];

    messages_each = each;
    for (unsigned i = 0; i < cores; i++) {
        unsigned j = (unsigned)(coherence_random() % (i + 1));
        place[i] = place[j];
        place[j] = i;
    }
    for (unsigned i = 0; i < cores; i++)
        started[i] = coherence_start(place[i], i % 2 ? consumer : producer, &rings[i / 2], false);
    join_all();
    operations = (uint64_t)cores * each;
}

/* ---- larson: lines of threads that hand their blocks to a successor on the next core ---- */

static struct server {
    void *chunks[CHUNKS];
    uint64_t random;
    unsigned turn;
} servers[CORES_MOST];

static unsigned replacements_each;
static unsigned servers_running;

static void *serve(void *argument)
{
    struct server *server = argument;
    unsigned number = (unsigned)(server - servers);

    for (unsigned i = 0; i < replacements_each; i++) {
        void **chunk = &server->chunks[next_random(&server->random) % CHUNKS];
        block_free(*chunk);
        *chunk = block_new(size_between(&server->random, 8, 128));
    }
    server->turn++;
    if (server->turn == TURNS || server->turn == 2 * TURNS)
        meet(cores);
    if (server->turn < 2 * TURNS)
        coherence_start((number + server->turn) % cores, serve, server, true);
    else if (--servers_running == 0)
        schedule_wake(&servers_running, 1);
    return NULL;
}

static void larson(unsigned each)
{
    replacements_each = each;
    servers_running = cores;
    for (unsigned i = 0; i < cores; i++) {
        servers[i].random = 88172645463325252u + 977 * (uint64_t)i;
        for (unsigned chunk = 0; chunk < CHUNKS; chunk++)
            servers[i].chunks[chunk] = block_new(size_between(&servers[i].random, 8, 128));
    }
    for (unsigned i = 0; i < cores; i++)
        coherence_start(i, serve, &servers[i], true);
    while (servers_running > 0)
        schedule_block(&servers_running, UINT64_MAX);
    operations = (uint64_t)cores * each * TURNS * 2;
}

/* ---- churn: threads that live for 100 blocks ---- */

static void *live_briefly(void *argument)
{
    struct server *server = argument;
    void *blocks[CHURN_BLOCKS];

    for (unsigned i = 0; i < CHURN_BLOCKS; i++)
        blocks[i] = block_new(size_between(&server->random, 16, 4096));
    for (unsigned i = 0; i < CHURN_BLOCKS; i += 2)
        block_free(blocks[i]);
    for (unsigned i = CHURN_BLOCKS; i-- > 0;)
        if (i % 2 == 1)
            block_free(blocks[i]);
    server->turn++;
    if (server->turn == TURNS || server->turn == 2 * TURNS)
        meet(cores);
    if (server->turn < 2 * TURNS)
        coherence_start((unsigned)(server - servers), live_briefly, server, true);
    else if (--servers_running == 0)
        schedule_wake(&servers_running, 1);
    return NULL;
}

static void churn(unsigned each)
{
    (void)each;
    servers_running = cores;
    for (unsigned i = 0; i < cores; i++) {
        servers[i].random = 88172645463325252u + 977 * (uint64_t)i;
        coherence_start(i, live_briefly, &servers[i], true);
    }
    while (servers_running > 0)
        schedule_block(&servers_running, UINT64_MAX);
    operations = (uint64_t)cores * CHURN_BLOCKS * TURNS * 2;
}

/* ---- batches: threads that share nothing ---- */

static unsigned batches_each;
static size_t batch_least, batch_most;

static void *make_batches(void *argument)
{
    uint64_t random = 88172645463325252u + 977 * (uint64_t)(uintptr_t)argument;
    void *blocks[BATCH];

    for (unsigned i = 0; i < 2 * batches_each; i++) {
        if (i == batches_each)
            meet(cores);
        for (unsigned b = 0; b < BATCH; b++)
            blocks[b] = block_new(size_between(&random, batch_least, batch_most));
        for (unsigned b = 0; b < BATCH; b++)
            block_free(blocks[b]);
    }
    meet(cores);
    return NULL;
}

static void batches_of(unsigned each, size_t least, size_t most)
{
    batches_each = each;
    batch_least = least;
    batch_most = most;
    for (unsigned i = 0; i < cores; i++)
        started[i] = coherence_start(i, make_batches, (void *)(uintptr_t)i, false);
    join_all();
    operations = (uint64_t)cores * each * BATCH * 2;
}

static void batches(unsigned each) { batches_of(each, 16, 1000); }

static void large(unsigned each) { batches_of(each, 16 << 10, 256 << 10); }

static const struct pattern {
    const char *name;
    void (*run)(unsigned each);
    unsigned each;
} patterns[] = {
    { "messages", messages, 1000 }, { "larson", larson, 250 }, { "churn", churn, 0 }, { "batches", batches, 3 },
    { "large", large, 1 },
};

static void print_figures(void)
{
    struct counts c = coherence_counts();
    struct {
        const char *name;
        uint64_t count;
    } figures[] = {
        { "transfers", c.transfers }, { "remote", c.remote }, { "own", c.own }, { "cold", c.cold },
        { "locks", c.locks }, { "hold", c.hold }, { "waits", c.waits }, { "atomics", c.atomics },
        { "failed", c.failed }, { "calls", c.calls }, { "faults", c.faults }, { "accesses", c.accesses },
        { "cycles", (ended - began) * cores },
    };

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        dprintf(STDOUT_FILENO, "%s %.4f\n", figures[i].name, (double)figures[i].count / (double)operations);
}

/* Copies the lines of /proc/self/maps, by which the Python part finds code and variables. */
static void print_maps(void)
{
    char text[4096];
    FILE *maps = fopen("/proc/self/maps", "re");

    while (maps && fgets(text, sizeof text, maps))
        dprintf(STDOUT_FILENO, "map %s", text);
}

/* One CPU, where a thread hands over fastest, and the same addresses in every run. */
static void run_fixed(char **argv)
{
    uint64_t mask[16] = { 0 };
    unsigned cpu = 0;

    if (personality(0xffffffff) & ADDR_NO_RANDOMIZE)
        return;
    system_call(SYS_getcpu, (long)(uintptr_t)&cpu, 0, 0, 0, 0, 0);
    mask[cpu / 64 % 16] = UINT64_C(1) << cpu % 64;
    system_call(SYS_sched_setaffinity, 0, sizeof mask, (long)(uintptr_t)mask, 0, 0, 0);
    personality(ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    const struct pattern *pattern = NULL;

    run_fixed(argv);
    for (size_t i = 0; argc == 5 && i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(argv[1], patterns[i].name) == 0)
            pattern = &patterns[i];
    cores = argc == 5 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (pattern == NULL || cores < 2 || cores > CORES_MOST || cores % 2 != 0) {
        dprintf(STDERR_FILENO, "usage: bench_coherence PATTERN CORES SEED TOP\n");
        return MISUSED;
    }
    coherence_begin(cores, strtoull(argv[3], NULL, 10));
    pattern->run(pattern->each);
    print_figures();
    coherence_report((unsigned)strtoul(argv[4], NULL, 10), operations);
    print_maps();
    _exit(0);
}
