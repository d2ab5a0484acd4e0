/* Protects front/seats.c: calls past the thread's cache, and threads without one. */
#include "heaps.h"

#include <errno.h>
#include <string.h>

#include "front/fast.h"
#include "front/process.h"
#include "front/seats.h"
#include "front/thread.h"
#include "front/thread_cache.h"

static struct thread_cache *cache;

static void begin(char *setting)
{
    static char *environment[3] = { "HAKMEM_ABORT_ON_MISUSE=0" };

    environment[1] = setting;
    fake_set_environment(environment);
    assert_true(process_init());
    cache = thread_cache_get();
    assert_non_null(cache);
}

static size_t cached_blocks(void)
{
    size_t count = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        count += cache_count(cache, class);
    return count;
}

static void assert_zero(const char *block, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (block[at] != 0)
            fail_msg("byte %zu is %d", at, block[at]);
}

/* ---- Past the cache ---- */

static const size_t sizes[] = { 1, 100, 1000, 5000, 60000, 65536, 65537, 500000, 1048576, 1048577, 5000000 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Neither the block that a call takes nor the one that it gives back passes through the cache. */
static void test_past_the_cache(void)
{
    begin(NULL);
    for (unsigned round = 0; round < 4; round++)
        for (size_t i = 0; i < SIZES; i++)
            for (size_t alignment = 1; alignment <= 4 * HAK_MIB; alignment *= 8) {
                char *block = front_uncached_alloc(alignment, sizes[i], round % 2);
                assert_non_null(block);
                assert_int_equal((uintptr_t)block % alignment, 0);
                assert_true(front_usable_size(block, "malloc_usable_size") >= sizes[i]);
                if (round % 2)
                    assert_zero(block, sizes[i]);
                memset(block, 0x5a, sizes[i]);
                front_uncached_free(block, "dallocx");
                assert_int_equal(cached_blocks(), 0);
            }
}

static void test_refused(void)
{
    begin(NULL);
    errno = 0;
    assert_null(front_uncached_alloc(16, SIZE_MAX, false));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(front_uncached_alloc((size_t)1 << 63, 16, false));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    fake_fail_from(FAKE_ANY, 1);
    assert_null(front_uncached_alloc(16, (size_t)1 << 30, false));
    assert_int_equal(errno, ENOMEM);
}

/* ---- Threads without a cache ---- */

/* Neither allocating nor freeing gives the thread a cache, and its blocks are the house heap's. */
static void test_without_a_cache(void)
{
    void *blocks[SIZES], *before;

    begin(NULL);
    before = front_malloc(100);
    front_set_thread_cached(false);
    front_set_thread_cached(false);
    for (size_t i = 0; i < SIZES; i++)
        assert_non_null(blocks[i] = front_malloc(sizes[i]));
    assert_ptr_equal(slab_of(blocks[0])->owner, registry.house);
    front_free(before);
    for (size_t i = 0; i < SIZES; i++)
        front_free(blocks[i]);
    front_uncached_free(front_uncached_alloc(16, 100, false), "dallocx");
    front_thread_idle();
    assert_null(thread_cache_get());
    assert_null(cache_current()->heap);
    front_set_thread_cached(true);
    front_set_thread_cached(true);
    front_free(front_malloc(100));
    assert_non_null(cache_current()->heap);
}

/* A thread that ends keeps the retired cache, whatever it sets then. */
static void test_without_a_cache_at_the_end(void)
{
    begin(NULL);
    thread_release();
    cache_set_current(WINDOW_RETIRED_CACHE);
    front_set_thread_cached(false);
    front_set_thread_cached(true);
    assert_null(thread_cache_get());
}

/* ---- Heaps and delays ---- */

/* A heap's empty slabs go to the pool. */
static void test_collect(void)
{
    enum { BLOCKS = 2000 };
    static void *blocks[BLOCKS];
    struct heap *heap;
    size_t before;

    begin(NULL);
    heap = front_heap_new();
    before = shared_pool.units_used;
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_non_null(blocks[i] = front_heap_aligned_alloc(heap, 16, 400, false));
    for (unsigned i = 0; i < BLOCKS; i++)
        front_free(blocks[i]);
    front_heap_collect(heap);
    assert_int_equal(shared_pool.units_used, before);
    front_heap_destroy(heap);
}

static void test_purge_delay(void)
{
    begin(NULL);
    front_set_purge_delay(1234);
    assert_int_equal(front_purge_delay(), 1234);
    assert_int_equal(hak_options.purge_delay, 1234);
}

/* A tick purges memory that has waited for the delay, and no younger memory. */
static void test_decay(void)
{
    char *block;

    begin("HAKMEM_PURGE_DELAY=1000");
    block = front_uncached_alloc(16, 500000, false);
    memset(block, 1, 500000);
    front_uncached_free(block, "dallocx");
    front_heap_collect(cache->heap);
    front_decay();
    assert_true(core_resident(block, 500000) >= 400000);
    fake_advance(1001 * MILLISECOND);
    front_decay();
    assert_int_equal(core_resident(block, 500000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_past_the_cache),
        core_unit_test(test_refused),
        core_unit_test(test_without_a_cache),
        core_unit_test(test_without_a_cache_at_the_end),
        core_unit_test(test_collect),
        core_unit_test(test_purge_delay),
        core_unit_test(test_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
