/*
 * sums PATTERN SEED MEBIBYTES: allocates so many MiB, all at its own sites. Prints for each site and each usable size
 * of its blocks
 *
 *   SITE SIZE BLOCKS
 *
 * the number of blocks allocated there since the start.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem/hakmem.h>

enum { SITES = 3, SIZE_MOST = 1 << 18 };

static unsigned blocks_of[SITES][SIZE_MOST / 16 + 1]; /* by usable size, in steps of 16 bytes */
static uint64_t state;
static size_t done, budget; /* bytes allocated so far, and bytes to allocate */

/* Neither inlined nor ended by a tail call, so that its return address is on the stack. */
#define SITE(number)                                                                                                   \
    static __attribute__((noinline)) void *site_##number(size_t size)                                                  \
    {                                                                                                                  \
        void *volatile block = malloc(size);                                                                           \
        size_t usable = hak_good_size(size);                                                                           \
        blocks_of[number][usable / 16]++;                                                                              \
        done += usable;                                                                                                \
        *(volatile char *)block = 1;                                                                                   \
        return block;                                                                                                  \
    }
SITE(0)
SITE(1)
SITE(2)

static size_t any(size_t from, size_t to)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return from + (state >> 33) % (to - from + 1);
}

/* One block, again and again, from one place in the cache. */
static void churn_one(void)
{
    size_t size = any(200, 1000);

    while (done < budget)
        free(site_0(size));
}

/* Ten blocks at two sites, and a few that stay. */
static void churn_ten(void)
{
    void *held[10];
    size_t sizes[10];

    for (unsigned i = 0; i < 10; i++)
        sizes[i] = any(100, 2000);
    while (done < budget) {
        for (unsigned i = 0; i < 10; i++)
            held[i] = i % 2 ? site_1(sizes[i]) : site_0(sizes[i]);
        for (unsigned i = 0; i < 10; i++)
            free(held[i]);
        if (any(0, 999) == 0)
            (void)site_2(48);
    }
}

/* Vectors that double by a copy, like C++'s. */
static void vectors(void)
{
    while (done < budget) {
        size_t most = any(1, 4000) * 64;
        char *vector = NULL;
        for (size_t size = 64; size <= most; size *= 2) {
            char *grown = size <= 4096 ? site_0(size) : site_1(size);
            if (vector)
                memcpy(grown, vector, 64);
            free(vector);
            vector = grown;
        }
        free(vector);
    }
}

/* Nodes of a map that are added and removed at random, with keys of another size. */
static void maps(void)
{
    static void *nodes[20000], *keys[20000];

    while (done < budget) {
        size_t at = any(0, 19999);
        if (nodes[at]) {
            free(nodes[at]);
            free(keys[at]);
            nodes[at] = NULL;
        } else {
            nodes[at] = site_0(352);
            keys[at] = site_1(any(100, 600));
        }
    }
}

/* ---- Threads that pass messages: no block is freed by the thread that allocated it ---- */

enum { RING = 256 };
static struct {
    _Alignas(128) _Atomic size_t written;
    _Alignas(128) _Atomic size_t read;
    void *slots[RING];
} ring;
static _Atomic bool finished;

static void *reader(void *unused)
{
    while (!finished || ring.read != ring.written)
        if (ring.read != ring.written) {
            free(ring.slots[ring.read % RING]);
            ring.read++;
        } else {
            sched_yield();
        }
    return unused;
}

static void messages(void)
{
    pthread_t thread;
    size_t size = any(300, 900);

    if (pthread_create(&thread, NULL, reader, NULL) != 0)
        abort();
    while (done < budget) {
        void *message = any(0, 3) ? site_0(size) : site_1(2 * size);
        while (ring.written - ring.read == RING)
            sched_yield();
        ring.slots[ring.written % RING] = message;
        ring.written++;
    }
    finished = true;
    pthread_join(thread, NULL);
}

/* Many blocks, and then all are freed. */
static void batches(void)
{
    static void *held[20000];

    while (done < budget) {
        size_t count = any(100, 20000);
        for (size_t i = 0; i < count; i++)
            held[i] = i % 4 ? site_0(640) : site_1(96);
        for (size_t i = 0; i < count; i++)
            free(held[i]);
    }
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } patterns[] = {
        { "churn_one", churn_one }, { "churn_ten", churn_ten }, { "vectors", vectors },
        { "maps", maps },           { "messages", messages },   { "batches", batches },
    };

    if (count != 4)
        return 2;
    state = strtoull(arguments[2], NULL, 10);
    budget = strtoull(arguments[3], NULL, 10) << 20;
    for (unsigned i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (strcmp(arguments[1], patterns[i].name) == 0) {
            patterns[i].run();
            for (unsigned site = 0; site < SITES; site++)
                for (unsigned size = 0; size <= SIZE_MOST / 16; size++)
                    if (blocks_of[site][size])
                        printf("site_%u %u %u\n", site, size * 16, blocks_of[site][size]);
            return 0;
        }
    return 2;
}
