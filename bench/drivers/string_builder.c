/* String builder: LIVE strings at a time, which begin with 8 B and double by realloc up to at most LONGEST bytes. One
 * operation is one malloc, realloc or free. */
#include "common.h"

enum { SLOTS_MOST = 1 << 16, SHORTEST = 8 };

static char *slots[SLOTS_MOST];
static uint32_t lengths[SLOTS_MOST];

static void string_free(uint32_t slot)
{
    for (uint32_t at = 0; at < lengths[slot]; at += SHORTEST)
        if (slots[slot][at] != (char)(slot + at))
            bench_fail("string %u: byte %u of %u changed", slot, at, lengths[slot]);
    free(slots[slot]);
    slots[slot] = NULL;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[ITERATIONS] [LONGEST] [LIVE] [SEED]\n"
                "  strings of 8 B to LONGEST, grown by realloc (default 2000000 64 64 42)");
    uint64_t iterations = bench_argument(argc, argv, 1, "ITERATIONS", 2000000, 0, UINT64_MAX);
    uint32_t longest = (uint32_t)bench_argument(argc, argv, 2, "LONGEST", 64, SHORTEST, 1 << 30);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 3, "LIVE", 64, 1, SLOTS_MOST);
    uint64_t state = bench_seed(bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t operations = 0;
    struct bench_run bench;

    bench_begin(&bench, "string_builder");
    for (uint64_t i = 0; i < iterations; i++) {
        uint64_t random = bench_random(&state);
        uint32_t slot = bench_scale((uint32_t)(random >> 32), live);
        uint32_t wanted = SHORTEST + bench_scale((uint32_t)random, longest - SHORTEST + 1);
        if (slots[slot] != NULL) {
            string_free(slot);
            operations++;
        }
        uint32_t capacity = SHORTEST;
        uint32_t length = 0;
        char *text, *longer = malloc(capacity);
        operations++;
        for (;;) {
            if (longer == NULL)
                bench_fail("%u bytes failed", capacity);
            text = longer;
            for (; length < capacity; length += SHORTEST)
                text[length] = (char)(slot + length);
            if (capacity >= wanted)
                break;
            capacity = capacity > longest / 2 ? longest : 2 * capacity;
            longer = realloc(text, capacity);
            operations++;
        }
        slots[slot] = text;
        lengths[slot] = capacity;
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        if (slots[slot] != NULL)
            string_free(slot);
    bench_report(&bench);
    return 0;
}
