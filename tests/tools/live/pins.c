/*
 * Plants pins: long-lived blocks among brief ones of the same size. It knows what each of its functions' blocks keep
 * resident, from their addresses and mincore. Obeys lines on stdin and answers each with a line.
 *
 *   plant SIZE COUNT EVERY WINDOW KEEP SEED THREADS   each thread takes COUNT blocks. With the chance 1 / EVERY a block
 *                        is long-lived: by often(), seldom() or rare(), 6 : 3 : 1. All others are brief()'s: one of the
 *                        last WINDOW, by chance, is freed for each new one, and in the end all but one in KEEP. Then
 *                        the thread gives back what is free, and waits -> number of long-lived blocks
 *   leave ...            the same, but the thread gives nothing back
 *   dense SIZE COUNT     takes COUNT blocks by dense() -> COUNT
 *   trim                 -> what malloc_trim returns
 *   gone                 frees all blocks of often(), seldom() and rare(), and trims -> their number
 *   regions              -> the addresses of all pieces of 2 MiB with blocks
 *   truth BITS           BITS: for each region 1 if it is a huge page, else 0 -> for each function its name, its
 *                        blocks, and the free bytes that they keep resident
 *
 * A page leaves when its last block is gone. So does a region's header, and the rest of a huge page, when the region's
 * last block is. The blocks share these bytes evenly.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define APART __attribute__((noinline))
#define SITE(name)                                                                                                     \
    static APART char *name(size_t size)                                                                               \
    {                                                                                                                  \
        char *volatile block = malloc(size);                                                                           \
        memset(block, 1, size);                                                                                        \
        return block;                                                                                                  \
    }
SITE(often) SITE(seldom) SITE(rare) SITE(brief) SITE(dense)

enum { OFTEN, SELDOM, RARE, BRIEF, DENSE, SITES };
enum { PAGE = 4096, REGION = 2 << 20, PAGES = REGION / PAGE, HEADER = 16, MOST = 1 << 22, THREADS_MOST = 16 };
static char *(*const functions[SITES])(size_t) = { often, seldom, rare, brief, dense };
static const char *const names[SITES] = { "often", "seldom", "rare", "brief", "dense" };

struct block {
    char *address;
    size_t size; /* usable */
    int site;
};
static struct block *blocks; /* all that are held; in memory of its own, as everything here */
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *memory(size_t size)
{
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (found == MAP_FAILED)
        abort();
    return found;
}

static void keep(char *address, int site)
{
    pthread_mutex_lock(&lock);
    if (count == MOST)
        abort();
    blocks[count++] = (struct block){ address, malloc_usable_size(address), site };
    pthread_mutex_unlock(&lock);
}

struct order {
    size_t size, count, every, window, keep, seed;
    pthread_barrier_t *done;
    bool trims;
};

static size_t chance(uint64_t *state, size_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (size_t)(*state >> 20) % below;
}

static void *plant(void *argument)
{
    struct order *order = argument;
    char **window = memory(order->window * sizeof *window);
    uint64_t state = order->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;

    for (size_t i = 0; i < order->count; i++) {
        if (chance(&state, order->every) == 0) {
            size_t which = chance(&state, 10);
            int site = which < 6 ? OFTEN : which < 9 ? SELDOM : RARE;
            keep(functions[site](order->size), site);
        } else {
            char **place = &window[chance(&state, order->window)];
            free(*place);
            *place = brief(order->size);
        }
    }
    for (size_t i = 0; i < order->window; i++)
        if (i % order->keep)
            free(window[i]);
        else if (window[i])
            keep(window[i], BRIEF);
    munmap(window, order->window * sizeof *window);
    if (order->trims)
        malloc_trim(0);
    pthread_barrier_wait(order->done);
    for (;;)
        pause();
    return NULL;
}

static void start(struct order order, size_t threads)
{
    static struct order orders[THREADS_MOST];
    pthread_barrier_t done;
    size_t before = count, long_lived = 0;

    if (threads > THREADS_MOST || order.window == 0)
        abort();
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t made;
        orders[i] = order;
        orders[i].seed = order.seed * 1000 + i + 1;
        orders[i].done = &done;
        pthread_create(&made, NULL, plant, &orders[i]);
    }
    pthread_barrier_wait(&done);
    for (size_t i = before; i < count; i++)
        long_lived += blocks[i].site <= RARE;
    printf("%zu\n", long_lived);
}

