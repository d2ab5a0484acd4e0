/* Protects O6: empty slabs wait in the warm pool of their heap. */
#include "heaps.h"

#include <pthread.h>
#include <string.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/housekeeping.h"
#include "front/sample.h"
#include "front/thread.h"
#include "superslab/footprint.h"

enum { MOST = 5000 };
static void *held[MOST];

static struct heap *begin(void)
{
    struct thread_cache *cache = thread_cache_get();

    assert_non_null(cache);
    registry_expect_thread(); /* a thread that is alone has deep bins (test_deep.c) and empties few slabs */
    return cache->heap;
}

static void batch(size_t size, size_t count)
{
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        held[i] = front_malloc(size);
        assert_non_null(held[i]);
        memset(held[i], (int)i, 64);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(*(unsigned char *)held[i], (unsigned char)i);
        front_free(held[i]);
    }
}

static size_t warm_bytes(void) { return footprint_warm() * UNIT_SIZE; }

/* A small batch that repeats takes nothing from the shared pool. */
static void test_batches(void)
{
    static const struct {
        size_t size, count;
    } rows[] = { { 9200, 50 },      { 32768, 40 },        { 50000, 15 },
                 { UNIT_SIZE, 20 }, { 4 * UNIT_SIZE, 6 }, { 16 * UNIT_SIZE, 1 } };
    struct heap *heap = begin();

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t misses;
        batch(rows[i].size, rows[i].count);
        batch(rows[i].size, rows[i].count);
        misses = heap->body->counters.warm_misses;
        assert_true(warm_bytes() > 0);
        for (unsigned round = 0; round < 10; round++)
            batch(rows[i].size, rows[i].count);
        assert_int_equal(heap->body->counters.warm_misses, misses);
        heaps_check();
        front_collect(true); /* the next row could use what waits */
    }
}

/* A batch gets blocks of several warm slabs if each has four blocks at most, and of one slab that costs memory. */
static void test_one_refill(void)
{
    static const struct {
        unsigned class, first, again;
    } rows[] = { { CLASS_SPAN_1, 1, 8 }, { CLASS_16384, 4, 32 }, { CLASS_12288, 5, 5 } };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct heap *heap = begin();
        unsigned blocks = size_classes[rows[i].class].blocks;
        heaps_release_warm(heap);
        assert_int_equal(heaps_take(heap, rows[i].class, held, 8 * blocks), rows[i].first);
        heaps_take_all(heap, rows[i].class, held + rows[i].first, 8 * blocks - rows[i].first);
        heaps_return(heap, rows[i].class, held, 8 * blocks);
        assert_int_equal(heaps_take(heap, rows[i].class, held, 8 * blocks), rows[i].again);
        heaps_return(heap, rows[i].class, held, rows[i].again);
    }
    heaps_check();
}

/* Repeats the batch until the heap has learnt how many blocks come again. */
static void batches(size_t size, size_t count)
{
    for (unsigned round = 0; round < 12; round++)
        batch(size, count);
}

/* After several rounds a large batch is served by warm slabs alone. */
static void test_learns(void)
{
    static const struct {
        size_t size, count;
    } rows[] = {
        { 9200, 2000 }, { 32768, 1500 }, { UNIT_SIZE, 1000 }, { 4 * UNIT_SIZE, 400 }, { 16 * UNIT_SIZE, 100 }
    };
    struct heap *heap = begin();

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t misses;
        batches(rows[i].size, rows[i].count);
        misses = heap->body->counters.warm_misses;
        assert_in_range(warm_bytes(), 2 * WARM_FIRST * UNIT_SIZE, WARM_TOTAL * UNIT_SIZE);
        batch(rows[i].size, rows[i].count);
        assert_int_equal(heap->body->counters.warm_misses, misses);
        heaps_check();
        front_collect(true); /* the next row starts from nothing, as another program would */
    }
}

/* After the first batch only WARM_FIRST units wait. */
static void test_first(void)
{
    begin();
    batch(UNIT_SIZE, 500);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    heaps_check();
}

/* Slabs of small blocks neither teach the heap to keep more nor use what others taught it. */
static void test_small_blocks(void)
{
    begin();
    batches(3000, 2000);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    batches(UNIT_SIZE, 500);
    assert_true(footprint_warm() > 400);
    front_collect(false);
    batch(UNIT_SIZE, 100); /* the bound that was learnt stays */
    assert_true(footprint_warm() > 4 * WARM_FIRST);
    front_collect(false);
    batch(3000, 2000);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    heaps_check();
}

static void test_total(void)
{
    begin();
    batches(UNIT_SIZE, MOST);
    assert_int_equal(footprint_warm(), WARM_TOTAL);
    heaps_check();
}

static void *begin_and_wait(void *barrier)
{
    front_free(front_malloc(100));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* Each thread has a share of the total. With many threads the share is below WARM_FIRST. */
static void test_share(void)
{
    enum { THREADS = 511 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_attr_t attributes;

    begin();
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], &attributes, begin_and_wait, &barrier), 0);
    pthread_barrier_wait(&barrier);
    batches(UNIT_SIZE, 500);
    assert_int_equal(footprint_warm(), WARM_TOTAL / (THREADS + 1));
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    registry_expect_thread();
    batches(UNIT_SIZE, 500);
    assert_true(footprint_warm() > 400);
    heaps_check();
}

/* After the footprint has grown, the next slab that becomes empty sends away all that wait. */
static void test_growth(void)
{
    struct heap *heap = begin();
    void *block = front_malloc(12 * UNIT_SIZE);

    batches(UNIT_SIZE, 500);
    assert_true(footprint_warm() > 400);
    footprint_note_growth(UNIT_SIZE);
    front_free(block);
    assert_int_equal(footprint_warm(), 12);
    assert_int_equal(heap->body->warm_bound.most, 0);
    heaps_check();
}

