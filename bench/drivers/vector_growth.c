/*
 * Growing vectors: LIVE at a time. A full vector grows by a factor of one and a half or two, until it reaches its final
 * length of 64 B to LARGEST_KIB (equally many of each power of two). MODE says how vectors grow: by realloc, by a new
 * block, a copy and a free, or half of the vectors each way. Each step fills a random vector. Its contents are checked
 * at the end.
 */
#include "common.h"

enum { SLOTS_MOST = 1 << 16, SHORTEST = 64, STRIDE = 64 };
enum mode { BY_REALLOC, BY_COPY, BOTH };

static const char *const mode_names[] = { "realloc", "copy", "both", NULL };

struct vector {
    unsigned char *data;
    size_t filled, wanted;
    unsigned char mark;
    bool by_half, copies;
};

static struct vector vectors[SLOTS_MOST];
static uint64_t operations, copied;

static unsigned char mark_at(const struct vector *vector, size_t at)
{
    return (unsigned char)(vector->mark + at / STRIDE);
}

static void vector_fill(struct vector *vector, size_t capacity)
{
    if (vector->data == NULL)
        bench_fail("%zu bytes failed", capacity);
    for (; vector->filled < capacity; vector->filled += STRIDE)
        vector->data[vector->filled] = mark_at(vector, vector->filled);
}

static void vector_begin(struct vector *vector, uint64_t random, uint32_t octaves, enum mode mode)
{
    size_t octave = (size_t)SHORTEST << bench_scale((uint32_t)random, octaves);
    vector->wanted = octave + bench_scale((uint32_t)(random >> 32), (uint32_t)octave);
    vector->mark = (unsigned char)(random >> 24);
    vector->by_half = random >> 63 != 0;
    vector->copies = mode == BY_COPY || (mode == BOTH && (random >> 62 & 1) != 0);
    vector->filled = 0;
    vector->data = malloc(SHORTEST);
    operations++;
    vector_fill(vector, SHORTEST);
}

static void vector_grow(struct vector *vector)
{
    /* Lengths are multiples of STRIDE. */
    size_t capacity = vector->filled + (vector->by_half ? vector->filled / 2 : vector->filled);
    capacity = (capacity + STRIDE - 1) / STRIDE * STRIDE;
    if (vector->copies) {
        unsigned char *old = vector->data;
        vector->data = malloc(capacity);
        if (vector->data != NULL)
            memcpy(vector->data, old, vector->filled);
        free(old);
        operations += 2;
    } else {
        vector->data = realloc(vector->data, capacity);
        operations++;
    }
    copied += vector->filled;
    vector_fill(vector, capacity);
}

static void vector_end(struct vector *vector)
{
    if (vector->data == NULL)
        return;
    for (size_t at = 0; at < vector->filled; at += STRIDE)
        if (vector->data[at] != mark_at(vector, at))
            bench_fail("a vector of %zu bytes lost its contents at byte %zu", vector->filled, at);
    free(vector->data);
    vector->data = NULL;
    operations++;
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 5,
        "[STEPS] [LIVE] [LARGEST_KIB] [MODE] [SEED]\n"
        "  vectors of 64 B to LARGEST_KIB that grow by MODE realloc, copy or both (default 20000 32 4096 both 42)");
    uint64_t steps = bench_argument(argc, argv, 1, "STEPS", 20000, 0, UINT64_MAX);
    uint32_t live = (uint32_t)bench_argument(argc, argv, 2, "LIVE", 32, 1, SLOTS_MOST);
    uint64_t largest = bench_argument(argc, argv, 3, "LARGEST_KIB", 4096, 1, 1 << 20) * 1024;
    enum mode mode = (enum mode)bench_choice(argc, argv, 4, "MODE", BOTH, mode_names);
    uint64_t state = bench_seed(bench_argument(argc, argv, 5, "SEED", 42, 0, UINT64_MAX), 0);
    uint32_t octaves = 0;
    struct bench_run bench;

    while ((uint64_t)SHORTEST << octaves < largest)
        octaves++;
    bench_begin(&bench, "vector_growth");
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t random = bench_random(&state);
        struct vector *vector = &vectors[bench_scale((uint32_t)(bench_random(&state) >> 32), live)];
        if (vector->data != NULL && vector->filled < vector->wanted) {
            vector_grow(vector);
        } else {
            vector_end(vector);
            vector_begin(vector, random, octaves, mode);
        }
    }
    bench_end(&bench, operations);

    for (uint32_t slot = 0; slot < live; slot++)
        vector_end(&vectors[slot]);
    bench_extra(&bench, "grown_bytes", copied);
    bench_report(&bench);
    return 0;
}