static int by_address(const void *one, const void *other)
{
    const struct block *a = one, *b = other;

    return a->address < b->address ? -1 : a->address > b->address;
}

/* Adds what the blocks of one region keep. */
static void add_region(uintptr_t region, bool huge, const struct block *some, size_t number, double *kept)
{
    unsigned char resident[PAGES];
    unsigned on[PAGES][SITES] = { 0 }, all[PAGES] = { 0 }, of[SITES] = { 0 };
    size_t used[PAGES] = { 0 }, rest = 0;

    if (mincore((void *)region, REGION, resident) != 0)
        abort();
    for (size_t i = 0; i < number; i++) {
        size_t at = (uintptr_t)some[i].address - region, end = at + some[i].size;
        of[some[i].site]++;
        for (size_t page = at / PAGE; page * PAGE < end && page < PAGES; page++) {
            size_t from = at > page * PAGE ? at : page * PAGE, to = end < (page + 1) * PAGE ? end : (page + 1) * PAGE;
            used[page] += to - from;
            on[page][some[i].site]++;
            all[page]++;
        }
    }
    for (size_t page = 0; page < PAGES; page++) {
        if (!(resident[page] & 1))
            continue;
        if (!all[page] && (huge || page < HEADER))
            rest += PAGE;
        for (int site = 0; all[page] && site < SITES; site++)
            kept[site] += (double)(PAGE - used[page]) * on[page][site] / all[page];
    }
    for (int site = 0; site < SITES; site++)
        kept[site] += (double)rest * of[site] / (double)number;
}

static size_t next_region(size_t first, uintptr_t *region)
{
    *region = (uintptr_t)blocks[first].address / REGION * REGION;
    while (first < count && (uintptr_t)blocks[first].address / REGION * REGION == *region)
        first++;
    return first;
}

static void regions(void)
{
    uintptr_t region;

    qsort(blocks, count, sizeof *blocks, by_address); /* glibc's qsort may allocate; it frees that again */
    for (size_t first = 0; first < count;) {
        first = next_region(first, &region);
        printf("%zx%c", region, first < count ? ' ' : '\n');
    }
}

static void truth(const char *bits)
{
    double kept[SITES] = { 0 };
    size_t numbers[SITES] = { 0 };

    for (size_t first = 0, next; first < count; first = next) {
        uintptr_t region;
        next = next_region(first, &region);
        for (size_t i = first; i < next; i++)
            numbers[blocks[i].site]++;
        add_region(region, *bits++ == '1', &blocks[first], next - first, kept);
    }
    for (int site = 0; site < SITES; site++)
        printf("%s %zu %.0f%c", names[site], numbers[site], kept[site], site + 1 < SITES ? ' ' : '\n');
}

static void gone(void)
{
    size_t left = 0, freed = 0;

    for (size_t i = 0; i < count; i++)
        if (blocks[i].site > RARE) {
            blocks[left++] = blocks[i];
        } else {
            free(blocks[i].address);
            freed++;
        }
    count = left;
    malloc_trim(0);
    printf("%zu\n", freed);
}

int main(void)
{
    static char in_buffer[4096], out_buffer[4096];
    char word[16], line[4096];
    struct order order;
    size_t threads;

    setvbuf(stdin, in_buffer, _IOLBF, sizeof in_buffer);
    setvbuf(stdout, out_buffer, _IOLBF, sizeof out_buffer);
    blocks = memory(MOST * sizeof *blocks);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int found = sscanf(line, "%15s %zu %zu %zu %zu %zu %zu %zu", word, &order.size, &order.count,
                           &order.every, &order.window, &order.keep, &order.seed, &threads);
        if (found == 8) {
            order.trims = strcmp(word, "plant") == 0;
            start(order, threads);
        } else if (found == 3) {
            for (size_t i = 0; i < order.count; i++)
                keep(dense(order.size), DENSE);
            printf("%zu\n", order.count);
        } else if (strcmp(word, "trim") == 0) {
            printf("%d\n", malloc_trim(0));
        } else if (strcmp(word, "gone") == 0) {
            gone();
        } else if (strcmp(word, "regions") == 0) {
            regions();
        } else {
            truth(line + sizeof "truth");
        }
    }
    return 0;
}
