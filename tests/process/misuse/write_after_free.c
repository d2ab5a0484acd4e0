/*
 * write_after_free SEED: threads allocate and free blocks of all sizes, often each other's. Now and then all stop, and
 * one writes garbage over each freed range without a live block. The allocator's state must survive: no crash, no
 * overlap, no damage to a live block.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "use.h"

enum { THREADS = 4, LIVE = 300, STEPS = 500, ROUNDS = 60 };

struct block {
    unsigned char *start;
    size_t size;
    unsigned char mark;
};

static struct block live[THREADS][LIVE];
static struct block freed[THREADS][STEPS];
static int freed_count[THREADS];
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block passed[64]; /* blocks that pass from thread to thread, under the lock */
static uint64_t seed;

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static size_t any_size(uint64_t *state)
{
    uint64_t kind = next(state) % 1000;
    if (kind < 800)
        return next(state) % 1024 + 1;
    if (kind < 970)
        return next(state) % 32768 + 1;
    if (kind < 998)
        return next(state) % (1 << 20) + 1;
    return next(state) % (3 << 20) + 1;
}

static void verify(const struct block *block)
{
    size_t step = block->size > 4096 ? block->size / 512 : 1;
    for (size_t i = 0; i < block->size; i += step)
        if (block->start[i] != block->mark) {
            dprintf(2, "damage at %p + %zu of %zu\n", (void *)block->start, i, block->size);
            _exit(3);
        }
}

static int by_start(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Writes addresses of live memory, small numbers and all ones, which would mislead an allocator that links free blocks.
 * The kernel does the write, and refuses where pages are gone. */
static void scribble(unsigned char *start, unsigned char *end)
{
    static uint64_t garbage[512];
    for (int i = 0; i < 512; i++)
        garbage[i] = i % 3 == 0   ? (uint64_t)(uintptr_t)live[0][i % LIVE].start
                     : i % 3 == 1 ? (uint64_t)i
                                  : ~UINT64_C(0);
    while (start < end) {
        size_t part = (size_t)(end - start) < sizeof(garbage) ? (size_t)(end - start) : sizeof(garbage);
        struct iovec source = { garbage, part }, target = { start, part };
        process_vm_writev(getpid(), &source, 1, &target, 1, 0);
        start += part;
    }
}

/* Every thread waits meanwhile. */
static void scribble_over_all_freed(void)
{
    static struct block all[THREADS * LIVE + 64];
    int count = 0;

    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < LIVE; i++)
            if (live[t][i].start)
                all[count++] = live[t][i];
    for (int i = 0; i < 64; i++)
        if (passed[i].start)
            all[count++] = passed[i];
    qsort(all, (size_t)count, sizeof(all[0]), by_start);
    for (int i = 0; i + 1 < count; i++)
        if (all[i].start + all[i].size > all[i + 1].start) {
            dprintf(2, "%p + %zu overlaps %p\n", (void *)all[i].start, all[i].size, (void *)all[i + 1].start);
            _exit(4);
        }
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < freed_count[t]; i++) {
            unsigned char *from = freed[t][i].start, *end = from + freed[t][i].size;
            for (int k = 0; k < count && from < end; k++) {
                unsigned char *live_end = all[k].start + all[k].size;
                if (live_end <= from || all[k].start >= end)
                    continue;
                if (all[k].start > from)
                    scribble(from, all[k].start);
                from = live_end;
            }
            if (from < end)
                scribble(from, end);
        }
        freed_count[t] = 0;
    }
}

static void step(int me, uint64_t *state)
{
    struct block *block = &live[me][next(state) % LIVE];

    if (!block->start) {
        block->size = any_size(state);
        block->mark = (unsigned char)next(state);
        block->start = memset(malloc(block->size), block->mark, block->size);
    } else if (next(state) % 4 == 0) {
        /* Exchanges blocks with another thread. */
        pthread_mutex_lock(&lock);
        struct block *place = &passed[next(state) % 64], other = *place;
        *place = *block;
        *block = other;
        pthread_mutex_unlock(&lock);
        if (block->start)
            verify(block);
    } else {
        verify(block);
        free(block->start);
        freed[me][freed_count[me]++] = *block;
        block->start = NULL;
    }
}

static void *run(void *argument)
{
    int me = (int)(intptr_t)argument;
    uint64_t state = seed * 1000 + (uint64_t)me;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STEPS; i++)
            step(me, &state);
        if (round % 10 == 5)
            malloc_trim(0);
        pthread_barrier_wait(&barrier);
        if (me == 0)
            scribble_over_all_freed();
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < LIVE; i++) {
        if (live[me][i].start) {
            verify(&live[me][i]);
            free(live[me][i].start);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    if (argc != 2)
        return 2;
    seed = (uint64_t)atol(argv[1]);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i))
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 64; i++)
        free(passed[i].start);
    malloc_trim(0);
    check_the_allocator_works();
    return 0;
}
