/*
 * More threads than cores: each of THREADS threads allocates BLOCKS blocks of 16-1,024 B and frees every second one.
 * Then it takes TURNS turns. In a turn it replaces ONCE of its blocks and waits until all other threads had theirs. A
 * thousand threads with a small ONCE mostly sleep; 64 threads with a large ONCE work all the time.
 *
 * After all turns, before any thread ends, RSS tells how much the threads hold. It is read again after IDLE_MS without
 * calls. The figure for one thread leaves out the RSS from before the first allocation, when all threads had started.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "common.h"

enum { THREADS_MOST = 16384, HELD_MOST = 1 << 23, SIZE_LEAST = 16, SIZE_MOST = 1024, STACK_BYTES = 256 << 10 };

struct worker {
    uint64_t random;
    uint64_t operations;
    uint64_t live;
};

static struct worker workers[THREADS_MOST];
static pthread_t threads[THREADS_MOST];
/* Each thread has `blocks` consecutive places. */
static void *table[HELD_MOST];
static uint32_t blocks, once;
static uint64_t turns;
/* For all threads and the main thread. */
static pthread_barrier_t gate;

static void new_block(struct worker *worker, void **place)
{
    uint32_t bits = (uint32_t)(bench_random(&worker->random) >> 32);
    size_t size = SIZE_LEAST + bench_scale(bits, SIZE_MOST - SIZE_LEAST + 1);
    *place = bench_block_new(size, worker->operations++);
    worker->live += size;
}

static void free_block(struct worker *worker, void **place)
{
    if (*place == NULL)
        return;
    worker->live -= bench_block_check(*place);
    worker->operations += bench_block_free(*place);
    *place = NULL;
}

static void take_turn(struct worker *worker, void **places)
{
    for (uint32_t i = 0; i < once; i++) {
        /* Places with an odd number are empty. */
        size_t pair = bench_scale((uint32_t)(bench_random(&worker->random) >> 32), (blocks + 1) / 2);
        void **place = &places[2 * pair];
        free_block(worker, place);
        new_block(worker, place);
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    void **places = &table[(size_t)(worker - workers) * blocks];

    pthread_barrier_wait(&gate); /* all have started */
    pthread_barrier_wait(&gate); /* the main thread has read RSS */
    for (uint32_t i = 0; i < blocks; i++)
        new_block(worker, &places[i]);
    for (uint32_t i = 1; i < blocks; i += 2)
        free_block(worker, &places[i]);
    for (uint64_t turn = 0; turn < turns; turn++) {
        take_turn(worker, places);
        pthread_barrier_wait(&gate);
    }
    pthread_barrier_wait(&gate); /* the main thread has read RSS */
    for (uint32_t i = 0; i < blocks; i++)
        free_block(worker, &places[i]);
    return NULL;
}

static void start_threads(unsigned count, uint64_t seed)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&gate, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        workers[i].random = bench_seed(seed, i);
        int error = pthread_create(&threads[i], &attributes, worker_main, &workers[i]);
        if (error != 0)
            bench_fail("THREADS: pthread_create of thread %u: %s", i + 1, strerror(error));
    }
    pthread_attr_destroy(&attributes);
    pthread_barrier_wait(&gate);
}

static void sleep_ms(uint64_t milliseconds)
{
    struct timespec pause = { (time_t)(milliseconds / 1000), (long)(milliseconds % 1000 * 1000000) };
    nanosleep(&pause, NULL);
}

static uint64_t of_a_thread(long now_kib, long before_kib, unsigned count)
{
    return now_kib <= before_kib ? 0 : (uint64_t)(now_kib - before_kib) * 1024 / count;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 6,
                "[THREADS] [BLOCKS] [TURNS] [ONCE] [IDLE_MS] [SEED]\n"
                "  threads beyond the cores: ONCE replacements in turn, and what a thread holds (default 1000 64 20 16 "
                "500 42)");
    unsigned count = (unsigned)bench_argument(argc, argv, 1, "THREADS", 1000, 1, THREADS_MOST);
    blocks = (uint32_t)bench_argument(argc, argv, 2, "BLOCKS", 64, 1, HELD_MOST / count);
    turns = bench_argument(argc, argv, 3, "TURNS", 20, 1, UINT64_C(1) << 40);
    once = (uint32_t)bench_argument(argc, argv, 4, "ONCE", 16, 0, UINT32_MAX);
    uint64_t idle_ms = bench_argument(argc, argv, 5, "IDLE_MS", 500, 0, 1000000);
    uint64_t seed = bench_argument(argc, argv, 6, "SEED", 42, 0, UINT64_MAX), operations = 0, live = 0;
    struct bench_run bench;

    start_threads(count, seed);
    long started = bench_rss_kib();
    bench_begin(&bench, "many_threads");
    for (uint64_t turn = 0; turn <= turns; turn++)
        pthread_barrier_wait(&gate);
    for (unsigned i = 0; i < count; i++) {
        operations += workers[i].operations;
        live += workers[i].live;
    }
    bench_end(&bench, operations);
    long held = bench_rss_kib();
    sleep_ms(idle_ms);
    long later = bench_rss_kib();
    pthread_barrier_wait(&gate);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    bench_extra(&bench, "thread_live_bytes", live / count);
    bench_extra(&bench, "thread_held_bytes", of_a_thread(held, started, count));
    bench_extra(&bench, "thread_later_bytes", of_a_thread(later, started, count));
    bench_report(&bench);
    return 0;
}
