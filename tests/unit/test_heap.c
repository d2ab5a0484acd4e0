/* Protects pool/heap.h: the warm pool, the order of a refill's sources, population, releases, first-class heaps. */
#include "heaps.h"

#include <string.h>

/* Constants of heap.c: slabs of a class handed out before the next is faulted in, and slabs that a stock keeps. */
enum { POPULATE_PROOF = 8, POPULATE_SHARE = 8, WARM_SHARE = 24 };

/* ---- Taking ---- */

static void test_take_order(void)
{
    struct heap *heap = heaps_begin();
    void *out[64];

    for (unsigned class = 1; class < CLASS_SPAN_1; class++) {
        size_t want = base_min(8, size_classes[class].blocks);
        assert_int_equal(heaps_take(heap, class, out, want), want);
        for (size_t i = 1; i < want; i++) /* the lowest address is popped first */
            assert_int_equal((char *)out[i - 1] - (char *)out[i], class_size(class));
        assert_ptr_equal(out[want - 1], slab_of(out[0])->start);
        heaps_check();
    }
}

/* A refill takes the free blocks of slabs in use before it carves a slab, even if they are fewer than wanted. */
static void test_partial_first(void)
{
    enum { BLOCKS = 64 };
    struct heap *heap = heaps_begin();
    void *out[3 * BLOCKS], *old[3];
    uint64_t carved;

    heaps_take_all(heap, CLASS_1024, out, 3 * BLOCKS);
    assert_int_equal(heap->body->counters.slabs_carved, 3);
    for (size_t i = 0; i < 3; i++) {
        old[i] = out[i * BLOCKS + 7];
        heaps_return(heap, CLASS_1024, (void *[]){ old[i] }, 1);
    }
    heaps_check();
    carved = heap->body->counters.slabs_carved;
    assert_int_equal(heaps_take(heap, CLASS_1024, out, 64), 3);
    assert_int_equal(heap->body->counters.slabs_carved, carved);
    for (size_t i = 0; i < 3; i++)
        assert_true(out[i] == old[0] || out[i] == old[1] || out[i] == old[2]);
    assert_int_equal(heaps_take(heap, CLASS_1024, out, 64), 64);
    assert_int_equal(heap->body->counters.slabs_carved, carved + 1);
    heaps_check();
}

static void test_out_of_memory(void)
{
    static void *out[20000];
    struct heap *heap;
    size_t got = 0, more;

    hak_options.memory_limit = 2 * HAK_MIB;
    heap = heaps_begin();
    while ((more = heaps_take(heap, CLASS_1024, out + got, 64)) != 0)
        got += more;
    assert_in_range(got, HAK_MIB / 1024, 2 * HAK_MIB / 1024);
    heaps_check();
    heaps_return(heap, CLASS_1024, out, 100);
    assert_int_equal(heaps_take(heap, CLASS_1024, out, 1), 1);
    heaps_check();
}

/* Taking blocks from a heap and returning them tells that a thread is active, which the purge thread waits for. */
static void test_tells_activity(void)
{
    struct heap *heap = heaps_begin();
    uint32_t before = registry_activity();
    void *block;

    assert_int_equal(heaps_take(heap, CLASS_1024, &block, 1), 1);
    assert_int_equal(registry_activity(), before + 1);
    assert_int_equal(registry_activity(), before + 1);
    heaps_return(heap, CLASS_1024, &block, 1);
    assert_int_equal(registry_activity(), before + 2);
}

/* ---- The warm pool ---- */

/* Gives the heap enough slabs for the one-unit stock's largest budget. */
static void own_slabs(struct heap *heap, unsigned slabs)
{
    static void *out[16];

    while (heap->slabs < slabs)
        heaps_take_all(heap, CLASS_4096, out, 16);
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);
}

