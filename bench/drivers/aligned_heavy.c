/* Aligned blocks from aligned_alloc and posix_memalign in turn, replaced at random in LIVE slots. Alignments are 32 B
 * to 4096 B, each power of two half as often as the one before. Sizes are 16-2048 B, one in 16 up to 16 KiB. */
#include "common.h"

enum { SLOTS_MOST = 1 << 22, ALIGNMENT_LEAST = 32, SIZE_LEAST = 16, SMALL_MOST = 2048, LARGE_MOST = 16 * 1024 };

static void *slots[SLOTS_MOST];

static void *aligned_new(size_t alignment, size_t *size, uint64_t serial)
{
    void *block = NULL;
    if (serial % 2 == 0) {
        /* aligned_alloc requires a multiple of the alignment. */
        *size = (*size + alignment - 1) & ~(alignment - 1);
        block = aligned_alloc(alignment, *size);
    } else if (posix_memalign(&block, alignment, *size) != 0) {
        block = NULL;
    }
    if (block == NULL)
        bench_fail("%zu bytes aligned to %zu failed", *size, alignment);
    if ((uintptr_t)block % alignment != 0)
        bench_fail("block %p of %zu bytes is not aligned to %zu", block, *size, alignment);
    bench_block_stamp(block, *size, serial);
    return block;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 3,
                "[ITERATIONS] [LIVE] [SEED]\n"
                "  blocks of 16 B-16 KiB aligned to 32-4096 over LIVE slots (default 1000000 5000 42)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 1000000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 5000, 1, SLOTS_MOST);
    uint64_t state = bench_seed(bench_argument(argc, argv, 3, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t operations = 0;
    uint64_t bytes = 0;
    struct bench_run bench;

    bench_begin(&bench, "aligned_heavy");
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint64_t kind = bench_random(&state) >> 32;
        uint32_t slot = bench_scale((uint32_t)(random >> 32), live);
        /* The number of trailing zeros is 0 in half of the cases, 1 in a quarter, and so on up to 7. */
        size_t alignment = (size_t)ALIGNMENT_LEAST << __builtin_ctz((unsigned)kind | 1u << 7);
        uint32_t most = kind >> 28 == 0 ? LARGE_MOST : SMALL_MOST;
        size_t size = SIZE_LEAST + bench_scale((uint32_t)random, most - SIZE_LEAST + 1);
        operations += 1 + bench_block_free(slots[slot]);
        slots[slot] = aligned_new(alignment, &size, i);
        bytes += size;
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        bench_block_free(slots[slot]);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
