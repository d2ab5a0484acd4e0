/* Protects the runs by which caches count calls (T8): one of steady length begins without the heap and its lock. */
#include "heaps.h"

#include "front/fast.h"
#include "front/sample.h"
#include "front/thread.h"

enum { DEPTH = 8, SIZE = 64 };

/* Begins a profile whose samples are too far apart to come. Calls of all classes are counted from then on. */
static struct thread_cache *begin(void)
{
    struct thread_cache *cache = thread_cache_get();

    assert_non_null(cache);
    assert_int_equal(front_profile_set(UINT64_C(1) << 40), 0);
    front_free(front_malloc(SIZE));
    front_collect(false); /* the thread's cache joins the profile */
    return cache;
}

/* Takes and frees DEPTH blocks. Returns how many of them began a run of steady length. */
static unsigned take_and_free(struct thread_cache *cache)
{
    void *held[DEPTH];
    unsigned steady = 0;

    for (unsigned i = 0; i < DEPTH; i++) {
        held[i] = cache_run_left(cache, CLASS_64) == 0 ? cache_serve_steady(cache, CLASS_64) : NULL;
        steady += held[i] != NULL;
        if (held[i] == NULL)
            held[i] = front_malloc(SIZE);
        assert_non_null(held[i]);
    }
    for (unsigned i = 0; i < DEPTH; i++)
        front_free(held[i]);
    return steady;
}

static void test_steady(void)
{
    struct thread_cache *cache = begin();
    unsigned steady = 0;

    for (unsigned round = 0; round < 1000; round++)
        steady += take_and_free(cache);
    assert_true(steady >= 100); /* runs of up to 64 calls */
    while (cache_run_left(cache, CLASS_64) != 0)
        assert_non_null(front_malloc(SIZE));
    atomic_fetch_add(&cache_flushes, 1); /* as a tick does: the cache is to be flushed */
    assert_null(cache_serve_steady(cache, CLASS_64));
    assert_non_null(front_malloc(SIZE));
    assert_int_equal(cache->tick, cache_flush_number());
}

int main(void)
{
    const struct CMUnitTest tests[] = { core_unit_test(test_steady) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
