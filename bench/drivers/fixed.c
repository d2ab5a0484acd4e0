/* Blocks of one size: LIVE slots, replaced at random. Writes every page of a block. For rows such as 64 and 256 KiB. */
#include "common.h"

enum { SLOTS_MOST = 1 << 20 };

static void *slots[SLOTS_MOST];

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 4,
        "[SIZE] [LIVE] [ITERATIONS] [SEED]\n  replaces random blocks of one size (default 65536 100 200000 42)");
    size_t size = bench_argument(argc, argv, 1, "SIZE", 65536, 16, UINT64_C(1) << 34);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 100, 1, SLOTS_MOST);
    uint64_t iterations = bench_argument(argc, argv, 3, "ITERATIONS", 200000, 0, UINT64_MAX);
    uint64_t state = bench_seed(bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t operations = 0;
    struct bench_run bench;

    bench_begin(&bench, "fixed");
    for (uint64_t i = 0; i < iterations; i++) {
        uint32_t slot = bench_scale((uint32_t)(bench_random(&state) >> 32), live);
        operations += 1 + bench_block_free(slots[slot]);
        slots[slot] = bench_block_new(size, i);
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        bench_block_free(slots[slot]);
    bench_report(&bench);
    return 0;
}
