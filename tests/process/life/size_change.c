/*
 * size_change LIVE_MB THREADS ORDER SIZE...: allocates LIVE_MB million bytes in blocks of the first SIZE, written in
 * full, frees them, and goes on with the next SIZE. No more than that is ever live. THREADS threads share the work (0:
 * the main thread does it) and change sizes together. ORDER of the frees: lifo, fifo or mixed. Prints the resident peak
 * in KiB, less what was resident before the first block.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "work.h"

enum { CHAINS = 64 }; /* in mixed order a block joins a random chain, and the chains are freed one after another */

static size_t live, sizes[64];
static int size_count;
static unsigned parts = 1;
static const char *order;
static pthread_barrier_t barrier;

static long status_kib(const char *name)
{
    char text[8192];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(file, text, sizeof text - 1);
    const char *line;

    if (file < 0 || length <= 0)
        fail("/proc/self/status");
    close(file);
    text[length] = 0;
    line = strstr(text, name);
    if (!line)
        fail(name);
    return atol(line + strlen(name));
}

/* Waits until all threads have come this far. */
static void meet(void)
{
    if (parts > 1)
        pthread_barrier_wait(&barrier);
}

/* Allocates and frees one thread's part of the live bytes, in blocks of one size. */
static void turn(size_t size, size_t bytes, uint64_t *state)
{
    char *heads[CHAINS] = { NULL }, *tails[CHAINS] = { NULL };
    int chains = strcmp(order, "mixed") == 0 ? CHAINS : 1;

    for (size_t got = 0; got + size <= bytes; got += size) {
        int chain = (int)(work_next(state) % (unsigned)chains);
        char *block = malloc(size);

        if (!block)
            fail(errno == ENOMEM ? "no memory" : "errno is not ENOMEM");
        memset(block, 0x5a, size);
        if (strcmp(order, "lifo") == 0 || !heads[chain]) {
            memcpy(block, &heads[chain], sizeof(char *));
            if (!heads[chain])
                tails[chain] = block;
            heads[chain] = block;
        } else {
            char *none = NULL;
            memcpy(block, &none, sizeof(char *));
            memcpy(tails[chain], &block, sizeof(char *));
            tails[chain] = block;
        }
    }
    meet();
    for (int chain = 0; chain < chains; chain++)
        while (heads[chain]) {
            char *block = heads[chain];
            if (block[size - 1] != 0x5a)
                fail("contents");
            memcpy(&heads[chain], block, sizeof(char *));
            free(block);
        }
}

static void *run(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument + 1;

    for (int i = 0; i < size_count; i++) {
        turn(sizes[i], live / parts, &state);
        meet();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    long before;

    if (argc < 5 || argc > 64 || atoi(argv[2]) > 64)
        return 2;
    live = (size_t)atol(argv[1]) * 1000000;
    order = argv[3];
    for (int i = 4; i < argc; i++)
        sizes[size_count++] = (size_t)atol(argv[i]);
    free(malloc(1));
    before = status_kib("VmRSS:");
    if (atoi(argv[2]) == 0) {
        run(NULL);
    } else {
        parts = (unsigned)atoi(argv[2]);
        pthread_barrier_init(&barrier, NULL, parts);
        for (unsigned i = 0; i < parts; i++)
            if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
                fail("pthread_create");
        for (unsigned i = 0; i < parts; i++)
            pthread_join(threads[i], NULL);
    }
    printf("%ld\n", status_kib("VmHWM:") - before);
    return 0;
}
