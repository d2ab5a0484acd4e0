/* Protects the runs by which caches count calls (T8): their begin without the heap's lock, and which caches count. */
#include "heaps.h"

#include <pthread.h>
#include <signal.h>

#include "front/fast.h"
#include "front/sample.h"
#include "front/thread.h"
#include "profile/profile.h"

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

/* Begins a run of steady length if the call for a block can. It leaves a call that is the first after the hand passed,
 * or after an overflow, to the slower way, which notes them. */
static void *serve_steady(struct thread_cache *cache)
{
    uint8_t busy = cache->busy[CLASS_64], overflows = cache->overflows[CLASS_64];

    cache->busy[CLASS_64] = 0;
    assert_null(cache_serve_steady(cache, CLASS_64));
    cache->busy[CLASS_64] = 1;
    cache->overflows[CLASS_64] = 1;
    assert_null(cache_serve_steady(cache, CLASS_64));
    cache->busy[CLASS_64] = busy;
    cache->overflows[CLASS_64] = overflows;
    return cache_serve_steady(cache, CLASS_64);
}

/* Takes and frees DEPTH blocks. Returns how many of them began a run of steady length. */
static unsigned take_and_free(struct thread_cache *cache)
{
    void *held[DEPTH];
    unsigned steady = 0;

    for (unsigned i = 0; i < DEPTH; i++) {
        held[i] = cache_run_left(cache, CLASS_64) == 0 ? serve_steady(cache) : NULL;
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

/* Takes and frees a block `calls` times. Returns how many different blocks it got. `seen` has room for `most`. */
static unsigned different_blocks(unsigned calls, void **seen, unsigned most)
{
    unsigned count = 0, at;

    for (unsigned i = 0; i < calls; i++) {
        void *block = front_malloc(512);
        for (at = 0; at < count && seen[at] != block; at++)
            ;
        if (at == count && count < most)
            seen[count++] = block;
        front_free(block);
    }
    return count;
}

/* Where blocks come back, runs get more blocks from the heap only after many calls: a thread that makes few calls
 * touches few blocks. */
static void test_runs_grow_late(void)
{
    void *seen[256] = { NULL };

    begin();
    assert_true(different_blocks(100, seen, 256) <= 16);
    assert_true(different_blocks(40000, seen, 256) >= 32);
}

/* A thread that only takes blocks gets long runs soon. */
static void test_runs_of_what_is_built(void)
{
    struct thread_cache *cache = begin();
    unsigned longest = 0;
    void *held[1000];

    for (unsigned i = 0; i < 1000; i++) {
        held[i] = front_malloc(512);
        longest = (unsigned)base_max(longest, cache->run_count[CLASS_512]);
    }
    assert_true(longest >= size_classes[CLASS_512].run_limit - 4u);
    for (unsigned i = 0; i < 1000; i++)
        front_free(held[i]);
}

/* ---- A flush in the midst of a start ---- */

static struct {
    struct thread_cache *cache; /* of a thread that waits */
    pthread_barrier_t begun, over;
    uint32_t generation; /* before the start */
    unsigned flushes;
} other;

static void *wait_with_a_cache(void *unused)
{
    (void)unused;
    other.cache = thread_cache_get();
    pthread_barrier_wait(&other.begun);
    pthread_barrier_wait(&other.over);
    return NULL;
}

/* Runs after each instruction: flushes the other cache where the generation has changed and no samples are drawn. */
static void on_step(int unused)
{
    (void)unused;
    if (profile_generation() == other.generation || profile_drawing())
        return;
    other.flushes++;
    cache_flush_all(other.cache, false);
}

/* ThreadSanitizer delays signals. */
#if defined(__x86_64__)
#define STEPS (!HAK_THREAD_SANITIZER)
#else
#define STEPS false
#endif

static void step(bool on)
{
#if defined(__x86_64__)
    const unsigned long long trap = 0x100;
    unsigned long long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on && STEPS ? flags | trap : flags & ~trap);
#else
    (void)on;
#endif
}

/* A cache that is flushed while a profile starts counts calls after its next flush (Z3). */
static void test_flush_during_a_start(void)
{
    struct sigaction action = { .sa_handler = on_step };
    pthread_t thread;

    begin();
    pthread_barrier_init(&other.begun, NULL, 2);
    pthread_barrier_init(&other.over, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, wait_with_a_cache, NULL), 0);
    pthread_barrier_wait(&other.begun);
    assert_int_equal(front_profile_set(0), 0);
    cache_flush_all(other.cache, false);
    assert_false(cache_counts(other.cache));
    other.generation = profile_generation();
    assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
    step(true);
    assert_int_equal(front_profile_set(UINT64_C(1) << 40), 0);
    step(false);
    assert_true(other.flushes != 0 || !STEPS);
    cache_flush_all(other.cache, false);
    assert_true(cache_counts(other.cache));
    pthread_barrier_wait(&other.over);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_steady),
        core_unit_test(test_runs_grow_late),
        core_unit_test(test_runs_of_what_is_built),
        core_unit_test(test_flush_during_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
