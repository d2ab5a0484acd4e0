/* Protects T7: the deep bins of the process's first thread cache. */
#include "heaps.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/housekeeping.h"
#include "front/sample.h"
#include "front/thread.h"
#include "superslab/footprint.h"

enum { MOST = 6000, DEEP_FIRST_BYTES = 1 << 20, DEEP_SHARE = 256 /* of thread_cache.c */ };
static void *held[MOST];

static bool is_deep(const struct thread_cache *cache, unsigned class) { return cache->bins[class].top >= CACHE_SLOTS; }

static size_t deep_held(const struct thread_cache *cache)
{
    size_t bytes = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        bytes += is_deep(cache, class) ? cache_count(cache, class) * class_size(class) : 0;
    return bytes;
}

/* T2, T3, T7 and the cache's sums. */
static void check_cache(const struct thread_cache *cache)
{
    size_t near = 0, deep = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct bin *bin = &cache->bins[class];
        unsigned base = cache->base[class], capacity = bin->limit - base;
        assert_true(bin->top >= base && bin->top <= bin->limit);
        assert_null(cache->slots[base]);
        assert_null(cache->slots[size_classes[class].slot_base]);
        assert_null(cache->slots[size_classes[class].first_base]);
        assert_true(capacity <=
                    (is_deep(cache, class) ? size_classes[class].deep_limit : size_classes[class].slot_limit));
        assert_int_equal((cache->open >> class) & 1, capacity != 0);
        *(is_deep(cache, class) ? &deep : &near) += capacity * class_size(class);
        for (unsigned slot = base + 1; slot <= bin->top; slot++)
            assert_int_equal(slab_of(cache->slots[slot])->class, class);
    }
    assert_int_equal(cache->capacity_bytes, near);
    assert_int_equal(cache->deep_bytes, deep);
    assert_true(near <= hak_options.cache_bytes);
    heaps_check();
}

static uint64_t refills_of(const struct thread_cache *cache)
{
    uint64_t refills = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        refills += cache->heap->classes[class].refills;
    return refills;
}

static struct thread_cache *begin(void)
{
    struct thread_cache *cache = thread_cache_get();

    assert_non_null(cache);
    assert_true(cache->deep_room);
    hak_options.thp = OPTION_NEVER;
    return cache;
}

static void batch(size_t size, size_t count)
{
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        held[i] = front_malloc(size);
        assert_non_null(held[i]);
        memset(held[i], (int)i, base_min(size, 64));
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(*(unsigned char *)held[i], (unsigned char)i);
        front_free(held[i]);
    }
}

/* Repeats the batch until the cache's byte bound covers it. */
static void batches(size_t size, size_t count)
{
    for (unsigned round = 0; round < 14; round++)
        batch(size, count);
}

/* The cache alone serves a batch that repeats. */
static void test_batches(void)
{
    static const struct {
        size_t size, count;
    } rows[] = { { 16, 1000 },           { 100, 1000 },          { 1000, 850 },          { 5000, 850 },
                 { 9200, 900 },          { 32768, 100 },         { 50000, 900 },         { UNIT_SIZE, 950 },
                 { 4 * UNIT_SIZE, 500 }, { 9 * UNIT_SIZE, 100 }, { 16 * UNIT_SIZE, 200 } };
    struct thread_cache *cache = begin();

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned class = class_of_size(rows[i].size);
        uint64_t refills, flushes;
        batches(rows[i].size, rows[i].count);
        refills = cache->heap->classes[class].refills;
        flushes = cache->heap->classes[class].flushes;
        assert_true(is_deep(cache, class));
        assert_true(cache_count(cache, class) >= rows[i].count);
        for (unsigned round = 0; round < 10; round++)
            batch(rows[i].size, rows[i].count);
        assert_int_equal(cache->heap->classes[class].refills, refills);
        assert_int_equal(cache->heap->classes[class].flushes, flushes);
        check_cache(cache);
        front_collect(true); /* the next row starts from nothing, as another program would */
    }
}