/* The warm pool's budget doubles with each miss, so that few misses serve many slabs. */
static void test_warm_budget(void)
{
    struct heap *heap = heaps_begin();
    static const unsigned budgets[] = { 1, 2, 4, 8, 16, 16 };
    unsigned slabs = 0, hits, misses;
    void *out[1024];

    own_slabs(heap, 16 * WARM_SHARE);
    heap->body->filled[CLASS_64] = 1; /* proven, so the class does not use the sparse stock */
    hits = (unsigned)heap->body->counters.warm_hits;
    misses = (unsigned)heap->body->counters.warm_misses;
    for (size_t miss = 0; miss < sizeof budgets / sizeof budgets[0]; miss++)
        for (unsigned i = 0; i < budgets[miss]; i++) {
            heaps_take_all(heap, CLASS_64, out, 1024);
            slabs++;
            assert_int_equal(heap->body->counters.warm_misses, misses + miss + 1);
            assert_int_equal(heap->body->counters.warm_hits, hits + slabs - miss - 1);
            assert_int_equal(heap->body->warm[1].count, budgets[miss] - i - 1);
            assert_int_equal(heap->body->warm[1].budget, budgets[miss]);
        }
    heaps_check();
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);
    heaps_check();
}

/* The warm pool's budget is bounded by a share of the slabs in use. */
static void test_warm_share(void)
{
    struct heap *heap = heaps_begin();
    void *out[1024];

    heap->body->filled[CLASS_64] = 1;
    for (unsigned slab = 0; slab < 600; slab++) {
        uint32_t owned = heap->slabs;
        heaps_take_all(heap, CLASS_64, out, 1024);
        assert_int_equal(heap->slabs, owned + 1);
        assert_true(heap->body->warm[1].budget <= 1 + owned / WARM_SHARE);
    }
    assert_int_equal(heap->body->warm[1].budget, 16);
    heaps_check();
}

/* The warm pool keeps fewer of the longer slabs, and never more than the option allows. */
static void test_warm_bounds(void)
{
    struct heap *heap;
    void *out[64];

    hak_options.warm_pool = 3;
    heap = heaps_begin();
    for (unsigned class = 1; class < CLASS_SPAN_1; class++)
        for (unsigned i = 0; i < 12; i++) {
            heaps_take_all(heap, class, out, base_min(64, size_classes[class].blocks));
            for (unsigned number = 0; number < WARM_STOCKS; number++)
                assert_true(heap->body->warm[number].budget <= 3);
        }
    assert_int_equal(heap->body->warm[1].budget, 3);
    assert_int_equal(heap->body->warm[3].budget, 2);
    heaps_check();
}

/* P6: a class of small blocks takes sparse units until it has filled a slab, and then dense ones. */
static void test_sparse_and_dense(void)
{
    struct heap *heap = heaps_begin();
    struct slab *full, *few, *next;
    void *out[1024], *one, *other;

    heaps_take_all(heap, CLASS_64, out, 1024); /* fills its slab */
    full = slab_of(out[0]);
    heaps_take_all(heap, CLASS_128, &one, 1);
    few = slab_of(one);
    heaps_take_all(heap, CLASS_256, &other, 1); /* keeps the SuperSlab in use */
    assert_true(full->dense && !few->dense);
    heaps_return(heap, CLASS_64, out, 1024);
    heaps_return(heap, CLASS_128, &one, 1);
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);

    heaps_take_all(heap, CLASS_512, &one, 1);
    assert_ptr_equal(slab_of(one), few);
    heaps_take_all(heap, CLASS_384, out, 1); /* sparse too: an untouched unit comes before a dense one */
    assert_ptr_not_equal(slab_of(out[0]), full);
    heaps_take_all(heap, CLASS_64, out + 1, 1); /* proven above */
    next = slab_of(out[1]);
    assert_ptr_equal(next, full);
    heaps_check();
}

