/* pool/registry.h: many heaps. Each call looks at a bounded number of them, every heap has its turn, and those that ended leave
 * nothing but their structs and their counts. */
#include "heaps.h"

#include <string.h>

#include "observe/usage.h"

enum { CROWD = 1000, BLOCKS = 64 };

static struct heap *crowd[CROWD];

static void make_crowd(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_non_null(crowd[i] = registry_take_heap());
}

static void no_blocks(void *cache) { (void)cache; }

/* The tick's three parts until all is done; returns how often they were called. */
static unsigned tick_to_the_end(size_t *purged)
{
    unsigned steps = 0;
    bool more = true;

    for (; more; steps++) {
        assert_true(steps < 1000);
        registry_settle(false, no_blocks);
        registry_trim_idle(false, false, purged);
        *purged += registry_purge_dead(false);
        more = registry_has_more();
        heaps_check();
    }
    return steps;
}

/* ---- Reuse ---- */

/* O3: heaps in turn are one, and it serves a thread as well. */
static void test_in_turn(void)
{
    struct heap *heap, *first;
    uint32_t made;

    heaps_begin();
    first = registry_new_first_class();
    made = registry.count;
    registry_drop_first_class(first);
    for (unsigned i = 0; i < 10000; i++) {
        assert_ptr_equal(heap = registry_new_first_class(), first);
        assert_int_equal(heap->kind, HEAP_FIRST_CLASS);
        registry_drop_first_class(heap);
    }
    assert_ptr_equal(registry_take_heap(), first);
    assert_int_equal(first->kind, HEAP_THREAD);
    assert_int_equal(atomic_load(&first->state), HEAP_LIVE);
    assert_int_equal(registry.count, made);
    heaps_check();
}

/* A heap that is dropped twice is in the list once. */
static void test_dropped_twice(void)
{
    struct heap *heap;

    heaps_begin();
    heap = registry_new_first_class();
    registry_drop_first_class(heap);
    registry_drop_first_class(heap);
    heaps_check();
    assert_ptr_equal(registry_new_first_class(), heap);
    assert_ptr_not_equal(registry_new_first_class(), heap);
    heaps_check();
}

/* An orphan that owns nothing becomes unused, and then any heap; one that does stays an orphan until it owns nothing. */
static void test_bare_orphans(void)
{
    struct heap *heap = heaps_begin(), *leaving = registry_take_heap();
    void *block;
    size_t purged = 0;

    heaps_take_all(leaving, CLASS_1024, &block, 1);
    registry_abandon_heap(leaving);
    tick_to_the_end(&purged);
    assert_int_equal(leaving->list, LIST_SETTLED);
    assert_int_equal(registry.orphan_count, 1);
    remote_free_blocks(CLASS_1024, &block, 1, "free"); /* drained by this thread (O4) */
    tick_to_the_end(&purged);
    assert_int_equal(leaving->list, LIST_UNUSED);
    assert_int_equal(atomic_load(&leaving->state), HEAP_UNUSED);
    assert_int_equal(registry.orphan_count, 0);
    assert_ptr_equal(registry_new_first_class(), leaving);
    assert_int_equal(heap->slabs, 0);
    heaps_check();
}

/* ---- Counts and memory ---- */

