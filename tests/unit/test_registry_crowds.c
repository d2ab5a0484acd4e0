/* Protects pool/registry.h with many heaps: a call looks at few heaps, and each heap has its turn. Ended heaps leave
 * only their structs and their counts. */
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

static struct heap *no_blocks(void *cache)
{
    (void)cache;
    return NULL;
}

/* The heap that serves the only cache of a test. */
static struct heap *serving;
static struct heap *serving_of(const void *cache)
{
    (void)cache;
    return serving;
}
static struct heap *served_by(void *cache) { return serving_of(cache); }

/* Runs the tick's three parts until nothing is left. Returns how often. */
static unsigned tick_to_the_end(size_t *purged)
{
    unsigned steps = 0;
    bool more = true;

    for (; more; steps++) {
        assert_true(steps < 1000);
        registry_settle(false, no_blocks);
        registry_trim_idle(false, false, NULL, purged);
        *purged += registry_purge_dead(false);
        more = registry_has_more();
        heaps_check();
    }
    return steps;
}

/* ---- Reuse ---- */

/* O3: first-class heaps made in turn reuse one struct, and so does a thread's heap. */
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

/* A heap that is dropped twice is in its list once. */
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

/* An orphan that owns nothing becomes unused, and may become any kind of heap. One that owns slabs stays an orphan. */
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
    remote_free_blocks(CLASS_1024, &block, 1, "free"); /* this thread drains it (O4) */
    tick_to_the_end(&purged);
    assert_int_equal(leaving->list, LIST_UNUSED);
    assert_int_equal(atomic_load(&leaving->state), HEAP_UNUSED);
    assert_int_equal(registry.orphan_count, 0);
    assert_ptr_equal(registry_new_first_class(), leaving);
    assert_int_equal(heap->slabs, 0);
    heaps_check();
}

/* ---- Counts and memory ---- */

/* C1, U1: the counters over all heaps stay the same when the bodies are purged. */
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
    /* Not by mincore: beside busy loops it told of two pages of a body now and then. */
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(crowd[i]->body_purged, MEMORY_PURGED);
    /* A purged body works like a new one. */
    make_crowd(CROWD);
    heaps_take_all(crowd[0], CLASS_64, blocks, 1);
    observe_count_all(&after);
    assert_int_equal(after.counters.refills, CROWD + 1);
    assert_int_equal(registry.count, CROWD + 2); /* with the house heap and the first heap */
    heaps_check();
}

/* A body that the system refused to take is purged with the next heap that ends, and not earlier. */
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

/* The footprint counts the memory of a body and of a cache from when a thread takes them until they are purged. */
static void test_purged_caches(void)
{
    enum { HEAPS = 30, CACHE = 3 * 4096, FIRST_CACHE = 20 * 4096 };
    size_t body = base_align_up(sizeof(struct heap_body), os_page_size()), purged = 0, expected = 0, before;
    unsigned caches = 0;

    heaps_begin();
    make_crowd(HEAPS);
    for (unsigned i = 0; i < HEAPS; i++)
        assert_true(registry_add_cache(crowd[i], CACHE, FIRST_CACHE));
    before = shared_pool.metadata_touched;
    for (unsigned i = 0; i < HEAPS; i++)
        registry_abandon_heap(crowd[i]);
    tick_to_the_end(&purged);
    assert_int_equal(before - shared_pool.metadata_touched, purged);
    for (unsigned i = 0; i < HEAPS; i++) {
        expected += crowd[i]->body_purged == MEMORY_PURGED ? body : 0;
        expected += crowd[i]->cache_purged == MEMORY_PURGED ? CACHE : 0;
        caches += crowd[i]->cache_purged == MEMORY_PURGED;
    }
    assert_true(caches > 0);
    assert_int_equal(purged, expected);
    make_crowd(HEAPS); /* takes the same heaps */
    assert_int_equal(shared_pool.metadata_touched, before);
}

/* ---- Bounds ---- */

/* A tick settles at most REGISTRY_STEP orphans. */
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

/* The number of heaps that a look has seen since. */
static unsigned seen(uint64_t since)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CROWD; i++)
        count += atomic_load(&crowd[i]->seen_time) >= since;
    return count;
}

/* The steps of a round look at each heap once, and each step at no more than REGISTRY_STEP heaps. */
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
        atomic_fetch_add(&crowd[i]->epoch, 1); /* a new epoch, which no look has seen */
    for (unsigned step = 1; step <= (CROWD + 2 + REGISTRY_STEP - 1) / REGISTRY_STEP; step++) {
        unsigned now;
        registry_trim_idle(false, false, NULL, &purged);
        now = seen(since);
        assert_true(now > before && now <= before + REGISTRY_STEP);
        before = now;
    }
    assert_int_equal(before, CROWD);
    assert_false(registry_has_more());
}