/* The pattern in the documents: allocate a thousand blocks of each of five sizes, then free them all. A bin stays open
 * while the others are in use, so in the end the cache alone serves the pattern. */
static void test_sizes_in_turn(void)
{
    enum { EACH = 1000, SIZES = 5 };
    struct thread_cache *cache = begin();
    uint64_t refills = 0, before;

    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    for (unsigned round = 0; round < 40; round++) {
        before = refills_of(cache);
        for (size_t i = 0; i < SIZES * EACH; i++)
            held[i] = front_malloc((size_t)2048 << i / EACH);
        for (size_t i = 0; i < SIZES * EACH; i++)
            front_free(held[i]);
        refills = refills_of(cache) - before;
    }
    assert_in_range(refills, 0, SIZES * EACH / 50); /* 98 % are hits */
    check_cache(cache);
}

/* The byte bound starts small, so blocks freed only once leave the cache. */
static void test_first_bytes(void)
{
    struct thread_cache *cache = begin();

    batch(UNIT_SIZE, 500);
    assert_in_range(deep_held(cache), 1, DEEP_FIRST_BYTES);
    check_cache(cache);
}

/* It does not grow for blocks that are wanted again later than a purge delay after. */
static void test_wanted_late(void)
{
    struct thread_cache *cache = begin();

    for (unsigned round = 0; round < 20; round++) {
        batch(UNIT_SIZE, 500);
        fake_advance(2 * hak_options.purge_delay * MILLISECOND);
    }
    assert_in_range(cache->deep_most, 0, 2 * DEEP_FIRST_BYTES);
    check_cache(cache);
}

/* The byte bound has a maximum, and so has the number of blocks in a bin. */
static void test_most(void)
{
    struct thread_cache *cache = begin();

    batches(16 * UNIT_SIZE, 600);
    assert_in_range(deep_held(cache), DEEP_FIRST_BYTES + 1, DEEP_SHARE * hak_options.cache_bytes);
    assert_int_equal(cache->deep_most, DEEP_SHARE * hak_options.cache_bytes);
    batches(2000, MOST);
    assert_in_range(cache_count(cache, class_of_size(2000)), 0, DEEP_BLOCKS);
    check_cache(cache);
}

/* HAKMEM_FC_CAP bounds deep bins too. */
static void test_cap(void)
{
    struct thread_cache *cache = begin();

    hak_options.fc_cap = 40;
    batches(UNIT_SIZE, 500);
    assert_in_range(cache_count(cache, CLASS_SPAN_1), 1, 40);
    batches(2000, 500);
    assert_in_range(cache_count(cache, class_of_size(2000)), 1, 40);
    check_cache(cache);
}

/* ---- Given up ---- */

/* Another class's growth finds the memory free that was cached in deep bins. */
static void test_other_class(void)
{
    struct thread_cache *cache = begin();
    size_t before, most;

    batches(2 * UNIT_SIZE, 300);
    assert_true(deep_held(cache) > 32 * HAK_MIB);
    most = cache->deep_most;
    before = shared_pool_footprint();
    batch(UNIT_SIZE, 500);
    assert_in_range(shared_pool_footprint(), 0, before + HAK_MIB);
    assert_in_range(cache->deep_most, 0, most / 2);
    assert_false(is_deep(cache, CLASS_SPAN_2));
    check_cache(cache);
}

static void test_small_blocks(void)
{
    struct thread_cache *cache = begin();
    size_t before;

    batches(UNIT_SIZE, 500);
    before = shared_pool_footprint();
    for (size_t i = 0; i < MOST; i++)
        assert_non_null(held[i] = front_malloc(1000)); /* 6 MB, of 32 */
    assert_in_range(shared_pool_footprint(), 0, before + 2 * HAK_MIB);
    for (size_t i = 0; i < MOST; i++)
        front_free(held[i]);
    check_cache(cache);
}

