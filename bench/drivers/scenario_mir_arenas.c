/*
 * mir-arenas: the middle end of a compiler. For each function it allocates two arenas of 64 KiB to 1 MiB and fills a
 * part of them with instructions. Beside them it keeps nodes: small blocks, and lists of uses that grow by realloc.
 * Passes replace a third of the nodes. At the end of the function the nodes are freed in the order of allocation, then
 * the arenas. One node in 64 belongs to the module and lives on for a few hundred functions.
 */
#include "scenario.h"

enum {
    ARENAS = 2,
    ARENA_LEAST = 64 * 1024,
    ARENA_OCTAVES = 4,
    INSTRUCTION_LEAST = 32,
    INSTRUCTION_MOST = 160,
    NODES_LEAST = 256,
    NODES_OCTAVES = 4,
    NODES_MOST = NODES_LEAST << NODES_OCTAVES,
    NODE_LEAST = 16,
    NODE_OCTAVES = 4,
    LISTS = 48,
    LIST_FIRST = 4,
    LIST_LEAST = 4,
    LIST_OCTAVES = 6,
    PASSES = 3,
    MODULE_SLOTS = 2048,
    MODULE_SHARE = 64
};

struct arena {
    char *memory;
    size_t size, used;
};

struct list {
    uint64_t *uses;
    uint32_t count;
};

static struct arena arenas[ARENAS];
static struct list lists[LISTS];
static void *nodes[NODES_MOST];
static void *module_nodes[MODULE_SLOTS];

/* Each instruction begins with its own size and the arena's, which lead the check to the next instruction. */
static void arena_fill(struct scenario_run *run, struct arena *arena)
{
    arena->size = scenario_size(run, ARENA_LEAST, ARENA_OCTAVES);
    arena->memory = scenario_new(run, arena->size);
    arena->used = 0;
    size_t wanted = arena->size / 4 + scenario_between(run, 0, (uint32_t)(arena->size / 2));
    while (arena->used + INSTRUCTION_MOST <= wanted) {
        uint64_t size = (uint64_t)8 * scenario_between(run, INSTRUCTION_LEAST / 8, INSTRUCTION_MOST / 8);
        uint64_t word = size | (uint64_t)arena->size << 16;
        memcpy(arena->memory + arena->used, &word, sizeof word);
        arena->used += size;
    }
}

static void arena_free(struct scenario_run *run, struct arena *arena)
{
    size_t at = 0;
    while (at < arena->used) {
        uint64_t word;
        memcpy(&word, arena->memory + at, sizeof word);
        if (word >> 16 != arena->size || (word & 0xffff) < INSTRUCTION_LEAST)
            bench_fail("arena %p of %zu bytes lost its contents", (void *)arena->memory, arena->size);
        at += word & 0xffff;
    }
    if (at != arena->used)
        bench_fail("arena %p of %zu bytes lost its contents", (void *)arena->memory, arena->size);
    scenario_free(run, arena->memory);
}

static void list_build(struct scenario_run *run, struct list *list)
{
    uint32_t wanted = (uint32_t)scenario_size(run, LIST_LEAST, LIST_OCTAVES);
    uint32_t capacity = 0;
    list->uses = NULL;
    for (list->count = 0; list->count < wanted; list->count++) {
        if (list->count == capacity) {
            capacity = capacity == 0 ? LIST_FIRST : 2 * capacity;
            list->uses = scenario_resize(run, list->uses, capacity * sizeof *list->uses);
        }
        list->uses[list->count] = (uint64_t)wanted << 32 | list->count;
    }
}

static void list_free(struct scenario_run *run, struct list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->uses[i] != ((uint64_t)list->count << 32 | i))
            bench_fail("list %p of %u uses lost its contents", (void *)list->uses, list->count);
    scenario_free(run, list->uses);
}

static void *node_new(struct scenario_run *run)
{
    run->operations++;
    return bench_block_new(scenario_size(run, NODE_LEAST, NODE_OCTAVES), run->serial++);
}

static void compile_function(struct scenario_run *run)
{
    uint32_t count = (uint32_t)scenario_size(run, NODES_LEAST, NODES_OCTAVES);

    for (unsigned i = 0; i < ARENAS; i++)
        arena_fill(run, &arenas[i]);
    for (uint32_t i = 0; i < count; i++)
        nodes[i] = node_new(run);
    for (unsigned i = 0; i < LISTS; i++)
        list_build(run, &lists[i]);
    for (unsigned pass = 0; pass < PASSES; pass++) {
        for (uint32_t replaced = 0; replaced < count / 3; replaced++) {
            uint32_t i = scenario_between(run, 0, count - 1);
            run->operations += bench_block_free(nodes[i]);
            nodes[i] = node_new(run);
        }
    }
    for (unsigned i = 0; i < LISTS; i++)
        list_free(run, &lists[i]);
    for (uint32_t i = 0; i < count; i++) {
        void *node = nodes[i];
        if (i % MODULE_SHARE == 0) {
            uint32_t slot = scenario_between(run, 0, MODULE_SLOTS - 1);
            node = module_nodes[slot];
            module_nodes[slot] = nodes[i];
        }
        run->operations += bench_block_free(node);
    }
    for (unsigned i = 0; i < ARENAS; i++)
        arena_free(run, &arenas[i]);
}

static void iterate(struct scenario_run *run, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++)
        compile_function(run);
}

static void finish(struct scenario_run *run)
{
    for (unsigned slot = 0; slot < MODULE_SLOTS; slot++) {
        run->operations += bench_block_free(module_nodes[slot]);
        module_nodes[slot] = NULL;
    }
}

const struct scenario scenario_mir_arenas = {
    "mir-arenas", "arenas of 64 KiB-1 MiB and small nodes, freed function by function; ITERATIONS functions", 1500,
    iterate, finish, NULL
};
