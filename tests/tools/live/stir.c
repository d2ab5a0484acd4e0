/*
 * stir THREADS: threads allocate, write and free small, large and huge blocks at full speed, and free each other's,
 * beside short-lived threads, for ever. They write every byte, so a block's memory is resident.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 3072u
#define HUGE_SLOTS 16u
static void *slots[SLOTS], *huge_slots[HUGE_SLOTS];

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void change(uint32_t *seed)
{
    uint32_t kind = next(seed) % 1000, size = next(seed) % (kind < 900 ? 2000 : kind < 990 ? 200000 : 3000000) + 1;
    void **slot = kind < 990 ? &slots[next(seed) % SLOTS] : &huge_slots[next(seed) % HUGE_SLOTS];
    char *block = malloc(kind < 990 ? size : size + (1 << 20));

    if (block)
        memset(block, 1, kind < 990 ? size : size + (1 << 20));
    free(__atomic_exchange_n(slot, block, __ATOMIC_ACQ_REL));
}

static void *work(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument * 7919 + 1;

    for (;;)
        change(&seed);
    return NULL;
}

static void *brief(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument * 104729 + 7;

    for (unsigned i = 0; i < 300; i++)
        change(&seed);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    uintptr_t number = 1;

    for (; number < (uintptr_t)(argc > 1 ? atoi(argv[1]) : 4); number++)
        pthread_create(&thread, NULL, work, (void *)number);
    puts("ready");
    fflush(stdout);
    for (;; number++) {
        pthread_create(&thread, NULL, brief, (void *)number);
        pthread_join(thread, NULL);
    }
}
