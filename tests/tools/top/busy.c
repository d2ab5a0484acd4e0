/* Holds known memory, and churns: a thread allocates what another frees. Lines on standard input: "grow N": N more
 * blocks of 1,000 bytes, touched; "die": ends at once. The end of input ends it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 20000, HELD_SIZE = 100, MINE = 500, MINE_SIZE = 3000, HUGE_SIZE = 8 << 20, BATCH = 3000 };

static void *held[HELD];
static void *mine[MINE];
static void *_Atomic batch;
static atomic_bool stop;

static void *touched(size_t size)
{
    void *block = malloc(size);

    if (!block)
        abort();
    memset(block, 1, size);
    return block;
}

/* Makes batches of blocks, which the other thread frees, and keeps MINE. */
static void *make(void *ignored)
{
    (void)ignored;
    for (int i = 0; i < MINE; i++)
        mine[i] = touched(MINE_SIZE);
    while (!stop) {
        void **blocks = touched(BATCH * sizeof *blocks);
        for (int i = 0; i < BATCH; i++)
            blocks[i] = touched(200);
        void *none = NULL;
        while (!stop && !atomic_compare_exchange_weak(&batch, &none, (void *)blocks)) {
            none = NULL;
            usleep(1000);
        }
    }
    return NULL;
}

static void *drop(void *ignored)
{
    (void)ignored;
    while (!stop) {
        void **blocks = atomic_exchange(&batch, NULL);
        for (int i = 0; blocks && i < BATCH; i++)
            free(blocks[i]);
        free(blocks);
        usleep(2000);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    char line[64];

    for (int i = 0; i < HELD; i++)
        held[i] = touched(HELD_SIZE);
    void *huge = touched(HUGE_SIZE);
    if (pthread_create(&threads[0], NULL, make, NULL) || pthread_create(&threads[1], NULL, drop, NULL))
        return 1;
    usleep(50000);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int count;
        if (strcmp(line, "die\n") == 0)
            _exit(3);
        if (sscanf(line, "grow %d", &count) == 1) {
            for (int i = 0; i < count; i++)
                *(void **)touched(1000) = held[0];
            printf("grown\n");
            fflush(stdout);
        }
    }
    stop = true;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    free(huge);
    return held[HELD - 1] && mine[MINE - 1] ? 0 : 1;
}
