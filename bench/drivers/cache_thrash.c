/*
 * Active false sharing: threads that share nothing each allocate a small block, write it many times, free it and begin
 * again. If an allocator serves them from one cache line, they fight for it. After Berger, McKinley, Blumofe and
 * Wilson, "Hoard" (ASPLOS 2000). shared_lines counts threads whose last block shared a line with another's.
 */
#include "cache_lines.h"

static struct cache_worker workers[BENCH_THREADS_MOST];

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 5,
                "[THREADS] [ITERATIONS] [SIZE] [WRITES] [SEED]\n"
                "  small blocks of several threads, written WRITES times over (default 4 200000 8 100 42)");
    unsigned threads = (unsigned)bench_argument(argc, argv, 1, "THREADS", 4, 1, BENCH_THREADS_MOST);
    uint64_t iterations = bench_argument(argc, argv, 2, "ITERATIONS", 200000, 1, UINT64_C(1) << 48);
    uint32_t size = (uint32_t)bench_argument(argc, argv, 3, "SIZE", 8, 1, CACHE_SIZE_MOST);
    uint64_t writes = bench_argument(argc, argv, 4, "WRITES", 100, 0, UINT64_C(1) << 32);
    uint64_t seed = bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX);
    struct bench_run bench;

    for (unsigned i = 0; i < threads; i++)
        workers[i] = (struct cache_worker){
            .iterations = iterations,
            .writes = writes,
            .size = size,
            .first = (unsigned char)bench_seed(seed, i),
        };
    bench_begin_threads(&bench, "cache_thrash", threads, cache_worker_main, workers, sizeof workers[0]);
    bench_join_threads();
    bench_end(&bench, (uint64_t)threads * 2 * iterations);
    bench_extra(&bench, "shared_lines", cache_shared_lines(workers, threads));
    bench_report(&bench);
    return 0;
}