/* C1, U1: what the counters of all heaps say stays when their bodies go. */
static void test_departed(void)
{
    static struct usage_count before, after;
    static void *blocks[CROWD];
    size_t purged = 0;

    heaps_begin();
    make_crowd(CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        heaps_take_all(crowd[i], CLASS_64 + i % 8, &blocks[i], 1);
    for (unsigned i = 0; i < CROWD; i++) {
        heaps_return(crowd[i], CLASS_64 + i % 8, &blocks[i], 1);
        registry_abandon_heap(crowd[i]);
    }
    observe_count_all(&before);
    assert_int_equal(before.counters.refills, CROWD);
    assert_int_equal(before.orphans, CROWD);
    tick_to_the_end(&purged);
    assert_int_equal(purged, CROWD * base_align_up(sizeof(struct heap_body), os_page_size()));
    observe_count_all(&after);
    assert_memory_equal(&before.counters, &after.counters, sizeof before.counters);
    assert_memory_equal(before.classes, after.classes, sizeof before.classes);
    assert_int_equal(after.orphans, 0);
    for (unsigned i = 0; i < CROWD; i++) {
        struct heap_body *body = crowd[i]->body;
        assert_int_equal(crowd[i]->body_purged, MEMORY_PURGED);
        assert_int_equal(core_resident((char *)body, base_align_up(sizeof *body, os_page_size())), 0);
    }
    /* A purged body is as good as a new one. */
    make_crowd(CROWD);
    heaps_take_all(crowd[0], CLASS_64, blocks, 1);
    observe_count_all(&after);
    assert_int_equal(after.counters.refills, CROWD + 1);
    assert_int_equal(registry.count, CROWD + 2); /* with the house and the first one */
    heaps_check();
}

/* What the system does not take is asked for again with the next heap that ends, and not before. */
static void test_purge_refused(void)
{
    size_t purged = 0;
    uint64_t calls;

    heaps_begin();
    make_crowd(3);
    fake_fail_from(FAKE_PURGE, 1);
    registry_abandon_heap(crowd[0]);
    tick_to_the_end(&purged);
    assert_int_equal(purged, 0);
    assert_int_equal(crowd[0]->body_purged, MEMORY_DEAD);
    fake_fail_nothing();
    calls = fake_calls(FAKE_PURGE);
    assert_int_equal(registry_purge_dead(true), 0);
    assert_int_equal(fake_calls(FAKE_PURGE), calls);
    registry_abandon_heap(crowd[2]);
    tick_to_the_end(&purged);
    assert_int_equal(crowd[0]->body_purged, MEMORY_PURGED);
    assert_int_equal(crowd[2]->body_purged, MEMORY_PURGED);
    assert_int_equal(crowd[1]->body_purged, MEMORY_IN_USE);
}

/* ---- Bounds ---- */

/* A tick settles so many orphans at a time. */
static void test_settle_step(void)
{
    heaps_begin();
    make_crowd(CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        registry_abandon_heap(crowd[i]);
    for (unsigned left = CROWD; left > 0;) {
        assert_int_equal(registry.lists[LIST_LEFT].count, left);
        registry_settle(false, no_blocks);
        left -= (unsigned)base_min(left, REGISTRY_STEP);
        assert_int_equal(registry_has_more(), left > 0 || registry.purging);
    }
    heaps_check();
    make_crowd(CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        registry_abandon_heap(crowd[i]);
    registry_settle(true, no_blocks);
    assert_int_equal(registry.lists[LIST_LEFT].count, 0);
    heaps_check();
}

/* Heaps whose epoch somebody has seen. */
static unsigned seen(uint64_t since)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CROWD; i++)
        count += atomic_load(&crowd[i]->seen_time) >= since;
    return count;
}

/* The steps of a round look at each heap once, and at no more than so many each. */
static void test_trim_round(void)
{
    size_t purged = 0;
    unsigned before = 0;
    uint64_t since;

    heaps_begin();
    make_crowd(CROWD);
    fake_advance(1000000);
    since = os_now();
    for (unsigned i = 0; i < CROWD; i++)
        atomic_fetch_add(&crowd[i]->epoch, 1); /* none has been seen so */
    for (unsigned step = 1; step <= (CROWD + 2 + REGISTRY_STEP - 1) / REGISTRY_STEP; step++) {
        unsigned now;
        registry_trim_idle(false, false, &purged);
        now = seen(since);
        assert_true(now > before && now <= before + REGISTRY_STEP);
        before = now;
    }
    assert_int_equal(before, CROWD);
    assert_false(registry_has_more());
}

/* A refill that adopts looks at so many heaps, and the next ones go on behind them, so that each is found in the end. */
static void test_adoption_in_turn(void)
{
    enum { ADOPT_MAX_HEAPS = 16 };
    struct heap *heap = heaps_begin();
    static void *out[8 * BLOCKS];
    void *mine[BLOCKS];
    unsigned refills = 0;

    make_crowd(CROWD);
    heaps_take_all(crowd[CROWD / 2], CLASS_1024, out, 8 * BLOCKS);
    for (unsigned i = 0; i < 8; i++)
        remote_free_blocks(CLASS_1024, (void *[]){ out[i * BLOCKS] }, 1, "free");
    assert_int_equal(heap_signals.queues, 1);
    while (heap->body->counters.slabs_adopted == 0) {
        assert_true(refills++ <= 2 * CROWD / ADOPT_MAX_HEAPS + 2); /* once it is seen, and once it has been idle since */
        heaps_take_all(heap, CLASS_1024, mine, BLOCKS);
        fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    }
    assert_int_equal(heap_signals.queues, 0);
    heaps_check();
}

/* Many orphans without the class do not hide one that has it. */
static void test_orphans_in_turn(void)
{
    enum { ADOPT_MAX_ORPHANS = 4 };
    struct heap *heap = heaps_begin();
    static void *out[CROWD];
    void *mine[BLOCKS];
    unsigned refills = 0;

    make_crowd(CROWD);
    for (unsigned i = 0; i < CROWD; i++)
        heaps_take_all(crowd[i], i == CROWD / 3 ? CLASS_1024 : CLASS_64, &out[i], 1);
    for (unsigned i = 0; i < CROWD; i++)
        registry_abandon_heap(crowd[i]);
    while (heap->body->counters.slabs_adopted == 0) {
        assert_true(refills++ <= CROWD / ADOPT_MAX_ORPHANS + 1);
        heaps_take_all(heap, CLASS_1024, mine, BLOCKS);
    }
    heaps_check();
}

/* Of dead memory a tick gives back so much at a time. */
static void test_purge_step(void)
{
    enum { PURGED_AT_MOST = REGISTRY_STEP * 15 };
    static struct heap *heaps[3 * PURGED_AT_MOST];
    size_t body = base_align_up(sizeof(struct heap_body), os_page_size()), purged = 0, all = 0;
    unsigned count = sizeof heaps / sizeof heaps[0], steps = 0;

    heaps_begin();
    for (unsigned i = 0; i < count; i++)
        heaps[i] = registry_new_first_class();
    for (unsigned i = 0; i < count; i++)
        registry_drop_first_class(heaps[i]);
    registry_trim_idle(false, true, &purged);
    do {
        purged = registry_purge_dead(false);
        assert_true(purged > 0 && purged <= PURGED_AT_MOST * body);
        all += purged;
        steps++;
    } while (registry_has_more());
    assert_int_equal(all, count * body);
    assert_true(steps >= 3);
    heaps_check();
}

/* ---- Fork ---- */

/* The child has every heap in the list where it belongs, whatever the lists were. */
static void test_child(void)
{
    struct heap *mine = heaps_begin(), *first_class, *unused;

    make_crowd(20);
    first_class = registry_new_first_class();
    unused = registry_new_first_class();
    registry_drop_first_class(unused);
    registry_abandon_heap(crowd[0]);
    registry_abandon_heap(crowd[1]);
    registry_settle(true, no_blocks);
    registry_abandon_heap(crowd[2]);
    crowd[3]->list = LIST_NONE; /* between two lists */
    crowd[3]->after = crowd[3]->before = crowd[5];
    registry_reset_in_child(mine);
    heaps_check();
    assert_int_equal(mine->list, LIST_SERVED);
    assert_int_equal(first_class->list, LIST_NONE);
    assert_int_equal(atomic_load(&first_class->state), HEAP_LIVE);
    assert_int_equal(unused->list, LIST_UNUSED);
    assert_int_equal(registry.house->list, LIST_SERVED);
    for (unsigned i = 2; i < 20; i++)
        assert_int_equal(crowd[i]->list, LIST_LEFT);
    assert_int_equal(registry.orphan_count, registry.lists[LIST_LEFT].count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_in_turn),
        core_unit_test(test_dropped_twice),
        core_unit_test(test_bare_orphans),
        core_unit_test(test_departed),
        core_unit_test(test_purge_refused),
        core_unit_test(test_settle_step),
        core_unit_test(test_trim_round),
        core_unit_test(test_adoption_in_turn),
        core_unit_test(test_orphans_in_turn),
        core_unit_test(test_purge_step),
        core_unit_test(test_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