/* Of the slabs that empty, WARM_FIRST units wait with the heap. */
static void test_release_keeps_few(void)
{
    enum { BLOCKS = 64, SLABS = 40 };
    static void *out[SLABS * BLOCKS];
    struct heap *heap = heaps_begin();

    heap->body->filled[CLASS_1024] = 1;
    heaps_take_all(heap, CLASS_1024, out, SLABS * BLOCKS);
    lock_acquire(&heap->lock);
    while (heap->body->warm[1].count) { /* empty the stock, and leave its budget high */
        void *spare[BLOCKS];
        bool zero;
        assert_int_equal(heap_take_blocks(heap, CLASS_1024, spare, BLOCKS, &zero), BLOCKS);
    }
    lock_release(&heap->lock);
    for (size_t i = 0; i < SLABS; i++) {
        heaps_return(heap, CLASS_1024, out + i * BLOCKS, BLOCKS);
        assert_int_equal(heap->body->warm[1].count, base_min(i + 1, WARM_FIRST));
        heaps_check();
    }
    assert_int_equal(heap->body->counters.slabs_released, SLABS);
    assert_int_equal(shared_pool.units_dirty, SLABS - WARM_FIRST);
    /* A slab of the warm pool is not known to be zero, and the page map no longer has its class. */
    assert_false(heap->body->warm[1].stack->zero);
    assert_int_equal(window_page_map()[window_unit(heap->body->warm[1].stack->start)], CLASS_NONE);
}

/* ---- Population ---- */

/* Checks the `count` slabs that were just taken: each stretch of at least four units was faulted in, with one call. */
static uint64_t check_populated(const struct slab *first, const struct slab *warm, size_t count)
{
    uint64_t calls = 0;

    while (count > 0) {
        const struct slab *start = first, *last = first;
        size_t length = 1;
        for (first = warm; --count > 0 && first && first->start == last->start + UNIT_SIZE; first = warm) {
            last = first;
            warm = warm->next;
            length++;
        }
        calls += length >= 4;
        assert_int_equal(core_resident(start->start, length * UNIT_SIZE), length >= 4 ? length * UNIT_SIZE : 0);
        warm = warm ? warm->next : NULL;
    }
    return calls;
}

static void test_populate_after_proof(void)
{
    struct heap *heap;
    void *out[64];
    uint64_t calls = 0;

    hak_options.thp = OPTION_NEVER; /* huge pages would touch the whole SuperSlab */
    heap = heaps_begin();
    for (unsigned slab = 0; slab < 400; slab++) {
        bool refills = heap->body->warm[1].stack == NULL && slab > 0;
        size_t most = heap->slabs / POPULATE_SHARE;
        heaps_take_all(heap, CLASS_1024, out, 64);
        if (refills && slab >= POPULATE_PROOF)
            calls += check_populated(slab_of(out[0]), heap->body->warm[1].stack,
                                     base_min(most, 1u + heap->body->warm[1].count));
        assert_int_equal(heap->body->filled[CLASS_1024], slab + 1);
        assert_int_equal(fake_calls(FAKE_POPULATE), calls);
    }
    assert_in_range(calls, 15, 60);
    heaps_check();
}

static void test_populate_off(void)
{
    struct heap *heap;
    void *out[64];

    hak_options.populate = 0;
    heap = heaps_begin();
    for (unsigned slab = 0; slab < 400; slab++)
        heaps_take_all(heap, CLASS_1024, out, 64);
    assert_int_equal(fake_calls(FAKE_POPULATE), 0);
}

/* P2: a unit that was faulted in and never used has memory behind it, and is purged like any other. */
static void test_populated_leaves(void)
{
    struct heap *heap;
    void *out[64];

    hak_options.thp = OPTION_NEVER; /* huge pages would touch the whole SuperSlab */
    heap = heaps_begin();
    while (fake_calls(FAKE_POPULATE) == 0)
        heaps_take_all(heap, CLASS_1024, out, 64);
    assert_true(heap->body->warm[1].count > 0);
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);
    heaps_check();
    core_check_untouched();
}

