/*
 * Random mixed: WS slots. Each iteration picks a random slot and frees its block. If the slot is empty, it allocates a
 * block of a size uniform in 16..1024 and writes its first word. One iteration is one operation, a malloc or a free.
 *
 * The timed loop reads no block, because it must show what free itself touches. The words are checked at the end, when
 * the slots are emptied. BENCH_VERIFY=1 fills and checks every whole block.
 */
#include "common.h"

enum { SLOTS_MOST = 1 << 24, SIZE_LEAST = 16, SIZE_MOST = 1024 };

static void *slots[SLOTS_MOST];

static void check(const unsigned char *block, uint32_t slot, bool whole)
{
    uint32_t word[2];
    memcpy(word, block, sizeof word);
    if (word[0] != slot || word[1] < SIZE_LEAST || word[1] > SIZE_MOST)
        bench_fail("slot %u: the block's first word is %08x %08x", slot, word[0], word[1]);
    for (uint32_t at = sizeof word; whole && at < word[1]; at++)
        if (block[at] != (unsigned char)slot)
            bench_fail("slot %u: byte %u of %u changed", slot, at, word[1]);
}

static inline __attribute__((always_inline)) void run(uint64_t iterations, uint32_t ws, uint64_t state, bool whole)
{
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint32_t slot = bench_scale((uint32_t)(random >> 32), ws);
        void *block = slots[slot];
        if (block != NULL) {
            if (whole)
                check(block, slot, true);
            free(block);
            slots[slot] = NULL;
        } else {
            uint32_t size = SIZE_LEAST + bench_scale((uint32_t)random, SIZE_MOST - SIZE_LEAST + 1);
            block = malloc(size);
            if (block == NULL)
                bench_fail("malloc(%u) failed", size);
            if (whole)
                memset(block, (unsigned char)slot, size);
            uint32_t word[2] = {slot, size};
            memcpy(block, word, sizeof word);
            slots[slot] = block;
        }
    }
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 3,
        "[ITERATIONS] [WS] [SEED]\n  random malloc and free of 16-1024 B over WS slots (default 10000000 8192 42)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 10000000, 0, UINT64_MAX);
    uint32_t ws = (uint32_t)bench_argument(argc, argv, 2, "WS", 8192, 1, SLOTS_MOST);
    uint64_t seed = bench_argument(argc, argv, 3, "SEED", 42, 0, UINT64_MAX);
    bool whole = bench_verify_wanted();
    struct bench_run bench;

    bench_begin(&bench, "random_mixed");
    if (whole)
        run(iterations, ws, bench_seed(seed, 0), true);
    else
        run(iterations, ws, bench_seed(seed, 0), false);
    bench_end(&bench, iterations);

    for (uint32_t slot = 0; slot < ws; slot++)
        if (slots[slot] != NULL) {
            check(slots[slot], slot, whole);
            free(slots[slot]);
        }
    bench_report(&bench);
    return 0;
}
