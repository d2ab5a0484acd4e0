/*
 * What the scenarios of bench_allocators share. A scenario shows how one kind of program uses memory. Each has its own
 * file, scenario_NAME.c, and the same two entry points. One operation is one malloc, realloc or free.
 */
#ifndef BENCH_SCENARIO_H
#define BENCH_SCENARIO_H

#include "pool_figures.h"

struct scenario_run {
    uint64_t random;
    uint64_t operations;
    uint64_t serial; /* of the next object; an object's contents are made from its serial */
};

enum { SCENARIO_SIZES_MOST = 5 };

struct scenario {
    const char *name;
    const char *about;
    uint64_t iterations; /* the default */
    void (*iterate)(struct scenario_run *run, uint64_t iterations);
    /* Checks and frees what is left, outside the timed part. */
    void (*finish)(struct scenario_run *run);
    /* Puts the sizes that `iterations` allocated, and how many blocks of each, into the rows. Returns the number of
     * sizes. NULL for a scenario whose sizes depend on the seed. */
    unsigned (*allocated)(uint64_t iterations, struct pool_allocated rows[SCENARIO_SIZES_MOST]);
};

/* The source documents' own, which bench_allocators runs cold. */
extern const struct scenario scenario_json, scenario_mir, scenario_mixed, scenario_string_builder;
/* Patterns of lifetimes in programs of the same kinds. */
extern const struct scenario scenario_json_trees, scenario_mir_arenas, scenario_mixed_octaves, scenario_string_parts;

static inline void *scenario_resize(struct scenario_run *run, void *block, size_t size)
{
    block = block == NULL ? malloc(size) : realloc(block, size);
    if (block == NULL)
        bench_fail("%zu bytes failed", size);
    run->operations++;
    return block;
}

static inline void *scenario_new(struct scenario_run *run, size_t size)
{
    return scenario_resize(run, NULL, size);
}

static inline void scenario_free(struct scenario_run *run, void *block)
{
    free(block);
    run->operations++;
}

/* Uniform in [least, most]. */
static inline uint32_t scenario_between(struct scenario_run *run, uint32_t least, uint32_t most)
{
    return least + bench_scale((uint32_t)(bench_random(&run->random) >> 32), most - least + 1);
}

/* In [least, least << octaves), all octaves equally likely: many small sizes, few large ones. */
static inline size_t scenario_size(struct scenario_run *run, uint32_t least, unsigned octaves)
{
    uint64_t random = bench_random(&run->random);
    uint32_t from = least << bench_scale((uint32_t)(random >> 32), octaves);
    return from + bench_scale((uint32_t)random, from);
}

/* Writes a text of `length` bytes and a final 0. It consists of one letter, which the mark gives. */
static inline char scenario_letter(uint64_t mark)
{
    return (char)('!' + (mark * 37) % 94);
}

static inline void scenario_text_fill(char *text, size_t from, size_t length, uint64_t mark)
{
    memset(text + from, scenario_letter(mark), length - from);
    text[length] = '\0';
}

static inline void scenario_text_check(const char *text, size_t length, uint64_t mark)
{
    char letter = scenario_letter(mark);
    if (text[length] != '\0' ||
        (length > 0 && (text[0] != letter || text[length / 2] != letter || text[length - 1] != letter)))
        bench_fail("text %p of %zu letters lost its contents", (const void *)text, length);
}

#endif
