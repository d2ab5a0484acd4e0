/* Large blocks: LIVE slots of blocks of MIN_KIB to MAX_KIB, all octaves equally likely, replaced at random. Writes a
 * random number of a block's first pages, because programs ask for more than they fill. */
#include "common.h"

enum { SLOTS_MOST = 1 << 16, PAGE_STEP = 4096, MARK_WORDS = 2, MARK_BYTES = MARK_WORDS * sizeof(uint64_t) };

static struct slot {
    char *block;
    size_t written; /* bytes; marks stand at the start of each 4 KiB */
    uint64_t serial;
} slots[SLOTS_MOST];

static void marks_of(const struct slot *slot, size_t at, uint64_t marks[MARK_WORDS])
{
    marks[0] = slot->serial * UINT64_C(0x9E3779B97F4A7C15) + at;
    marks[1] = ~marks[0];
}

static uint64_t slot_free(struct slot *slot)
{
    if (slot->block == NULL)
        return 0;
    for (size_t at = 0; at + MARK_BYTES <= slot->written; at += PAGE_STEP) {
        uint64_t marks[MARK_WORDS];
        marks_of(slot, at, marks);
        if (memcmp(slot->block + at, marks, sizeof marks) != 0)
            bench_fail("block %p lost its contents, %zu of %zu written bytes from its beginning", (void *)slot->block,
                       at, slot->written);
    }
    free(slot->block);
    slot->block = NULL;
    return 1;
}

static void slot_fill(struct slot *slot, size_t size, size_t written, uint64_t serial)
{
    slot->block = malloc(size);
    if (slot->block == NULL)
        bench_fail("malloc(%zu) failed", size);
    slot->written = written;
    slot->serial = serial;
    for (size_t at = 0; at + MARK_BYTES <= written; at += PAGE_STEP) {
        uint64_t marks[MARK_WORDS];
        marks_of(slot, at, marks);
        memcpy(slot->block + at, marks, sizeof marks);
    }
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 6,
                "[ITERATIONS] [LIVE] [MIN_KIB] [MAX_KIB] [SEED] [TOUCH]\n"
                "  replaces random blocks of MIN_KIB to MAX_KIB, of which a random part of up to TOUCH per cent is "
                "written\n  (default 400000 64 32 1024 42 50)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 400000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 64, 1, SLOTS_MOST);
    uint64_t least = bench_argument(argc, argv, 3, "MIN_KIB", 32, 1, 1 << 20);
    uint64_t most = bench_argument(argc, argv, 4, "MAX_KIB", 1024, least, 1 << 21);
    uint64_t state = bench_seed(bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t touch = bench_argument(argc, argv, 6, "TOUCH", 50, 0, 100);
    uint32_t octaves = 1;
    uint64_t operations = 0;
    struct bench_run bench;

    while (least << octaves < most)
        octaves++;
    bench_begin(&bench, "large");
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint32_t slot = bench_scale((uint32_t)(random >> 32), live);
        uint64_t from = least * 1024 << bench_scale((uint32_t)random, octaves);
        uint64_t upto = 2 * from < most * 1024 ? 2 * from : most * 1024;
        random = bench_random(&state);
        size_t size = from + bench_scale((uint32_t)random, (uint32_t)(upto - from) + 1);
        size_t touched = (size - MARK_BYTES) * touch / 100;
        size_t written = MARK_BYTES + bench_scale((uint32_t)(random >> 32), (uint32_t)touched + 1);
        operations += 1 + slot_free(&slots[slot]);
        slot_fill(&slots[slot], size, written, i);
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        slot_free(&slots[slot]);
    bench_report(&bench);
    return 0;
}
