/*
 * json, mir, mixed and string-builder: the source documents' scenarios, each block freed before the next one is
 * allocated. So a scenario needs the memory of one block of each size, and all further faults are the allocator's.
 *
 *   json            1,000 blocks of 64 KiB an iteration, each page written
 *   mir             100 blocks of 256 KiB, each page written
 *   mixed           1,000 blocks of 16 B, 512 B, 8 KiB, 128 KiB and 1 KiB in turn, each page written
 *   string-builder  1,000 strings, which begin with 8 B and double by realloc to 64 B
 *
 * With BENCH_VERIFY=1, blocks check themselves.
 */
#include "documents.h"
#include "scenario.h"

enum { STRINGS = 1000, STRING_LEAST = 8, STRING_MOST = 64 };

/* ---- The patterns ---- */

static void begin_pattern(enum pattern_name name)
{
    pattern = &patterns[name];
    held = 1;
    touch = TOUCH_PAGES;
    verify = bench_verify_wanted();
}

static void iterate_pattern(struct scenario_run *run, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++)
        whole_list();
    run->operations += 2 * iterations * pattern->blocks;
}

static void iterate_json(struct scenario_run *run, uint64_t iterations)
{
    begin_pattern(PATTERN_JSON);
    iterate_pattern(run, iterations);
}

static void iterate_mir(struct scenario_run *run, uint64_t iterations)
{
    begin_pattern(PATTERN_MIR);
    iterate_pattern(run, iterations);
}

static void iterate_mixed(struct scenario_run *run, uint64_t iterations)
{
    begin_pattern(PATTERN_MIXED);
    iterate_pattern(run, iterations);
}

static unsigned allocated_by_pattern(uint64_t iterations, struct pool_allocated rows[SCENARIO_SIZES_MOST])
{
    for (unsigned i = 0; i < pattern->sizes; i++)
        rows[i] = (struct pool_allocated){ pattern->size[i], iterations * pattern->blocks / pattern->sizes };
    return pattern->sizes;
}

static void nothing_left(struct scenario_run *run)
{
    (void)run;
}

/* ---- The strings ---- */

static void string_check(const char *string, size_t length, char letter)
{
    for (size_t i = 0; i < length; i++)
        if (string[i] != letter)
            bench_fail("string %p of %zu letters lost its contents", (const void *)string, length);
}

static void iterate_strings(struct scenario_run *run, uint64_t iterations)
{
    bool check = bench_verify_wanted();

    for (uint64_t i = 0; i < iterations * STRINGS; i++) {
        char letter = scenario_letter(run->serial++);
        char *string = NULL;
        for (size_t size = STRING_LEAST, length = 0; size <= STRING_MOST; length = size, size *= 2) {
            string = scenario_resize(run, string, size);
            if (check)
                string_check(string, length, letter);
            memset(string + length, letter, size - length);
        }
        if (check)
            string_check(string, STRING_MOST, letter);
        scenario_free(run, string);
    }
}

static unsigned allocated_strings(uint64_t iterations, struct pool_allocated rows[SCENARIO_SIZES_MOST])
{
    unsigned sizes = 0;
    size_t room = 0; /* of the string's block: realloc leaves a string in it as long as it fits */

    for (size_t size = STRING_LEAST; size <= STRING_MOST; size *= 2) {
        if (size <= room)
            continue;
        room = pool_block_size(size);
        rows[sizes++] = (struct pool_allocated){ size, iterations * STRINGS };
    }
    return sizes;
}

const struct scenario scenario_json = {
    "json", "the documents' 1,000 blocks of 64 KiB an iteration, each page written", 100, iterate_json, nothing_left,
    allocated_by_pattern
};
const struct scenario scenario_mir = {
    "mir", "the documents' 100 blocks of 256 KiB an iteration, each page written", 100, iterate_mir, nothing_left,
    allocated_by_pattern
};
const struct scenario scenario_mixed = {
    "mixed", "the documents' 1,000 blocks of 16 B, 512 B, 8 KiB, 128 KiB and 1 KiB in turn an iteration", 100,
    iterate_mixed, nothing_left, allocated_by_pattern
};
const struct scenario scenario_string_builder = {
    "string-builder", "the documents' strings of 8-64 B: 1,000 an iteration, which double by realloc", 1000,
    iterate_strings, nothing_left, allocated_strings
};
