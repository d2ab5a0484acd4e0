/* Protects the contents of blocks, and the live bytes, in scenarios of threads that work on each other's blocks.
 *
 * stress SCENARIO [--seconds N] [--collect 1] [--share 1] [--seed N]
 *
 * With --collect another thread calls hak_collect(true) all the time. With --share threads from the third on share
 * heaps (O8). After each round, when its threads have ended, the live bytes are those of the start.
 */
#define _GNU_SOURCE
#include "stress.h"

#include <hakmem/hakmem.h>
#include <stdio.h>
#include <string.h>

#include "pool/registry.h"
#include "usage_check.h"

static const char *const option_names[] = { "seconds", "collect", "share", "seed", NULL };

static const struct {
    const char *name;
    stress_round round;
} scenarios[] = {
    { "churn", stress_churn },         { "orphans", stress_orphans }, { "phases", stress_phases },
    { "producers", stress_producers }, { "ring", stress_ring },       { "batches", stress_batches },
    { "heaps", stress_heaps },         { "idle", stress_idle },
};

/* ---- Helpers ---- */

size_t stress_size(struct chance *chance)
{
    size_t pick = chance_below(chance, 1000);

    if (pick < 800)
        return chance_log(chance, 0, KIB);
    if (pick < 960)
        return chance_log(chance, KIB, 32 * KIB);
    if (pick < 997)
        return chance_log(chance, 32 * KIB, MIB);
    return chance_log(chance, MIB, 4 * MIB);
}

void stress_allocate(struct block *block, struct chance *chance, size_t size)
{
    block_adopt(block, hak_malloc(size), size, 1, chance_next(chance));
}

void stress_free(struct block *block)
{
    hak_free(block_release(block));
}

void channel_start(struct channel *channel, unsigned senders)
{
    pthread_mutex_init(&channel->lock, NULL);
    pthread_cond_init(&channel->changed, NULL);
    channel->first = 0;
    channel->count = 0;
    channel->senders = senders;
}

void channel_send(struct channel *channel, const struct block *block)
{
    pthread_mutex_lock(&channel->lock);
    while (channel->count == CHANNEL_CAPACITY)
        pthread_cond_wait(&channel->changed, &channel->lock);
    channel->blocks[(channel->first + channel->count++) % CHANNEL_CAPACITY] = *block;
    pthread_cond_broadcast(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}

bool channel_receive(struct channel *channel, struct block *block)
{
    bool received = false;

    pthread_mutex_lock(&channel->lock);
    while (channel->count == 0 && channel->senders > 0)
        pthread_cond_wait(&channel->changed, &channel->lock);
    if (channel->count > 0) {
        *block = channel->blocks[channel->first];
        channel->first = (channel->first + 1) % CHANNEL_CAPACITY;
        channel->count--;
        received = true;
        pthread_cond_broadcast(&channel->changed);
    }
    pthread_mutex_unlock(&channel->lock);
    return received;
}

void channel_end_sender(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->senders--;
    pthread_cond_broadcast(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}

void channel_stop(struct channel *channel)
{
    CHECK(channel->count == 0 && channel->senders == 0, "a channel ends with %u blocks and %u senders",
          channel->count, channel->senders);
    pthread_cond_destroy(&channel->changed);
    pthread_mutex_destroy(&channel->lock);
}

void stress_threads(unsigned count, void *(*run)(void *), void *base, size_t stride)
{
    pthread_t threads[32];

    CHECK(count <= sizeof threads / sizeof threads[0], "%u threads", count);
    for (unsigned i = 0; i < count; i++)
        threads[i] = support_thread(run, (char *)base + i * stride);
    for (unsigned i = 0; i < count; i++)
        support_join(threads[i]);
}

/* ---- The run ---- */

static atomic_bool collector_stop;

static void *run_collector(void *argument)
{
    uint64_t *count = argument;

    while (!atomic_load(&collector_stop)) {
        hak_collect(true);
        ++*count;
        support_sleep_ms(1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = (double)support_option(argc, argv, "seconds", 4);
    bool collect = support_option(argc, argv, "collect", 0) != 0;
    stress_round round = NULL;
    uint64_t rounds = 0;
    uint64_t collections = 0;
    pthread_t collector;
    double start;
    size_t live_at_start;

    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0)
            round = scenarios[i].round;
    }
    CHECK(round != NULL, "no such scenario: %s", argc > 1 ? argv[1] : "none given");

    hak_free(hak_malloc(1));
    if (support_option(argc, argv, "share", 0)) {
        registry.own_most = 2;
        registry.shared_count = 2;
    }
    live_at_start = usage_read("at the start").live;
    if (collect)
        collector = support_thread(run_collector, &collections);
    start = support_seconds();
    do {
        struct chance chance;

        chance_start(&chance, rounds++);
        round(&chance);
        CHECK(block_live_count() == 0, "round %llu left %zu blocks", (unsigned long long)rounds, block_live_count());
        if (!collect)
            usage_check("after a round", live_at_start);
    } while (support_seconds() - start < seconds);
    if (collect) {
        atomic_store(&collector_stop, true);
        support_join(collector);
        CHECK(collections > 0, "the collector did nothing");
    }
    usage_check("at the end", live_at_start);
    printf("%s: %llu rounds, %llu collections, at most %.1f MiB live, %.1f s, seed %llu\n", argv[1],
           (unsigned long long)rounds, (unsigned long long)collections, (double)block_live_peak() / (double)MIB,
           support_seconds() - start, (unsigned long long)support_seed);
    return 0;
}