/* Slabs of another length serve before the footprint grows. */
static void test_other_class(void)
{
    size_t before;

    begin();
    hak_options.thp = OPTION_NEVER;
    batch(2 * UNIT_SIZE, 20);
    assert_true(warm_bytes() >= HAK_MIB - 2 * UNIT_SIZE);
    before = shared_pool_footprint();
    batch(100, 500);
    batch(UNIT_SIZE, 30);
    batch(5 * UNIT_SIZE, 6);
    assert_in_range(shared_pool_footprint(), 0, before + 5 * UNIT_SIZE);
    heaps_check();
}

/* A tick releases warm slabs, and they are purged a purge delay later. */
static void test_tick(void)
{
    struct heap *heap = begin();

    batch(UNIT_SIZE, 500);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    for (unsigned i = 0; i < 4; i++) {
        fake_advance(hak_options.purge_delay * MILLISECOND);
        batch(3000, 100);
    }
    assert_in_range(warm_bytes(), 0, 5 * UNIT_SIZE); /* of the last batch */
    assert_int_equal(warm_bytes(), heap->body->warm_bound.units * UNIT_SIZE);
    assert_in_range(shared_pool_footprint(), 0, 2 * HAK_MIB);
    heaps_check();
}

static void test_collect(void)
{
    begin();
    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    batch(UNIT_SIZE, 500);
    assert_true(front_collect(true) > 16 * HAK_MIB);
    assert_int_equal(warm_bytes(), 0);
    heaps_check();
}

/* ---- Other threads ---- */

/* The main thread keeps slabs and then waits while the thread runs. */
static void beside_a_keeper(void *(*run)(void *))
{
    pthread_t thread;

    hak_options.thp = OPTION_NEVER;
    begin();
    batch(UNIT_SIZE, 500);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    heaps_check();
}

static void *take_huge(void *unused)
{
    void *huge = front_malloc(60 * HAK_MIB);

    (void)unused;
    assert_non_null(huge);
    assert_int_equal(warm_bytes(), 0);
    assert_in_range(shared_pool_footprint(), 60 * HAK_MIB, 80 * HAK_MIB);
    front_free(huge);
    return NULL;
}

/* A huge block of another thread gets the memory that a sleeping thread keeps. */
static void test_huge_elsewhere(void) { beside_a_keeper(take_huge); }

static void *keep_and_end(void *unused)
{
    (void)unused;
    batch(UNIT_SIZE, 500);
    assert_int_equal(footprint_warm(), WARM_FIRST);
    return NULL;
}

static void test_thread_ends(void)
{
    pthread_t thread;

    begin();
    front_free(front_malloc(100));
    pthread_create(&thread, NULL, keep_and_end, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(warm_bytes(), 0);
    heaps_check();
}

/* The slab of a heap whose thread has ended does not wait there when another thread frees its last block. */
static void test_orphan_empties(void)
{
    struct heap *heap;
    void *blocks[3];

    begin();
    heap = registry_take_heap();
    assert_non_null(heap);
    heaps_take_all(heap, CLASS_SPAN_1, blocks, 3);
    remote_free_locked(blocks[0], "free");
    assert_int_equal(footprint_warm(), 1); /* while its thread is there, it does */
    registry_abandon_heap(heap);
    assert_int_equal(footprint_warm(), 0);
    remote_free_locked(blocks[1], "free");
    remote_free_locked(blocks[2], "free");
    assert_int_equal(footprint_warm(), 0);
    assert_int_equal(heap->slabs, 0);
    heaps_check();
}

/* ---- Where nothing is kept ---- */

static void test_hard_limit(void)
{
    begin();
    hak_options.memory_limit = 64 * HAK_MIB;
    batch(UNIT_SIZE, 500);
    assert_int_equal(warm_bytes(), 0);
    batch(16 * UNIT_SIZE, 50);
    heaps_check();
}

static void test_soft_limit(void)
{
    begin();
    hak_options.memory_limit_soft = 8 * HAK_MIB;
    batch(UNIT_SIZE, 500);
    assert_in_range(warm_bytes(), 0, 8 * HAK_MIB);
}

/* The heap profile does not change which slabs wait. */
static void test_profile(void)
{
    begin();
    batch(UNIT_SIZE, 100);
    assert_true(warm_bytes() > 0);
    assert_int_equal(front_profile_set(1 * HAK_MIB), 0);
    batch(UNIT_SIZE, 100);
    assert_true(warm_bytes() > 0);
    assert_int_equal(front_profile_set(0), 0);
    batch(UNIT_SIZE, 100);
    assert_true(warm_bytes() > 0);
    front_collect(true);
    heaps_check();
}

/* Frees a block of a warm slab twice. */
static void free_again(void)
{
    void *block = front_malloc(12 * UNIT_SIZE);

    front_free(block);
    front_free(block);
}

static void test_double_free(void)
{
    begin();
    assert_aborts(free_again, "freed already; size class gone with its slab");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_batches),
        core_unit_test(test_one_refill),
        core_unit_test(test_learns),
        core_unit_test(test_first),
        core_unit_test(test_small_blocks),
        core_unit_test(test_total),
        core_unit_test(test_share),
        core_unit_test(test_growth),
        core_unit_test(test_other_class),
        core_unit_test(test_tick),
        core_unit_test(test_collect),
        core_unit_test(test_huge_elsewhere),
        core_unit_test(test_thread_ends),
        core_unit_test(test_orphan_empties),
        core_unit_test(test_hard_limit),
        core_unit_test(test_soft_limit),
        core_unit_test(test_profile),
        core_unit_test(test_double_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
