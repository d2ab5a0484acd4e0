/* Threads allocate, exchange and free blocks of all sizes at full speed, beside short-lived threads, for ever. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 4096u
static void *slots[SLOTS];

static void *work(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument * 7919 + 1;

    for (;;) {
        uint32_t kind, size;
        char *block;
        seed = seed * 1664525 + 1013904223;
        kind = seed >> 24;
        size = (seed >> 6) % (kind < 240 ? 2000 : kind < 252 ? 200000 : 4000000) + 1;
        block = malloc(size);
        if (block)
            block[0] = block[size - 1] = 1;
        free(__atomic_exchange_n(&slots[(seed >> 8) % SLOTS], block, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

static void *brief(void *argument)
{
    for (size_t i = 1; i < 200; i++)
        free(__atomic_exchange_n(&slots[i], malloc(i * 16), __ATOMIC_ACQ_REL));
    return argument;
}

int main(void)
{
    pthread_t thread;

    for (uintptr_t number = 1; number <= 3; number++)
        pthread_create(&thread, NULL, work, (void *)number);
    puts("ready");
    fflush(stdout);
    for (;;) {
        pthread_create(&thread, NULL, brief, NULL);
        pthread_join(thread, NULL);
    }
}
