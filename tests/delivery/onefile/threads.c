/*
 * Threads allocate, change, hand on and free blocks by hakmem.h's functions, or, with OVERRIDE, by malloc and its
 * family. Each block has its own pattern, which its last owner checks. Prints HAKMEM's version.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

#ifdef OVERRIDE
#define ALLOCATE malloc
#define ZEROED calloc
#define CHANGE realloc
#define ALIGNED aligned_alloc
#define FREE free
#else
#define ALLOCATE hak_malloc
#define ZEROED hak_calloc
#define CHANGE hak_realloc
#define ALIGNED hak_aligned_alloc
#define FREE hak_free
#endif

enum { THREADS = 4, ROUNDS = 20000, PLACES = 512, SIZE_MOST = 3000, HUGE_EVERY = 1000, HUGE_BYTES = 3 << 20 };

struct block {
    size_t size;
    uint32_t seed;
    unsigned char bytes[];
};

static _Atomic(struct block *) places[PLACES];

static uint32_t next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void fail(const char *what)
{
    fprintf(stderr, "threads: %s\n", what);
    exit(1);
}

static struct block *make(uint32_t *state, unsigned round)
{
    size_t size = round % HUGE_EVERY == 0 ? HUGE_BYTES : next(state) % SIZE_MOST, whole = sizeof(struct block) + size;
    struct block *block;

    switch (round % 4) {
    case 0:
        block = ZEROED(1, whole);
        for (size_t i = 0; block && i < size; i++)
            if (block->bytes[i] != 0)
                fail("a zeroed block is not");
        break;
    case 1:
        block = ALIGNED(256, whole);
        if ((uintptr_t)block % 256 != 0)
            fail("a block is not aligned");
        break;
    case 2:
        block = CHANGE(ALLOCATE(10), whole);
        break;
    default:
        block = ALLOCATE(whole);
    }
    if (!block || hak_usable_size(block) < whole)
        fail("a block is too small");
    block->size = size;
    block->seed = next(state);
    memset(block->bytes, (int)(block->seed & 255), size);
    return block;
}

static void check(const struct block *block)
{
    for (size_t i = 0; i < block->size; i++)
        if (block->bytes[i] != (unsigned char)block->seed)
            fail("a block was written to");
}

static void *run(void *number)
{
    uint32_t state = 1 + (uint32_t)(uintptr_t)number * 7919;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct block *block = atomic_exchange(&places[next(&state) % PLACES], make(&state, round));
        if (block) {
            check(block);
            FREE(block);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    hak_heap_t *heap = hak_heap_new();
    struct hak_stats stats;

    (void)argv;
    if (argc > 1)
        hak_free(strdup("of whichever malloc the process has"));
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 2;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < PLACES; i++)
        FREE(atomic_load(&places[i]));
    if (!heap || hak_heap_of(hak_heap_malloc(heap, 100)) != heap)
        return 3;
    hak_heap_destroy(heap);
    if (hak_stats_get(&stats, sizeof stats) != sizeof stats || stats.refills == 0)
        return 4;
    printf("%s\n", hak_version());
    return strcmp(hak_version(), HAK_VERSION_STRING) != 0;
}
