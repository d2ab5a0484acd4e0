/*
 * Burst and idle: in each of BURSTS bursts, THREADS threads together allocate BURST_KIB of blocks and free them. Blocks
 * have 16-1024 B, one in 32 up to 32 KiB. Then all threads sleep for IDLE_MS and call nothing. KEPT of 1000 blocks stay
 * through the pause. The reported time covers only the bursts, CPU time the whole run. rss_mean_kib is the RSS averaged
 * over the whole run: a thread that allocates nothing reads it every 5 ms.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

enum { THREADS_MOST = 64, BLOCKS_MOST = 1 << 20, SAMPLE_NS = 5000000, SMALL_MOST = 1024, MIDDLE_MOST = 32 * 1024 };

struct worker {
    uint64_t random, operations, bytes;
    uint32_t kept;
} __attribute__((aligned(128)));

static struct worker workers[THREADS_MOST];
static void *tables[THREADS_MOST][BLOCKS_MOST];
static uint64_t bursts, target;
static uint32_t kept_permille;
static pthread_barrier_t burst_begins, burst_ended;

/* Written by the sampling thread, read when it has ended. */
static double kib_seconds, seconds_sampled;
static atomic_bool sampling_over;

static void sleep_ns(uint64_t nanoseconds)
{
    struct timespec pause = { (time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u) };
    nanosleep(&pause, NULL);
}

static long rss_kib(int statm)
{
    char text[128];
    ssize_t length = pread(statm, text, sizeof text - 1, 0);
    if (length <= 0)
        bench_fail("/proc/self/statm cannot be read");
    text[length] = '\0';
    /* In pages: the total size, then the resident part. */
    char *at = text;
    strtol(at, &at, 10);
    return strtol(at, NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *sampler_main(void *argument)
{
    int statm = *(const int *)argument;
    uint64_t before = bench_now_ns();

    while (!atomic_load_explicit(&sampling_over, memory_order_relaxed)) {
        sleep_ns(SAMPLE_NS);
        uint64_t now = bench_now_ns();
        double seconds = (double)(now - before) / 1e9;
        kib_seconds += (double)rss_kib(statm) * seconds;
        seconds_sampled += seconds;
        before = now;
    }
    return NULL;
}

static void run_burst(struct worker *worker)
{
    void **blocks = tables[worker - workers];
    uint32_t kept_before = worker->kept;
    uint32_t count = kept_before;

    for (uint64_t held = 0; held < target; count++) {
        if (count == BLOCKS_MOST)
            bench_fail("BURST_KIB makes more than %d blocks a thread", (int)BLOCKS_MOST);
        uint64_t random = bench_random(&worker->random);
        uint32_t most = (random & 31) == 0 ? MIDDLE_MOST : SMALL_MOST;
        size_t size = 16 + bench_scale((uint32_t)(random >> 32), most - 16 + 1);
        blocks[count] = bench_block_new(size, count);
        held += size;
    }
    worker->operations += count - kept_before;
    worker->kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chance = bench_scale((uint32_t)(bench_random(&worker->random) >> 32), 1000);
        if (i >= kept_before && chance < kept_permille)
            blocks[worker->kept++] = blocks[i];
        else
            worker->operations += bench_block_free(blocks[i]);
    }
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t burst = 0; burst < bursts; burst++) {
        pthread_barrier_wait(&burst_begins);
        run_burst(worker);
        pthread_barrier_wait(&burst_ended);
    }
    /* Waits until the last pause is over. */
    pthread_barrier_wait(&burst_begins);
    for (uint32_t i = 0; i < worker->kept; i++)
        bench_block_free(tables[worker - workers][i]);
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 6,
        "[BURSTS] [THREADS] [BURST_KIB] [IDLE_MS] [KEPT] [SEED]\n"
        "  bursts of BURST_KIB, then IDLE_MS of sleep with KEPT of 1000 blocks held (default 6 4 131072 400 10 42)");
    bursts = bench_argument(argc, argv, 1, "BURSTS", 6, 1, UINT64_C(1) << 40);
    unsigned threads = (unsigned)bench_argument(argc, argv, 2, "THREADS", 4, 1, THREADS_MOST);
    target = bench_argument(argc, argv, 3, "BURST_KIB", 131072, 1, 1 << 26) * 1024 / threads;
    uint64_t idle_ms = bench_argument(argc, argv, 4, "IDLE_MS", 400, 0, 86400000);
    kept_permille = (uint32_t)bench_argument(argc, argv, 5, "KEPT", 10, 0, 1000);
    uint64_t seed = bench_argument(argc, argv, 6, "SEED", 42, 0, UINT64_MAX);
    uint64_t burst_ns = 0;
    uint64_t operations = 0;
    pthread_t sampler;
    struct bench_run bench;

    int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (statm < 0)
        bench_fail("/proc/self/statm cannot be opened");
    for (unsigned i = 0; i < threads; i++)
        workers[i].random = bench_seed(seed, i);
    pthread_barrier_init(&burst_begins, NULL, threads + 1);
    pthread_barrier_init(&burst_ended, NULL, threads + 1);

    bench_begin_threads(&bench, "burst_idle", threads, worker_main, workers, sizeof workers[0]);
    int error = pthread_create(&sampler, NULL, sampler_main, &statm);
    if (error != 0)
        bench_fail("pthread_create: %s", strerror(error));
    for (uint64_t burst = 0; burst < bursts; burst++) {
        uint64_t begun = bench_now_ns();
        pthread_barrier_wait(&burst_begins);
        pthread_barrier_wait(&burst_ended);
        burst_ns += bench_now_ns() - begun;
        sleep_ns(idle_ms * 1000000);
    }
    atomic_store_explicit(&sampling_over, true, memory_order_relaxed);
    pthread_join(sampler, NULL);
    for (unsigned i = 0; i < threads; i++)
        operations += workers[i].operations;
    bench_end(&bench, operations);
    bench.ended_ns = bench.started_ns + burst_ns;
    bench_extra(&bench, "rss_mean_kib", (uint64_t)(kib_seconds / seconds_sampled));
    bench_extra(&bench, "threads", threads);

    pthread_barrier_wait(&burst_begins);
    bench_join_threads();
    bench_report(&bench);
    return 0;
}
