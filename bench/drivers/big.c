/* Big blocks: LIVE slots of blocks of MIN_KIB..MAX_KIB, replaced at random. Writes every page of a block unless TOUCH
 * is 0. */
#include "common.h"

enum { SLOTS_MOST = 4096 };

static void *slots[SLOTS_MOST];

/* With TOUCH 0, only the first and the last word of a block show whether it is intact. */
static void *bare_new(size_t size)
{
    char *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    memcpy(block, &size, sizeof size);
    memcpy(block + size - sizeof size, &size, sizeof size);
    return block;
}

static unsigned bare_free(char *block)
{
    if (block == NULL)
        return 0;
    size_t head, tail;
    memcpy(&head, block, sizeof head);
    memcpy(&tail, block + head - sizeof tail, sizeof tail);
    if (head != tail)
        bench_fail("block %p of %zu bytes lost its contents", (void *)block, head);
    free(block);
    return 1;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 6,
                "[ITERATIONS] [LIVE] [MIN_KIB] [MAX_KIB] [SEED] [TOUCH]\n"
                "  replaces random blocks of 1-16 MiB (default 2000 20 1024 16384 42 1); TOUCH 0 writes two words a "
                "block only");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 2000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 20, 1, SLOTS_MOST);
    uint32_t least = (uint32_t)bench_argument(argc, argv, 3, "MIN_KIB", 1024, 1, 1 << 24);
    uint32_t most = (uint32_t)bench_argument(argc, argv, 4, "MAX_KIB", 16384, least, 1 << 24);
    uint64_t state = bench_seed(bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX), 0);
    bool touch = bench_argument(argc, argv, 6, "TOUCH", 1, 0, 1) != 0;
    uint64_t operations = 0;
    struct bench_run bench;

    bench_begin(&bench, "big");
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint32_t slot = bench_scale((uint32_t)(random >> 32), live);
        /* Whole KiB less a word, so that no size is a multiple of the page. */
        size_t size = ((size_t)least + bench_scale((uint32_t)random, most - least + 1)) * 1024 - 8;
        operations += touch ? bench_block_free(slots[slot]) : bare_free(slots[slot]);
        slots[slot] = touch ? bench_block_new(size, i) : bare_new(size);
        operations++;
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++) {
        if (touch)
            bench_block_free(slots[slot]);
        else
            bare_free(slots[slot]);
    }
    bench_report(&bench);
    return 0;
}
