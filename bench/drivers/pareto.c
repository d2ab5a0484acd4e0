/*
 * Pareto: sizes from 16 B to 64 KiB that follow Pareto's law with the exponent ALPHA / 100: a share (16 / size) ^ alpha
 * of all blocks has at least `size` bytes. LONG of 1000 blocks live long, in LIVE slots. The others live until a few
 * dozen more are allocated.
 */
#include <math.h>

#include "common.h"

enum { SLOTS_MOST = 1 << 22, RECENT_SLOTS = 64, SIZE_LEAST = 16, SIZE_MOST = 64 * 1024, OCTAVES = 33, STEPS = 256 };

static void *slots[SLOTS_MOST];
static void *recent[RECENT_SLOTS];

/* u ^ (-1 / alpha) for u in (0, 1], as two factors: for u's power of two, and for the rest with a 16-bit fraction. */
static double octave_factor[OCTAVES];
static double step_factor[STEPS];

static void make_factors(double alpha)
{
    for (unsigned octave = 0; octave < OCTAVES; octave++)
        octave_factor[octave] = SIZE_LEAST * pow(2, octave / alpha);
    for (unsigned step = 0; step < STEPS; step++)
        step_factor[step] = pow((STEPS + step + 0.5) / (2 * STEPS), -1 / alpha);
}

static size_t pareto_size(uint32_t bits)
{
    /* u is (bits | 1) / 2^32: some leading zeros, then a one, then the step. */
    unsigned octave = (unsigned)__builtin_clz(bits | 1);
    uint32_t step = (uint32_t)(((uint64_t)(bits | 1) << (octave + 1) & UINT32_MAX) >> 24);
    double size = octave_factor[octave] * step_factor[step];
    return size < SIZE_MOST ? (size_t)size : SIZE_MOST;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 5,
                "[ITERATIONS] [LIVE] [LONG] [ALPHA] [SEED]\n"
                "  16 B-64 KiB by Pareto's law, exponent ALPHA / 100; LONG of 1000 blocks live long, in LIVE slots\n"
                "  (default 6000000 20000 50 120 42)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 6000000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 20000, 1, SLOTS_MOST);
    uint32_t longs = (uint32_t)bench_argument(argc, argv, 3, "LONG", 50, 0, 1000);
    make_factors((double)bench_argument(argc, argv, 4, "ALPHA", 120, 20, 1000) / 100);
    uint64_t state = bench_seed(bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t operations = 0;
    uint64_t bytes = 0;
    struct bench_run bench;

    bench_begin(&bench, "pareto");
    for (uint64_t i = 0; i < iterations; i++) {
        size_t size = pareto_size((uint32_t)(bench_random(&state) >> 32));
        uint64_t random = bench_random(&state);
        bool lasts = bench_scale((uint32_t)random, 1000) < longs;
        void **slot = lasts ? &slots[bench_scale((uint32_t)(random >> 32), live)] : &recent[random >> 58];
        operations += 1 + bench_block_free(*slot);
        *slot = bench_block_new(size, i);
        bytes += size;
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        bench_block_free(slots[slot]);
    for (uint32_t slot = 0; slot < RECENT_SLOTS; slot++)
        bench_block_free(recent[slot]);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