static void test_populate_refused(void)
{
    struct heap *heap;
    void *out[64];

    hak_options.thp = OPTION_NEVER; /* huge pages would touch the whole SuperSlab */
    heap = heaps_begin();
    fake_fail_from(FAKE_POPULATE, 1);
    for (unsigned slab = 0; slab < 400; slab++) {
        heaps_take_all(heap, CLASS_1024, out, 64);
        for (size_t i = 0; i < 64; i++)
            *(char *)out[i] = 1;
    }
    assert_true(fake_failures() > 0);
    heaps_check();
}

/* ---- Returning ---- */

/* A full slab becomes available with its first free block. With its last it waits in the warm pool (O6). */
static void test_full_to_empty(void)
{
    struct heap *heap = heaps_begin();
    void *out[SLAB_MAX_BLOCKS];

    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        size_t blocks = size_classes[class].blocks;
        struct slab *slab;
        heaps_take_all(heap, class, out, blocks);
        slab = slab_of(out[0]);
        assert_ptr_equal(heap->full.head, slab);
        assert_null(heap->body->available[class].head);
        heaps_check_one(heap);
        for (size_t i = 0; i < blocks; i++) {
            void *block = out[i];
            assert_int_equal(atomic_load(&slab->state), SLAB_ACTIVE);
            heaps_return(heap, class, &block, 1);
            if (i + 1 < blocks)
                assert_ptr_equal(heap->body->available[class].head, slab);
        }
        assert_int_equal(atomic_load(&slab->state), SLAB_WARM);
        heaps_check();
        heaps_release_warm(heap);
        assert_int_equal(atomic_load(&slab->state), SLAB_FREE);
        assert_null(heap->body->available[class].head);
        assert_null(heap->full.head);
        heaps_check();
    }
}

/* ---- First-class heaps ---- */

static void test_first_class(void)
{
    static void *out[500];
    struct heap *heap, *thread = heaps_begin();
    void *mine[10];
    size_t before;

    heaps_take_all(thread, CLASS_64, mine, 10);
    before = shared_pool.units_used;
    heap = registry_new_first_class();
    assert_int_equal(heap->kind, HEAP_FIRST_CLASS);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        heaps_take_all(heap, class, out, 1 + size_classes[class].blocks / 10);
        assert_int_equal(window_page_map()[window_unit(out[0])], CLASS_NONE);
        memset(out[0], 1, class_size(class));
    }
    heaps_check();
    assert_true(shared_pool.units_used > before + 100);
    lock_acquire(&heap->lock);
    heap_release_all(heap); /* frees live blocks too */
    lock_release(&heap->lock);
    assert_int_equal(shared_pool.units_used, before);
    heaps_check();
    registry_drop_first_class(heap);
    assert_int_equal(atomic_load(&heap->state), HEAP_UNUSED);
    assert_ptr_equal(registry_new_first_class(), heap); /* O3 */
    assert_ptr_not_equal(registry_new_first_class(), heap);
}

/* A first-class heap never adopts slabs. */
static void test_first_class_adopts_nothing(void)
{
    struct heap *leaving = heaps_begin(), *heap = registry_new_first_class();
    void *out[10];

    heaps_take_all(leaving, CLASS_64, out, 10);
    registry_abandon_heap(leaving);
    heaps_take_all(heap, CLASS_64, out, 10);
    assert_int_equal(heap->body->counters.slabs_adopted, 0);
    heaps_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_take_order),
        core_unit_test(test_partial_first),
        core_unit_test(test_out_of_memory),
        core_unit_test(test_tells_activity),
        core_unit_test(test_warm_budget),
        core_unit_test(test_warm_share),
        core_unit_test(test_sparse_and_dense),
        core_unit_test(test_warm_bounds),
        core_unit_test(test_release_keeps_few),
        core_unit_test(test_populate_after_proof),
        core_unit_test(test_populate_off),
        core_unit_test(test_populated_leaves),
        core_unit_test(test_populate_refused),
        core_unit_test(test_full_to_empty),
        core_unit_test(test_first_class),
        core_unit_test(test_first_class_adopts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