/* An adopting refill looks at a bounded number of heaps. The next one continues there, so each heap has its turn. */
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
        assert_true(refills++ <= 2 * CROWD / ADOPT_MAX_HEAPS + 2); /* a look sees it, a later one finds it idle */
        heaps_take_all(heap, CLASS_1024, mine, BLOCKS);
        fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    }
    assert_int_equal(heap_signals.queues, 0);
    heaps_check();
}

/* Many orphans without slabs of the class do not hide one that has some. */
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

/* A tick purges a bounded amount of dead memory. */
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
    registry_trim_idle(false, true, NULL, &purged);
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

/* In the child of a fork every heap is in the right list, whatever state the lists were in. */
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
    atomic_store(&registry.trimming, true); /* by a thread that is not in the child */
    mine->thread_id = 4711;                 /* the parent's */
    registry_reset_in_child(mine, serving_of);
    heaps_check();
    assert_false(atomic_load(&registry.trimming));
    assert_int_equal(mine->thread_id, os_thread_id());
    assert_int_equal(atomic_load(&registry.live_threads), 1);
    assert_int_equal(mine->list, LIST_SERVED);
    assert_int_equal(first_class->list, LIST_PROGRAM);
    assert_int_equal(atomic_load(&first_class->state), HEAP_LIVE);
    assert_int_equal(unused->list, LIST_UNUSED);
    assert_int_equal(registry.house->list, LIST_SERVED);
    for (unsigned i = 2; i < 20; i++)
        assert_int_equal(crowd[i]->list, LIST_LEFT);
    assert_int_equal(registry.orphan_count, registry.lists[LIST_LEFT].count);
}

/* ---- Sharing ---- */

/* O8: the first threads own their slabs, later threads use a few shared heaps. The child of a fork keeps shared heaps
 * unless they are lost (O7). With few threads left, a new thread has its own slabs again. */
static void test_shared(void)
{
    struct heap *shared[CROWD], *lost, *made;
    void *block;

    heaps_begin();
    make_crowd(CROWD);
    atomic_store(&registry.live_threads, registry.own_most);
    assert_ptr_equal(registry_serving(crowd[0]), crowd[0]);
    atomic_store(&registry.live_threads, registry.own_most + 1);
    for (unsigned i = 0; i < CROWD; i++) {
        shared[i] = registry_serving(crowd[i]);
        assert_int_equal(shared[i]->kind, HEAP_SHARED);
        assert_int_equal(atomic_load(&shared[i]->state), HEAP_LIVE);
        assert_int_equal(shared[i]->list, LIST_SERVED);
        if (i >= registry.shared_count)
            assert_ptr_equal(shared[i], shared[i - registry.shared_count]);
        else
            for (unsigned other = 0; other < i; other++)
                assert_ptr_not_equal(shared[i], shared[other]);
    }
    heaps_check();

    lost = shared[0];
    assert_int_equal(heaps_take(shared[1], CLASS_64, &block, 1), 1);
    atomic_store(&lost->lock.state, 8); /* held by a thread that is gone */
    registry_reset_in_child(crowd[0], serving_of);
    atomic_store(&lost->lock.state, 0);
    assert_int_equal(lost->list, LIST_NONE);
    assert_int_equal(atomic_load(&lost->state), HEAP_LOST);
    assert_int_equal(shared[1]->list, LIST_SERVED);
    assert_int_equal(atomic_load(&shared[1]->state), HEAP_LIVE);
    assert_ptr_equal(registry_serving(crowd[0]), crowd[0]);
    atomic_store(&registry.live_threads, registry.own_most + 1);
    made = registry_serving(crowd[0]);
    assert_int_equal(made->kind, HEAP_SHARED);
    assert_ptr_not_equal(made, lost);
    assert_int_equal(slab_of(block)->used, 1);
}

static struct heap *begin_sharing(struct heap *own)
{
    struct heap *shared;

    atomic_store(&registry.live_threads, registry.own_most + 1);
    shared = registry_serving(own);
    assert_int_equal(shared->kind, HEAP_SHARED);
    return shared;
}

/* O8: a shared heap without caches is an orphan: others adopt its slabs, and remote frees to it are drained (O4). */
static void test_shared_left(void)
{
    struct heap *mine = heaps_begin(), *shared, *again;
    void *blocks[2], *block;

    make_crowd(2);
    shared = begin_sharing(crowd[0]);
    assert_ptr_equal(registry_serving(crowd[0]), shared);
    assert_int_equal(heaps_take(shared, CLASS_64, blocks, 2), 2);
    registry_serve_less(shared);
    assert_int_equal(shared->list, LIST_SERVED);
    registry_serve_less(shared);
    assert_int_equal(shared->list, LIST_LEFT);
    assert_int_equal(atomic_load(&shared->state), HEAP_ORPHAN);
    assert_int_equal(registry.orphan_count, 1);
    heaps_check();

    remote_free_blocks(CLASS_64, blocks, 1, "free");
    assert_int_equal(atomic_load(&shared->pending_count), 0);
    assert_int_equal(heaps_take(mine, CLASS_64, &block, 1), 1);
    assert_ptr_equal(slab_of(block), slab_of(blocks[1]));
    assert_ptr_equal(atomic_load(&slab_of(block)->owner), mine);
    again = begin_sharing(crowd[0]);
    assert_ptr_not_equal(again, shared);
    assert_int_equal(again->caches, 1);
    heaps_check();
}

