/* Producers and consumers: producer threads allocate batches of blocks and queue them; consumer threads check and free
 * them. So no thread frees a block that it allocated. The same holds for a batch's own table. */
#define _GNU_SOURCE
#include <pthread.h>

#include "common.h"

enum { PAIRS_MOST = 128, BATCH_BLOCKS = 120, QUEUE_BATCHES = 64, SIZE_LEAST = 16, SIZE_MOST = 512 };

struct batch {
    void *blocks[BATCH_BLOCKS];
};

static struct batch *queue[QUEUE_BATCHES];
static unsigned queue_head, queue_count;
static unsigned producers_running;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER;
static uint64_t batches_each, seed;

static void *producer_main(void *argument)
{
    uint64_t random = bench_seed(seed, (uintptr_t)argument);

    for (uint64_t i = 0; i < batches_each; i++) {
        struct batch *batch = malloc(sizeof *batch);
        if (batch == NULL)
            bench_fail("malloc(%zu) failed", sizeof *batch);
        for (unsigned b = 0; b < BATCH_BLOCKS; b++)
            batch->blocks[b] = bench_block_new(
                SIZE_LEAST + bench_scale((uint32_t)(bench_random(&random) >> 32), SIZE_MOST - SIZE_LEAST + 1), b);
        pthread_mutex_lock(&lock);
        while (queue_count == QUEUE_BATCHES)
            pthread_cond_wait(&not_full, &lock);
        queue[(queue_head + queue_count++) % QUEUE_BATCHES] = batch;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    if (--producers_running == 0)
        pthread_cond_broadcast(&not_empty);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *consumer_main(void *argument)
{
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (queue_count == 0 && producers_running > 0)
            pthread_cond_wait(&not_empty, &lock);
        if (queue_count == 0) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        struct batch *batch = queue[queue_head];
        queue_head = (queue_head + 1) % QUEUE_BATCHES;
        queue_count--;
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&lock);
        for (unsigned b = 0; b < BATCH_BLOCKS; b++)
            bench_block_free(batch->blocks[b]);
        free(batch);
    }
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 3,
        "[PAIRS] [BATCHES] [SEED]\n"
        "  PAIRS producers and as many consumers; BATCHES of 120 blocks of 16-512 B a producer (default 2 20000 42)");
    unsigned pairs = (unsigned)bench_argument(argc, argv, 1, "PAIRS", 2, 1, PAIRS_MOST);
    batches_each = bench_argument(argc, argv, 2, "BATCHES", 20000, 0, UINT64_C(1) << 48);
    seed = bench_argument(argc, argv, 3, "SEED", 42, 0, UINT64_MAX);
    pthread_t threads[2 * PAIRS_MOST];
    struct bench_run bench;

    bench_begin(&bench, "producer_consumer");
    producers_running = pairs;
    for (unsigned i = 0; i < 2 * pairs; i++) {
        int error = pthread_create(&threads[i], NULL, i % 2 == 0 ? producer_main : consumer_main, (void *)(uintptr_t)i);
        if (error != 0)
            bench_fail("pthread_create: %s", strerror(error));
    }
    for (unsigned i = 0; i < 2 * pairs; i++)
        pthread_join(threads[i], NULL);
    bench_end(&bench, (uint64_t)2 * pairs * batches_each * (BATCH_BLOCKS + 1));
    bench_report(&bench);
    return 0;
}