static void test_huge(void)
{
    struct thread_cache *cache = begin();
    void *first, *second;

    batches(UNIT_SIZE, 500);
    first = front_malloc(3 * HAK_MIB);
    assert_int_equal(deep_held(cache), 0);
    second = front_malloc(40 * HAK_MIB);
    assert_in_range(shared_pool_footprint(), 43 * HAK_MIB, 64 * HAK_MIB);
    front_free(first);
    front_free(second);
    check_cache(cache);
}

static void test_first_class_heap(void)
{
    struct thread_cache *cache = begin();
    struct heap *heap = front_heap_new();
    size_t before, count;

    assert_non_null(heap);
    batches(UNIT_SIZE, 500);
    before = shared_pool_footprint();
    for (count = 0; count < 400; count++)
        assert_non_null(front_heap_aligned_alloc(heap, BLOCK_ALIGN, 2 * UNIT_SIZE, false));
    assert_in_range(shared_pool_footprint(), 0, base_max(before, 400 * 2 * UNIT_SIZE) + 4 * HAK_MIB);
    front_heap_destroy(heap);
    check_cache(cache);
}

static void test_tick(void)
{
    struct thread_cache *cache = begin();

    batches(UNIT_SIZE, 500);
    for (unsigned i = 0; i < 4; i++) {
        fake_advance(hak_options.purge_delay * 1000000ull);
        front_free(front_malloc(16 * UNIT_SIZE));
        batch(3000, 200);
    }
    assert_int_equal(cache_count(cache, CLASS_SPAN_1), 0);
    assert_in_range(shared_pool_footprint(), 0, 4 * HAK_MIB);
    check_cache(cache);
}

static void test_collect(void)
{
    struct thread_cache *cache = begin();

    batches(UNIT_SIZE, 500);
    assert_true(front_collect(true) > 30 * HAK_MIB);
    assert_int_equal(cache->deep_bytes, 0);
    check_cache(cache);
}

/* The shrinking hand closes a deep bin that is no longer in use. */
static void test_hand(void)
{
    struct thread_cache *cache = begin();

    batches(UNIT_SIZE, 100);
    assert_true(is_deep(cache, CLASS_SPAN_1));
    for (unsigned round = 0; round < 40; round++)
        batch(100, MOST);
    assert_false(is_deep(cache, CLASS_SPAN_1));
    assert_int_equal(cache->bins[CLASS_SPAN_1].limit, size_classes[CLASS_SPAN_1].slot_base);
    check_cache(cache);
}

/* ---- Where there are none ---- */

static void test_hard_limit(void)
{
    struct thread_cache *cache = begin();

    hak_options.memory_limit = 64 * HAK_MIB;
    batches(UNIT_SIZE, 500);
    batches(16 * UNIT_SIZE, 50);
    assert_int_equal(cache->deep_bytes, 0);
}

/* Deep bins serve calls that the profile counts, too (T8). */
static void test_profile(void)
{
    struct thread_cache *cache = begin();

    batches(UNIT_SIZE, 100);
    assert_true(cache->deep_bytes > 0);
    assert_int_equal(front_profile_set(1 * HAK_MIB), 0);
    batches(UNIT_SIZE, 100);
    assert_true(deep_held(cache) > 0);
    check_cache(cache);
    assert_int_equal(front_profile_set(0), 0);
    batches(UNIT_SIZE, 100);
    assert_true(deep_held(cache) > 0);
    front_collect(true);
    check_cache(cache);
}

/* Samples take other memory than the cache's blocks, and in some rounds more than ever before. The footprint grows for
 * them, which closes no deep bin. */
