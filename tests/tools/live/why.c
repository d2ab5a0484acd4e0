/*
 * Has memory that is resident for known reasons, or live and not resident. Obeys lines on stdin and answers each with a
 * line. Each kind of memory has its own function, and so is a site.
 *
 *   pin SIZE COUNT       takes COUNT blocks, one by pin() for each slab and the others by fill(), and frees the others
 *                        -> slabs with one block of pin()'s, and the free bytes on the pages of those
 *   every SIZE COUNT N   takes COUNT blocks, each Nth by pin(), and frees the others -> number of pin()'s
 *   dense SIZE COUNT     takes COUNT blocks by dense() -> COUNT
 *   round SIZE COUNT     takes COUNT blocks by rounded() -> bytes of all that lie behind the requested ones
 *   half SIZE COUNT      takes COUNT blocks by half(), and writes the first half of each -> bytes of unwritten pages
 *   idle SIZE COUNT      takes COUNT blocks by idle() and busy(), writes all, and busy()'s repeatedly -> bytes of each
 *   rounds 0 0           -> how often busy()'s blocks have been written since then, all of them
 *   cache SIZE COUNT     a thread takes and frees COUNT blocks, and waits -> its thread id
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline))
#define SITE(name)                                                                                                     \
    static APART char *name(size_t size, size_t written)                                                               \
    {                                                                                                                  \
        char *volatile block = malloc(size);                                                                           \
        memset(block, 1, written);                                                                                     \
        return block;                                                                                                  \
    }
SITE(pin) SITE(fill) SITE(dense) SITE(rounded) SITE(half) SITE(idle) SITE(busy)

enum { UNIT = 65536, PAGE = 4096, MOST = 400000 };
static char *held[MOST];
static size_t rounds; /* relaxed: only its growth counts */
static char in_buffer[256], out_buffer[4096];

/* Keeps one block of pin()'s in each unit: the one in its middle. */
static void pin_units(size_t size, size_t count)
{
    size_t slabs = 0, bytes = 0, per_unit = UNIT / size, odd;

    /* Others may hold blocks of the size. pin() takes the odd places all the same, and so the middle one. */
    held[0] = fill(size, size);
    odd = (uintptr_t)held[0] % UNIT / size % 2;
    free(held[0]);
    for (size_t i = 0; i < count; i++)
        held[i] = (i + odd) % 2 ? pin(size, size) : fill(size, size);
    for (size_t i = 0; i < count; i++)
        if ((i + odd) % 2 == 0 || (uintptr_t)held[i] % UNIT / size != (per_unit / 2 | 1)) {
            free(held[i]);
            held[i] = NULL;
        }
    malloc_trim(0);
    for (size_t i = 0; i < count; i++) {
        if (!held[i])
            continue;
        bytes += PAGE - size;
        slabs++;
    }
    printf("%zu %zu\n", slabs, bytes);
}

static void pin_every(size_t size, size_t count, size_t step)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        held[i] = i % step ? fill(size, size) : pin(size, size);
    for (size_t i = 0; i < count; i++)
        if (i % step)
            free(held[i]);
        else
            kept++;
    malloc_trim(0);
    printf("%zu\n", kept);
}

struct order {
    char **blocks;
    size_t size, count;
    pthread_barrier_t done;
    pid_t tid;
};

static void *keep_busy(void *argument)
{
    struct order *order = argument;

    for (unsigned value = 2;; value++) {
        for (size_t i = 0; i < order->count; i++)
            for (size_t at = 0; at < order->size; at += PAGE)
                memcpy(&order->blocks[i][at], &value, sizeof value);
        __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
        usleep(20000);
    }
    return NULL;
}

static void *fill_cache(void *argument)
{
    struct order *order = argument;

    for (size_t i = 0; i < order->count; i++)
        order->blocks[i] = fill(order->size, order->size);
    for (size_t i = 0; i < order->count; i++)
        free(order->blocks[i]);
    order->tid = gettid();
    pthread_barrier_wait(&order->done);
    for (;;)
        pause();
    return NULL;
}

static void thread(void *(*work)(void *), size_t size, size_t count, int waits)
{
    static struct order orders[2];
    static char *blocks[2][1000];
    struct order *order = &orders[waits];
    pthread_t made;

    memcpy(blocks[waits], held, count * sizeof *held);
    *order = (struct order){ .blocks = blocks[waits], .size = size, .count = count };
    pthread_barrier_init(&order->done, NULL, 2);
    pthread_create(&made, NULL, work, order);
    if (waits)
        pthread_barrier_wait(&order->done);
    printf("%zu\n", waits ? (size_t)order->tid : size * count);
}

int main(void)
{
    char word[16], line[256];
    size_t size, count, step;

    setvbuf(stdin, in_buffer, _IOLBF, sizeof in_buffer);
    setvbuf(stdout, out_buffer, _IOLBF, sizeof out_buffer);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%15s %zu %zu %zu", word, &size, &count, &step) >= 3) {
        if (strcmp(word, "pin") == 0) {
            pin_units(size, count);
        } else if (strcmp(word, "every") == 0) {
            pin_every(size, count, step);
        } else if (strcmp(word, "dense") == 0) {
            for (size_t i = 0; i < count; i++)
                dense(size, size);
            printf("%zu\n", count);
        } else if (strcmp(word, "round") == 0) {
            size_t bytes = 0;
            for (size_t i = 0; i < count; i++)
                bytes += malloc_usable_size(rounded(size, size)) - size;
            printf("%zu\n", bytes);
        } else if (strcmp(word, "half") == 0) {
            for (size_t i = 0; i < count; i++)
                half(size, size / 2);
            printf("%zu\n", (size - size / 2) * count);
        } else if (strcmp(word, "idle") == 0) {
            for (size_t i = 0; i < count; i++) {
                idle(size, size);
                held[i] = busy(size, size);
            }
            thread(keep_busy, size, count, 0);
        } else if (strcmp(word, "rounds") == 0) {
            printf("%zu\n", __atomic_load_n(&rounds, __ATOMIC_RELAXED));
        } else if (strcmp(word, "cache") == 0) {
            thread(fill_cache, size, count, 1);
        }
    }
    return 0;
}
