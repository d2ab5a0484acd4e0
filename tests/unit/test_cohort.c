/* Protects front/cohort.h: which sites' blocks count as long-lived, by lives of memory, and what such a block is. */
#include "heaps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/cohort.h"
#include "front/fast.h"
#include "front/front.h"
#include "front/within.h"

/* ---- The rule ---- */

static void test_ages(void **state)
{
    static const struct {
        uint32_t ended[COHORT_AGES];
        uint32_t old;
    } rows[] = {
        { { 0 }, 0 },
        { { 1 }, 4096 },
        { { [11] = 1 }, 4096 },
        { { [12] = 1 }, 8192 },
        { { [12] = 1, [13] = 1 }, 8192 },
        { { [12] = 1, [13] = 2 }, 16384 },
        { { [0] = 3, [12] = 1, [13] = 2 }, 4096 },
        { { [0] = 3, [29] = 3 }, 4096 },
        { { [0] = 3, [29] = 4 }, UINT32_C(1) << 30 },
        { { [0] = UINT32_MAX, [14] = UINT32_MAX, [15] = UINT32_MAX }, 32768 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(cohort_old_age(rows[i].ended), rows[i].old);
    assert_int_equal(cohort_age_index(0), 0);
    assert_int_equal(cohort_age_index(1), 1);
    assert_int_equal(cohort_age_index(4095), 12);
    assert_int_equal(cohort_age_index(4096), 13);
    assert_int_equal(cohort_age_index(UINT32_MAX), 29);
}

static void test_rule(void **state)
{
    static const struct {
        struct cohort_evidence evidence;
        bool was, is;
    } rows[] = {
        { { 0, 0 }, false, false },  { { 7, 0 }, false, false }, { { 8, 0 }, false, true },
        { { 8, 2 }, false, true },   { { 8, 3 }, false, false }, { { 24, 8 }, false, true },
        { { 23, 8 }, false, false }, { { 8, 8 }, true, true },   { { 8, 9 }, true, false },
    };
    struct cohort_evidence evidence = { 0, 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(cohort_is_long(rows[i].evidence, rows[i].was), rows[i].is);
    for (unsigned i = 0; i < 32; i++)
        evidence = cohort_add(evidence, true);
    assert_int_equal(evidence.old, 32);
    for (unsigned i = 0; i < 8; i++)
        evidence = cohort_add(evidence, false);
    assert_int_equal(evidence.old, 16);
    assert_int_equal(evidence.young, 8);
    assert_false(cohort_watches(4, 0, evidence));
    assert_true(cohort_watches(5, 0, evidence));
    evidence.young = 1;
    assert_true(cohort_watches(1, 0, evidence));
    assert_true(cohort_watches(1, -1, evidence));
    assert_true(cohort_watches(1, 7, evidence));
    assert_false(cohort_watches(1, 8, evidence));
    assert_false(cohort_watches(100, 80, evidence));
    assert_true(cohort_watches(101, 80, evidence));
}

/* ---- Lives ---- */

/* One call in `every` is of the site and the size. Its block is freed at the end of a phase, `phases` later (0: its
 * own), or after `calls`. From the phase `turn` on the first flow lives as the last does. Before the first phase 5,000
 * other sites make `others` calls. */
struct flow {
    unsigned every, site;
    size_t size;
    unsigned phases, calls;
};
enum { FLOWS = 3 };
struct life {
    const char *name;
    struct flow flows[FLOWS];
    unsigned phases, calls, turn;
    unsigned others;
    unsigned became[2], ended[2]; /* golden: the phases, from 1, in which sites 1 and 2 became long, and no longer */
};

static const struct life lives[] = {
    { "one in 40 lives longer", { { 40, 1, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 16, 200000, 0, 0, { 2, 0 }, { 0, 0 } },
    { "all die with their phase", { { 40, 1, 256, 0, 0 }, { 1, 2, 256, 0, 0 } }, 12, 200000, 0, 0, { 0, 0 }, { 0, 0 } },
    { "all live three phases", { { 40, 1, 256, 3, 0 }, { 1, 2, 256, 3, 0 } }, 12, 50000, 0, 0, { 0, 0 }, { 0, 0 } },
    { "one site for all", { { 40, 2, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 12, 200000, 0, 0, { 0, 0 }, { 0, 0 } },
    { "one in 2,000", { { 2000, 1, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 16, 200000, 0, 0, { 10, 0 }, { 0, 0 } },
    { "after many", { { 40, 1, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 20, 200000, 0, 1000000, { 8, 7 }, { 0, 8 } },
    { "half", { { 2, 1, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 12, 100000, 0, 0, { 2, 0 }, { 0, 0 } },
    { "too little memory", { { 40, 1, 32, 3, 0 }, { 1, 2, 32, 0, 0 } }, 400, 4000, 0, 0, { 0, 0 }, { 0, 0 } },
    { "turns brief", { { 40, 1, 256, 3, 0 }, { 1, 2, 256, 0, 0 } }, 24, 200000, 10, 0, { 2, 0 }, { 11, 0 } },
    { "turns long", { { 40, 1, 256, 0, 0 }, { 1, 2, 256, 0, 0 }, { .phases = 3 } }, 24, 200000, 10, 0, { 18 }, { 0 } },
    { "brief by calls", { { 40, 1, 100, 0, 400000 }, { 1, 2, 100, 0, 10 } }, 12, 200000, 0, 0, { 1, 0 }, { 0, 0 } },
    { "large blocks", { { 40, 1, 20000, 3, 0 }, { 1, 2, 20000, 0, 0 } }, 100, 3000, 0, 0, { 13, 0 }, { 0, 0 } },
};

static const struct life *life;

/* Blocks of a flow, oldest first, each with the number of the call after which it goes. */
struct queue {
    struct {
        void *block;
        size_t due;
    } *slots;
    size_t first, count, capacity;
};

static uint32_t key_of(unsigned site) { return cohort_key((const void *)((uintptr_t)0x400000 + site * 0x35)); }

static void *call(size_t size, unsigned site)
{
    uint32_t key = key_of(site);
    void *block = cohort_calls(key) ? front_malloc_cohort(size, key, NULL) : NULL;

    block = block ? block : front_malloc(size);
    assert_non_null(block);
    return block;
}

static bool is_long(unsigned site)
{
    return atomic_load(&cohort_long[cohort_place(key_of(site))]) == key_of(site);
}

static void push(struct queue *queue, void *block, size_t due)
{
    size_t at = (queue->first + queue->count++) % queue->capacity;

    assert_true(queue->count <= queue->capacity);
    queue->slots[at].block = block;
    queue->slots[at].due = due;
}

static void pop_due(struct queue *queue, size_t now)
{
    while (queue->count && queue->slots[queue->first].due <= now) {
        front_free(queue->slots[queue->first].block);
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
    }
}

static void live(void)
{
    struct queue queues[FLOWS];
    unsigned became[2] = { 0 }, ended[2] = { 0 };
    size_t now = 0;

    life = &lives[core_row];
    core_begin_thread();
    for (unsigned i = 0; i < FLOWS; i++) {
        queues[i] = (struct queue){ .capacity = (size_t)life->calls * 5 };
        queues[i].slots = calloc(queues[i].capacity, sizeof *queues[i].slots);
        assert_non_null(queues[i].slots);
    }
    for (unsigned i = 0; i < life->others; i++)
        front_free(call(48, 100 + i % 5000));
    for (unsigned phase = 1; phase <= life->phases; phase++) {
        for (unsigned i = 0; i < life->calls; i++, now++) {
            unsigned number = 0, as;
            while (i % life->flows[number].every != 0)
                number++;
            as = number == 0 && life->turn && phase >= life->turn ? FLOWS - 1 : number;
            push(&queues[as], call(life->flows[number].size, life->flows[number].site),
                 life->flows[as].calls ? now + life->flows[as].calls
                                       : (size_t)(phase + life->flows[as].phases) * life->calls - 1);
            if (life->flows[as].calls || i + 1 == life->calls)
                for (unsigned queue = 0; queue < FLOWS; queue++)
                    pop_due(&queues[queue], now);
        }
        for (unsigned site = 1; site <= 2; site++) {
            if (is_long(site) && !became[site - 1])
                became[site - 1] = phase;
            if (!is_long(site) && became[site - 1] && !ended[site - 1])
                ended[site - 1] = phase;
        }
    }
    print_message("%s: became %u %u, ended %u %u\n", life->name, became[0], became[1], ended[0], ended[1]);
    assert_memory_equal(became, life->became, sizeof became);
    assert_memory_equal(ended, life->ended, sizeof ended);
    for (unsigned i = 0; i < FLOWS; i++) {
        pop_due(&queues[i], SIZE_MAX);
        free(queues[i].slots);
    }
    heaps_check();
}

static void test_lives(void **state)
{
    (void)state;
    core_run_each(live, sizeof lives / sizeof lives[0]);
}

/* ---- Blocks ---- */

static struct heap *owner_of(const void *block)
{
    assert_true(window_contains(block));
    return atomic_load(&slab_of(block)->owner);
}

/* Makes the site long, as if it had been learnt. */
static void make_long(unsigned site)
{
    atomic_store(&cohort_long[cohort_place(key_of(site))], key_of(site));
}

static void test_block(void)
{
    static const size_t sizes[] = { 0, 1, 100, 5000, 70000, HAK_MIB };
    void *block, *moved;

    core_begin_thread();
    make_long(7);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        errno = 4711;
        block = call(sizes[i], 7);
        memset(block, 1, sizes[i]);
        assert_int_equal(errno, 4711);
        assert_int_equal(owner_of(block)->kind, HEAP_LONG);
        assert_int_equal(window_page_map()[window_unit(block)], CLASS_NONE);
        assert_null(front_heap_of(block));
        assert_int_equal(front_usable_size(block, "test"), front_good_size(sizes[i]));
        front_free_sized(block, sizes[i], 1, "test");
    }
    /* It moves within the heap, and out of it when it becomes huge. */
    block = call(100, 7);
    memset(block, 7, 100);
    moved = front_realloc(block, 1000, "test");
    assert_int_equal(owner_of(moved)->kind, HEAP_LONG);
    assert_int_equal(((char *)moved)[99], 7);
    moved = front_realloc(moved, 2 * HAK_MIB, "test");
    assert_false(window_contains(moved));
    front_free(moved);
    block = call(HAK_MIB + 1, 7);
    assert_false(window_contains(block));
    front_free(block);
    assert_int_equal(owner_of(block = call(100, 8))->kind, HEAP_THREAD);
    front_free(block);
    heaps_check();
}

/* A scope's blocks are the scope's, and teach nothing. */
static void test_scope(void)
{
    struct scope *scope;
    void *block;

    core_begin_thread();
    make_long(7);
    assert_non_null(scope = scope_new("tenant", NULL, 0));
    assert_int_equal(within_enter(scope), 0);
    for (unsigned i = 0; i < 1000; i++) {
        block = call(100, 7);
        assert_ptr_equal(owner_of(block), scope->heap);
        front_free(block);
    }
    within_leave(scope);
    for (const struct heap *heap = registry.heaps; heap; heap = heap->next)
        assert_int_not_equal(heap->kind, HEAP_LONG);
    block = call(100, 7);
    assert_int_equal(owner_of(block)->kind, HEAP_LONG);
    front_free(block);
}

/* Any number of sites, wrong ones among them, and sites that share a place. */
static void test_many_sites(void)
{
    void *blocks[64] = { NULL };

    core_begin_thread();
    for (unsigned i = 0; i < 2000000; i++) {
        uint32_t key = cohort_key((const void *)(i % 3 ? (uintptr_t)i % 10000 * 8 : UINTPTR_MAX - i % 5));
        void *block = cohort_calls(key) ? front_malloc_cohort(48, key, NULL) : NULL;
        front_free(blocks[i % 64]);
        blocks[i % 64] = block ? block : front_malloc(48);
    }
    for (unsigned i = 0; i < 64; i++)
        front_free(blocks[i]);
    heaps_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ages), cmocka_unit_test(test_rule), cmocka_unit_test(test_lives),
        core_unit_test(test_block),  core_unit_test(test_scope),  core_unit_test(test_many_sites),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