/* O8: an orphan's cache counts until it is empty. An orphan that has slabs serves its next thread itself. */
static void test_shared_settled(void)
{
    struct heap *shared, *taken;
    size_t purged = 0;
    void *block;

    heaps_begin();
    make_crowd(1);
    assert_true(registry_add_cache(crowd[0], 4096, 4096));
    shared = serving = begin_sharing(crowd[0]);
    assert_int_equal(heaps_take(shared, CLASS_64, &block, 1), 1);
    registry_abandon_heap(crowd[0]);
    assert_int_equal(shared->caches, 1);
    registry_settle(true, served_by);
    serving = NULL;
    assert_int_equal(crowd[0]->list, LIST_SETTLED);
    assert_int_equal(atomic_load(&shared->state), HEAP_ORPHAN);
    tick_to_the_end(&purged);
    assert_int_equal(shared->list, LIST_SETTLED);
    for (unsigned i = 0; i < CROWD && (taken = registry_take_heap()) != shared; i++)
        assert_int_equal(taken->slabs, 0);
    assert_ptr_equal(taken, shared);
    assert_int_equal(shared->kind, HEAP_THREAD);
    atomic_store(&registry.live_threads, registry.own_most + 1);
    assert_ptr_equal(registry_serving(shared), shared);
    heaps_check();
}

/* O7: the caches of a lost shared heap are lost too: the gone thread may have been changing one. */
static void test_shared_lost(void)
{
    struct heap *mine = heaps_begin(), *shared;

    make_crowd(2);
    assert_true(registry_add_cache(crowd[0], 4096, 4096));
    shared = serving = begin_sharing(crowd[0]);
    atomic_store(&shared->lock.state, 8); /* held by a thread that is gone */
    registry_reset_in_child(mine, serving_of);
    atomic_store(&shared->lock.state, 0);
    serving = NULL;
    assert_int_equal(atomic_load(&shared->state), HEAP_LOST);
    assert_int_equal(atomic_load(&crowd[0]->state), HEAP_LOST);
    assert_int_equal(crowd[0]->list, LIST_NONE);
    assert_int_equal(crowd[1]->list, LIST_LEFT);
}

/* C1: cache hits of threads that share a heap count in their own heaps, and stay when those bodies are purged. */
static void test_hits_stay(void)
{
    static struct usage_count after;
    size_t purged = 0;

    heaps_begin();
    make_crowd(1);
    crowd[0]->classes[CLASS_64].malloc_hits = 3;
    registry_abandon_heap(crowd[0]);
    tick_to_the_end(&purged);
    assert_int_equal(crowd[0]->body_purged, MEMORY_PURGED);
    observe_count_all(&after);
    assert_int_equal(after.classes[CLASS_64].malloc_hits, 3);
}

/* A cache's share of bytes shrinks as threads are added, down to a least value. */
static void test_cache_share(void)
{
    size_t before;

    heaps_begin();
    before = heap_signals.cache_share;
    assert_true(before >= HAK_MIB);
    for (unsigned i = 0; i < CROWD; i++) {
        assert_non_null(crowd[i] = registry_take_heap());
        assert_true(heap_signals.cache_share <= before);
        before = heap_signals.cache_share;
    }
    assert_true(before * CROWD <= CACHES_TOTAL && before >= CACHE_SHARE_LEAST);
    for (unsigned i = 0; i < CROWD; i++)
        registry_abandon_heap(crowd[i]);
    assert_true(heap_signals.cache_share >= HAK_MIB);
}

/* The units that all heaps may keep are shared, too; each heap may keep one. */
static void test_warm_share(void)
{
    static const uint32_t threads[] = { 1, 2, 3, 1000, WARM_TOTAL, WARM_TOTAL + 1, 100000 };

    heaps_begin();
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        atomic_store(&registry.live_threads, threads[i] - 1);
        assert_non_null(registry_take_heap());
        assert_int_equal(heap_signals.warm_share, base_max(WARM_TOTAL / threads[i], 1));
        assert_int_equal(heap_signals.several, threads[i] > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_in_turn),
        core_unit_test(test_dropped_twice),
        core_unit_test(test_bare_orphans),
        core_unit_test(test_departed),
        core_unit_test(test_purge_refused),
        core_unit_test(test_purged_caches),
        core_unit_test(test_settle_step),
        core_unit_test(test_trim_round),
        core_unit_test(test_adoption_in_turn),
        core_unit_test(test_orphans_in_turn),
        core_unit_test(test_purge_step),
        core_unit_test(test_child),
        core_unit_test(test_shared),
        core_unit_test(test_shared_left),
        core_unit_test(test_shared_settled),
        core_unit_test(test_shared_lost),
        core_unit_test(test_hits_stay),
        core_unit_test(test_cache_share),
        core_unit_test(test_warm_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
