/*
 * beside TIMES: threads allocate and free each other's blocks, begin and end, while another reads glibc's figures:
 * malloc_info, mallinfo2, malloc_stats. Exits with 1 and the name of a wrong figure.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 1024u
static _Atomic(void *) slots[SLOTS];
static atomic_bool running = true;

static void change(uint32_t *seed, unsigned times)
{
    for (; times > 0; times--) {
        uint32_t kind = (*seed = *seed * 1664525 + 1013904223) >> 22;
        uint32_t size = (*seed = *seed * 1664525 + 1013904223) % (kind < 900    ? 3000
                                                                  : kind < 1020 ? 300000
                                                                                : 3000000) +
                        1;
        free(atomic_exchange(&slots[(*seed >> 12) % SLOTS], malloc(size)));
    }
}

static void *work(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument;
    while (atomic_load(&running))
        change(&seed, 100);
    return NULL;
}

static void *brief(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument;
    change(&seed, 300);
    return NULL;
}

static void *begin_and_end(void *unused)
{
    for (uintptr_t number = 100; atomic_load(&running); number++) {
        pthread_t thread;
        pthread_create(&thread, NULL, brief, (void *)number);
        pthread_join(thread, NULL);
    }
    return unused;
}

static size_t figure(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    if (found == NULL) {
        printf("no %s in %s\n", name, text);
        exit(1);
    }
    return strtoull(found + strlen(name), NULL, 10);
}

static void ask(void)
{
    static char text[1 << 16];
    FILE *file = fmemopen(text, sizeof text, "w");
    struct mallinfo2 info = mallinfo2();
    size_t mapped, sum;

    if (malloc_info(0, file) != 0 || fclose(file) != 0)
        exit(1);
    mapped = figure(text, "<hakmem mapped=\"");
    sum = figure(text, " live=\"") + figure(text, " cached=\"") + figure(text, " free_in_slab=\"") +
          figure(text, " retained=\"") + figure(text, " metadata=\"");
    if (mapped != sum || strcmp(text + strlen(text) - strlen("</malloc>\n"), "</malloc>\n") != 0) {
        printf("malloc_info: %zu mapped, parts sum to %zu: %s\n", mapped, sum, text);
        exit(1);
    }
    /* glibc's identity, and no figure below 0 */
    if (info.arena != info.uordblks + info.fordblks || info.arena >> 40 || info.fordblks > info.arena ||
        info.keepcost > info.fordblks || info.fsmblks > info.fordblks || info.hblkhd >> 40) {
        printf("mallinfo2: arena %zu, uordblks %zu, fordblks %zu, fsmblks %zu, keepcost %zu, hblkhd %zu\n", info.arena,
               info.uordblks, info.fordblks, info.fsmblks, info.keepcost, info.hblkhd);
        exit(1);
    }
    malloc_stats();
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    int times = argc > 1 ? atoi(argv[1]) : 1;

    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    pthread_create(&threads[3], NULL, begin_and_end, NULL);
    while (times-- > 0)
        ask();
    atomic_store(&running, false);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
