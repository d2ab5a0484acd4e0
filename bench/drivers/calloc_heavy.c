/* calloc: blocks of 16 B to 256 KiB, equally many of each power of two, replaced at random. Each new block must be all
 * zero. It is then written whole, so that the allocator must clear the memory before its next use. */
#include "common.h"

enum { SLOTS_MOST = 1 << 20, SMALLEST = 16, OCTAVES = 14, STRIDE = 64 };

static unsigned char *slots[SLOTS_MOST];
static size_t sizes[SLOTS_MOST];

static void check_zero(const unsigned char *block, size_t size)
{
    uint64_t all = 0;
    for (size_t at = 0; at < size; at += sizeof all) {
        uint64_t word;
        memcpy(&word, block + at, sizeof word);
        all |= word;
    }
    if (all != 0)
        bench_fail("calloc gave a block of %zu bytes that is not zero", size);
}

static unsigned slot_free(uint32_t slot)
{
    if (slots[slot] == NULL)
        return 0;
    for (size_t at = 0; at < sizes[slot]; at += STRIDE)
        if (slots[slot][at] != (unsigned char)(slot | 1))
            bench_fail("a block of %zu bytes lost its contents at byte %zu", sizes[slot], at);
    free(slots[slot]);
    slots[slot] = NULL;
    return 1;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 3,
                "[ITERATIONS] [LIVE] [SEED]\n"
                "  calloc of 16 B-256 KiB over LIVE slots, checked and written whole (default 25000 200 42)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 25000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 200, 1, SLOTS_MOST);
    uint64_t state = bench_seed(bench_argument(argc, argv, 3, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t operations = 0;
    uint64_t bytes = 0;
    struct bench_run bench;

    bench_begin(&bench, "calloc_heavy");
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint32_t slot = bench_scale((uint32_t)(random >> 32), live);
        uint32_t octave = SMALLEST << bench_scale((uint32_t)(bench_random(&state) >> 32), OCTAVES);
        size_t words = (octave + bench_scale((uint32_t)random, octave)) / sizeof(uint64_t);
        operations += 1 + slot_free(slot);
        unsigned char *block = calloc(words, sizeof(uint64_t));
        if (block == NULL)
            bench_fail("calloc(%zu, %zu) failed", words, sizeof(uint64_t));
        sizes[slot] = words * sizeof(uint64_t);
        check_zero(block, sizes[slot]);
        memset(block, (int)(slot & 0xfe) | 1, sizes[slot]);
        slots[slot] = block;
        bytes += sizes[slot];
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        slot_free(slot);
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