static void test_samples_grow(void)
{
    enum { EACH = 1000, SIZES = 5, ROUNDS = 60 };
    struct thread_cache *cache = begin();
    uint64_t before = 0;

    shared_pool.attended = true; /* else what waits leaves earlier (N7) */
    assert_int_equal(front_profile_set(512 * HAK_KIB), 0);
    for (size_t round = 0; round < 2 * ROUNDS; round++) {
        before = round == ROUNDS ? refills_of(cache) : before;
        for (size_t i = 0; i < SIZES * EACH; i++)
            assert_non_null(held[i] = front_malloc((size_t)2048 << i / EACH));
        for (size_t i = 0; i < SIZES * EACH; i++)
            front_free(held[i]);
    }
    assert_in_range(refills_of(cache) - before, 0, ROUNDS * SIZES * EACH / 50); /* 98 % are hits */
    check_cache(cache);
    assert_int_equal(front_profile_set(0), 0);
}

/* Runs in a second thread, which has no deep bins. */
static void *has_none(void *until)
{
    struct thread_cache *cache = thread_cache_get();

    batches(UNIT_SIZE, 500);
    assert_int_equal(cache->deep_bytes, 0);
    assert_false(cache->deep_room);
    if (until) {
        pthread_barrier_wait(until);
        pthread_barrier_wait(until);
    }
    return NULL;
}

/* A thread gives up its deep bins before it makes another thread. Neither has deep bins while both live. */
static void test_thread_made(void)
{
    struct thread_cache *cache = begin();
    pthread_barrier_t until;
    pthread_t thread;

    pthread_barrier_init(&until, NULL, 2);
    batches(UNIT_SIZE, 500);
    thread_expect();
    assert_int_equal(cache->deep_bytes, 0);
    pthread_create(&thread, NULL, has_none, &until);
    pthread_barrier_wait(&until);
    batches(UNIT_SIZE, 500);
    assert_int_equal(cache->deep_bytes, 0);
    pthread_barrier_wait(&until);
    pthread_join(thread, NULL);
    /* The thread is alone again. */
    batches(UNIT_SIZE, 500);
    assert_true(deep_held(cache) > 16 * HAK_MIB);
    check_cache(cache);
}

/* The first cache gives up its deep bins at its next slow call, even if thread_expect was not called. */
static void test_thread_found(void)
{
    struct thread_cache *cache = begin();
    pthread_t thread;

    batches(UNIT_SIZE, 500);
    pthread_create(&thread, NULL, has_none, NULL);
    pthread_join(thread, NULL);
    assert_true(deep_held(cache) > 0);
    registry_expect_thread();
    front_free(front_malloc(100));
    front_free(front_malloc(16 * UNIT_SIZE));
    assert_int_equal(cache->deep_bytes, 0);
    check_cache(cache);
}

/* The child of a fork keeps the parent's deep bins. */
static void test_fork(void)
{
    struct thread_cache *cache = begin();
    pid_t child;
    int status;

    batches(UNIT_SIZE, 500);
    child = fork();
    if (child == 0) {
        for (unsigned round = 0; round < 10; round++)
            batch(UNIT_SIZE, 500);
        front_collect(true);
        _exit(cache->deep_bytes == 0 ? 7 : 8);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check_cache(cache);
}

/* ---- Misuse ---- */

static void free_again(void)
{
    void *block = front_malloc(12 * UNIT_SIZE);

    front_free(block);
    front_free(block);
}

static void test_double_free(void)
{
    begin();
    batches(12 * UNIT_SIZE, 20);
    assert_aborts(free_again, "freed already; size class 786432");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_batches),
        core_unit_test(test_sizes_in_turn),
        core_unit_test(test_first_bytes),
        core_unit_test(test_wanted_late),
        core_unit_test(test_most),
        core_unit_test(test_cap),
        core_unit_test(test_other_class),
        core_unit_test(test_small_blocks),
        core_unit_test(test_huge),
        core_unit_test(test_first_class_heap),
        core_unit_test(test_tick),
        core_unit_test(test_collect),
        core_unit_test(test_hand),
        core_unit_test(test_hard_limit),
        core_unit_test(test_profile),
        core_unit_test(test_samples_grow),
        core_unit_test(test_thread_made),
        core_unit_test(test_thread_found),
        core_unit_test(test_fork),
        core_unit_test(test_double_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
