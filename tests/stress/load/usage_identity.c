/* Protects the allocator's own figures (observe/usage.h), compared after each step with what the test knows.
 *
 * usage_identity [--seed N]: compares the allocator's own figures (observe/usage.h) with what the test knows, after
 * each of many small steps: U1, live bytes, the rows of size classes, huge blocks, heaps, caches and purged memory.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <stdio.h>

#include "block.h"
#include "usage_check.h"

enum { BLOCKS = 4000, STEPS = 3000, THREADS = 3, ROWS = 256 };

static const char *const option_names[] = { "seed", NULL };
static struct block *blocks; /* BLOCKS of each thread */
static size_t live_at_start;
static uint64_t looks;

static size_t draw_size(struct chance *chance)
{
    return chance_is(chance, 985) ? chance_log(chance, 0, 64 * KIB) : chance_log(chance, 64 * KIB, 6 * MIB);
}

static void change_one(struct chance *chance, struct block *own)
{
    struct block *block = &own[chance_below(chance, BLOCKS)];
    size_t size = draw_size(chance);

    if (block->start != NULL)
        hak_free(block_release(block));
    else
        block_adopt(block, hak_malloc(size), size, 1, chance_next(chance));
}

/* The rows of size classes sum to the totals. */
static void check_rows(const char *when)
{
    struct usage_class rows[ROWS];
    struct usage usage = usage_read(when);
    size_t count = observe_usage_classes(rows, ROWS);
    size_t live = 0;

    CHECK(count <= ROWS, "%zu size classes", count);
    for (size_t i = 0; i < count; i++) {
        CHECK(rows[i].block_size > 0, "%s: row %zu has blocks of 0 bytes", when, i);
        CHECK(i == 0 || rows[i].block_size > rows[i - 1].block_size, "%s: row %zu is out of order", when, i);
        live += rows[i].live_blocks * rows[i].block_size;
    }
    CHECK(live == usage.live - usage.huge_live, "%s: rows have %zu live, the totals %zu without huge blocks", when,
          live, usage.live - usage.huge_live);
}

static void look(const char *when)
{
    usage_check(when, live_at_start);
    check_rows(when);
    looks++;
}

/* ---- Steps of one thread ---- */

static void step_through_calls(struct chance *chance)
{
    for (unsigned i = 0; i < STEPS; i++) {
        change_one(chance, blocks);
        if (chance_is(chance, 10))
            hak_collect(chance_is(chance, 300));
        if (chance_is(chance, 2))
            hak_thread_idle();
        look("after a call");
    }
}

static void step_through_huge(void)
{
    struct usage before = usage_read("before huge");
    struct block first = { 0 };
    struct block second = { 0 };
    struct usage with;

    block_adopt(&first, hak_malloc(3 * MIB), 3 * MIB, 1, 1);
    block_adopt(&second, hak_malloc(20 * MIB), 20 * MIB, 1, 2);
    with = usage_read("with huge");
    CHECK(with.huge_blocks == before.huge_blocks + 2, "%zu huge blocks, before %zu", with.huge_blocks,
          before.huge_blocks);
    CHECK(with.huge_live - before.huge_live == first.usable + second.usable, "huge live grew by %zu, not %zu",
          with.huge_live - before.huge_live, first.usable + second.usable);
    hak_free(block_release(&first));
    hak_free(block_release(&second));
    with = usage_read("after huge");
    CHECK(with.huge_blocks == before.huge_blocks && with.huge_live == before.huge_live, "huge blocks stay counted");
    look("after huge");
}

static void step_through_cache(void)
{
    struct usage usage;
    size_t returned;

    hak_collect(false);
    usage = usage_read("after collect");
    CHECK(usage.cached == 0, "%zu bytes are cached after collect in the only thread", usage.cached);
    for (unsigned i = 0; i < 30; i++)
        hak_free(hak_malloc(100));
    usage = usage_read("after malloc and free");
    CHECK(usage.cached > 0, "nothing is cached after frees");
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].start != NULL)
            hak_free(block_release(&blocks[i]));
    }
    look("after all is freed");
    returned = hak_collect(true);
    CHECK(returned > 0, "collect returned nothing though all blocks are free");
    usage = usage_read("after the purge");
    CHECK(usage.cached == 0 && usage.live == live_at_start, "cached %zu, live %zu", usage.cached, usage.live);
    CHECK(usage.purged + MIB >= usage.retained, "retained %zu, purged of that %zu", usage.retained, usage.purged);
    CHECK(hak_collect(true) == 0, "a second collect finds more to return");
    look("after the purge");
}

static void step_through_heap(struct chance *chance)
{
    hak_heap_t *heap = hak_heap_new();
    struct block own[200] = { { 0 } };

    CHECK(heap != NULL, "no heap");
    for (unsigned i = 0; i < 200; i++) {
        size_t size = draw_size(chance);
        block_adopt(&own[i], hak_heap_malloc(heap, size), size, 1, chance_next(chance));
        look("with a heap");
    }
    for (unsigned i = 0; i < 200; i++)
        block_release(&own[i]);
    hak_heap_destroy(heap);
    look("after the heap");
}

/* ---- Several threads: the figures are exact whenever all threads stand still ---- */

static pthread_barrier_t barrier; /* for the threads and main */
static atomic_bool running;

static void *run_thread(void *argument)
{
    size_t index = (size_t)(uintptr_t)argument;
    struct block *own = blocks + index * BLOCKS;
    struct block *neighbours = blocks + (index + 1) % THREADS * BLOCKS;
    struct chance chance;

    chance_start(&chance, 100 + index);
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned k = 0; k < 500; k++)
            change_one(&chance, own);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier); /* main has read the figures */
        for (unsigned k = 0; k < 500; k++)
            change_one(&chance, neighbours); /* also frees what another thread allocated */
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void stand_still_often(void)
{
    pthread_t threads[THREADS];

    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        threads[i] = support_thread(run_thread, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < 40; i++) {
        pthread_barrier_wait(&barrier);
        look("while threads stand still");
        pthread_barrier_wait(&barrier);
    }
    for (size_t i = 0; i < THREADS; i++)
        support_join(threads[i]);
    look("after the threads");
    pthread_barrier_destroy(&barrier);
}

/* Reading while others allocate is allowed. Checks what is exact even then. */
static void *run_reader(void *unused)
{
    (void)unused;
    while (atomic_load(&running)) {
        struct usage_class rows[ROWS];
        struct usage usage;

        observe_usage(&usage);
        CHECK(usage.mapped > 0, "nothing is mapped");
        CHECK(observe_usage_classes(rows, ROWS) <= ROWS, "too many size classes");
    }
    return NULL;
}

static void read_while_running(struct chance *chance)
{
    pthread_t reader;

    atomic_store(&running, true);
    reader = support_thread(run_reader, NULL);
    for (unsigned i = 0; i < 50 * STEPS; i++)
        change_one(chance, blocks);
    atomic_store(&running, false);
    support_join(reader);
    look("after reading beside");
}

int main(int argc, char **argv)
{
    struct chance chance;

    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    blocks = support_map(THREADS * BLOCKS * sizeof *blocks);
    chance_start(&chance, 0);
    hak_free(hak_malloc(1));
    live_at_start = usage_read("at the start").live;
    CHECK(live_at_start == 0, "%zu bytes are live before anything is allocated", live_at_start);

    step_through_calls(&chance);
    step_through_huge();
    step_through_heap(&chance);
    step_through_cache();
    stand_still_often();
    read_while_running(&chance);
    printf("%llu looks, each with U1 and live exact\n", (unsigned long long)looks);
    return 0;
}
