/* mixed-octaves: blocks of 16 B to 1 MiB, all octaves equally likely. Of eight blocks, five live until 16 or more
 * others have come; two take one of 128 places, and one takes one of 192, until another block takes it. */
#include "scenario.h"

enum { SIZE_LEAST = 16, SIZE_OCTAVES = 16, SHORT_SLOTS = 16, MIDDLE_SLOTS = 128, LONG_SLOTS = 192 };

static void *recent[SHORT_SLOTS];
static void *middle[MIDDLE_SLOTS];
static void *lasting[LONG_SLOTS];

static void **place(struct scenario_run *run)
{
    uint64_t random = bench_random(&run->random);
    uint32_t bits = (uint32_t)random;
    switch (random >> 61) {
    case 0:
        return &lasting[bench_scale(bits, LONG_SLOTS)];
    case 1:
    case 2:
        return &middle[bench_scale(bits, MIDDLE_SLOTS)];
    default:
        return &recent[run->serial % SHORT_SLOTS];
    }
}

static void iterate(struct scenario_run *run, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++) {
        void **slot = place(run);
        run->operations += 1 + bench_block_free(*slot);
        *slot = bench_block_new(scenario_size(run, SIZE_LEAST, SIZE_OCTAVES), run->serial++);
    }
}

static void free_all(struct scenario_run *run, void **slots, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        run->operations += bench_block_free(slots[i]);
        slots[i] = NULL;
    }
}

static void finish(struct scenario_run *run)
{
    free_all(run, recent, SHORT_SLOTS);
    free_all(run, middle, MIDDLE_SLOTS);
    free_all(run, lasting, LONG_SLOTS);
}

const struct scenario scenario_mixed_octaves = {
    "mixed-octaves", "16 B-1 MiB, each octave as likely as another, mixed lifetimes; ITERATIONS blocks", 400000,
    iterate, finish, NULL
};
