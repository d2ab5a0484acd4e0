/* Protects the profile of calls that caches count: the sums for each site match what the site did. */
#include "heaps.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "front/fast.h"
#include "front/sample.h"
#include "front/housekeeping.h"
#include "front/thread.h"
#include "profile/profile.h"

/* ---- Calls that caches count ---- */

/* The sum over sites whose leaf is `leaf`, in blocks. */
static struct site_sums in_use_of(const void *leaf, bool allocated)
{
    struct site_sums sums = { 0, 0 };

    for (struct site *site = profile_sites.first; site; site = site->next)
        if (site->frame_count && site->frames[0] == (uintptr_t)leaf + 1) {
            sums.objects += allocated ? site->allocated.objects : site->in_use.objects;
            sums.bytes += allocated ? site->allocated.bytes : site->in_use.bytes;
        }
    return sums;
}

static void *allocate_at(const void *leaf, size_t size)
{
    void *block;

    profile_site = leaf;
    block = front_malloc(size);
    profile_site = NULL;
    assert_non_null(block);
    return block;
}

/* T8: a run holds only blocks, no more than at its start, and nothing below it. No sample is due before its end. */
static void check_runs(void)
{
    const struct thread_cache *cache = cache_current();

    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        unsigned base = size_classes[class].run_base, left = cache_run_left(cache, class);
        assert_null(cache->slots[base]);
        assert_true(left <= cache->run_count[class] && cache->run_count[class] <= size_classes[class].run_limit);
        for (unsigned at = base + 1; at <= base + left; at++)
            assert_int_equal(window_page_map()[window_unit(cache->slots[at])], class);
        if (left)
            assert_true(cache->countdowns.left[class] >= (int64_t)class_size(class) * cache->run_count[class]);
    }
}

/* The estimate of `truth` blocks lies within 5 standard deviations of it. */
static void check_estimate(const char *name, struct site_sums sums, size_t size, uint64_t mean, double truth)
{
    double weight = (double)draw_weight(mean, size) / (double)WEIGHT_ONE;
    double estimate = (double)sums.objects / (double)WEIGHT_ONE, sigma = sqrt(truth * (weight - 1));

    print_message("%s, %zu bytes: %.0f blocks, estimated %.0f, %.2f sigma\n", name, size, truth, estimate,
                  sigma > 0 ? (estimate - truth) / sigma : 0);
    assert_true(fabs(estimate - truth) <= 5 * sigma + 1);
}

static const char site_a[1], site_b[1], site_c[1];

/* One site churns, another keeps its blocks. Samples taken only at refills would nearly all be the churn's. */
static void churn_and_keep(size_t size, uint64_t mean, unsigned keeps, unsigned churn, unsigned depth)
{
    void **kept = malloc(keeps * sizeof *kept), *held[64];
    size_t block_size = front_good_size(size);

    assert_non_null(kept);
    assert_int_equal(churn % depth, 0);
    assert_int_equal(front_profile_set(mean), 0);
    front_collect(false);
    for (unsigned i = 0; i < keeps; i++) {
        for (unsigned n = 0; n < churn; n += depth) {
            for (unsigned d = 0; d < depth; d++)
                held[d] = allocate_at(site_a, size);
            for (unsigned d = 0; d < depth; d++)
                front_free(held[d]);
        }
        kept[i] = allocate_at(site_b, size);
    }
    check_runs();
    check_estimate("kept", in_use_of(site_b, false), block_size, mean, keeps);
    assert_int_equal(in_use_of(site_a, false).objects, 0);
    for (unsigned i = 0; i < keeps; i++)
        front_free(kept[i]);
    assert_int_equal(in_use_of(site_b, false).objects, 0);
    assert_int_equal(table_records(), 0);
    check_runs();
    assert_int_equal(front_profile_set(0), 0);
    free(kept);
}

/* The estimate of allocated blocks is as good as independent draws: over many short profiles its mean is within 5
 * standard errors of the truth, and its variance is that of independent draws. */
static void churn_and_count(size_t size, uint64_t mean, unsigned depth, unsigned rounds, bool cross)
{
    enum { EPISODES = 2000 / UNIT_FEWER };
    double weight = (double)draw_weight(mean, front_good_size(size)) / (double)WEIGHT_ONE, truth = depth * rounds;
    double sum = 0, squares = 0, average, variance, expected = truth * (weight - 1);
    void *held[64];

    core_begin();
    for (unsigned episode = 0; episode < EPISODES; episode++) {
        uint64_t before = in_use_of(site_a, true).objects;
        double estimate;
        assert_int_equal(front_profile_set(mean), 0);
        front_collect(false); /* the thread's cache joins the profile at once */
        for (unsigned round = 0; round < rounds; round++) {
            for (unsigned d = 0; d < depth; d++)
                held[d] = allocate_at(site_a, size);
            for (unsigned d = 0; d < depth; d++)
                front_free(held[cross && round % 2 ? depth - 1 - d : d]);
        }
        check_runs();
        estimate = (double)(in_use_of(site_a, true).objects - before) / (double)WEIGHT_ONE;
        sum += estimate;
        squares += estimate * estimate;
    }
    average = sum / EPISODES;
    variance = squares / EPISODES - average * average;
    print_message("allocated: %.0f, estimated %.2f, standard deviation %.2f where draws make it %.2f\n", truth, average,
                  sqrt(variance), sqrt(expected));
    assert_true(fabs(average - truth) <= 5 * sqrt(expected / EPISODES));
    assert_true(variance > expected * 0.7 && variance < expected * 1.4);
}

static void test_counts_one(void) { churn_and_count(64, 4096, 1, 360, false); }
static void test_counts_forty(void) { churn_and_count(64, 4096, 40, 9, true); }
static void test_counts_medium(void) { churn_and_count(3000, 65536, 3, 100, true); }
static void test_counts_large(void) { churn_and_count(30000, 262144, 2, 100, true); }

enum { MANY = 20000 / UNIT_FEWER };

static void test_churn_small(void) { core_begin(); churn_and_keep(64, 4096, MANY, 100, 1); }
static void test_churn_deep(void) { core_begin(); churn_and_keep(64, 4096, MANY, 120, 40); }
static void test_churn_medium(void) { core_begin(); churn_and_keep(3000, 65536, MANY, 50, 5); }
static void test_churn_span(void) { core_begin(); churn_and_keep(120000, 1048576, 2000, 100, 10); }
static void test_churn_uncached_span(void) { core_begin(); churn_and_keep(700000, 4194304, 300, 50, 1); }
static void test_churn_huge(void) { core_begin(); churn_and_keep(3 * HAK_MIB, 16 * HAK_MIB, 100, 20, 1); }
static void test_every_entry(void) { core_begin(); churn_and_keep(64, 1, 2000, 21, 7); }

/* A call that fails is no sample, whatever its size, and does not change the draw of the next one. */
static void test_failed_calls(void)
{
    enum { COUNT = 2000, SIZE = 3 * HAK_MIB };

    core_begin();
    assert_int_equal(front_profile_set(8 * HAK_MIB), 0);
    front_free(allocate_at(site_a, 100)); /* gives the thread a cache */
    assert_null(front_malloc((size_t)3 << 52));
    for (unsigned i = 0; i < COUNT; i++)
        front_free(allocate_at(site_c, SIZE));
    check_estimate("allocated", in_use_of(site_c, true), SIZE, 8 * HAK_MIB, COUNT);
}

/* ---- Calls between the allocation of a block and its free ---- */

static struct site *site_of(const void *leaf)
{
    struct site *site = profile_sites.first;

    while (site && (site->frame_count == 0 || site->frames[0] != (uintptr_t)leaf + 1))
        site = site->next;
    return site;
}

/* Each sample of the leaf's sites was freed by its thread after `between` calls. They are several sites if calls came
 * to a sample by several ways through the allocator, which is in the same object as the test. */
static void check_between(const void *leaf, unsigned between)
{
    uint64_t samples = 0;
    unsigned bucket = 0;

    while (between >> bucket)
        bucket++;
    for (const struct site *site = profile_sites.first; site; site = site->next) {
        if (site->frame_count == 0 || site->frames[0] != (uintptr_t)leaf + 1)
            continue;
        samples += site->allocated.objects;
        for (unsigned i = 0; i < OWN_BUCKETS; i++)
            assert_int_equal(site->own_freed[i], i == bucket ? site->allocated.objects : 0);
    }
    assert_true(samples >= 50 * WEIGHT_ONE);
}

/* The number of calls is exact: with runs of several classes under way, and with huge and aligned blocks among them. */
static void test_calls_between(void)
{
    static const unsigned betweens[] = { 0, 1, 2, 3, 7, 40, 300 };
    static const size_t others[] = { 16, 64, 64, 500, 3000, 30000, 200000, 3 * HAK_MIB };
    static const char leaves[sizeof betweens / sizeof betweens[0]];

    core_begin();
    assert_int_equal(front_profile_set(512), 0);
    front_collect(false);
    for (unsigned round = 0; round < 2100; round++) {
        unsigned which = round % (sizeof betweens / sizeof betweens[0]);
        void *block = allocate_at(&leaves[which], 200);
        for (unsigned i = 0; i < betweens[which]; i++)
            front_free(i % 8 == 7 ? front_aligned_alloc(4096, 5000) : front_malloc(others[(i + round) % 8]));
        front_free(block);
    }
    for (unsigned which = 0; which < sizeof betweens / sizeof betweens[0]; which++)
        check_between(&leaves[which], betweens[which]);
}

static void *free_it(void *block)
{
    front_free(block);
    thread_release();
    return NULL;
}

/* Another thread's free counts for nobody, and a block that outlives a profile was not freed soon. */
static void test_calls_between_are_unknown(void)
{
    const struct site *site;
    pthread_t thread;
    void *block;

    core_begin();
    assert_int_equal(front_profile_set(1), 0);
    front_collect(false);
    pthread_create(&thread, NULL, free_it, allocate_at(site_a, 100));
    pthread_join(thread, NULL);
    block = allocate_at(site_b, 100);
    assert_int_equal(front_profile_set(0), 0);
    front_free(front_malloc(100));
    assert_int_equal(front_profile_set(1), 0);
    front_collect(false);
    front_free(block);
    site = site_of(site_a);
    for (unsigned i = 0; i < OWN_BUCKETS; i++)
        assert_int_equal(site->own_freed[i], 0);
    assert_int_equal(site->lifetimes[0].objects, WEIGHT_ONE);
    assert_int_equal(site_of(site_b)->own_freed[OWN_BUCKETS - 1], WEIGHT_ONE);
}

/* Z4, and no call is a sample while the profile is off. */
static void test_no_sample(void)
{
    struct draw draw = { 0 };

    core_begin();
    assert_int_equal(profile_draw_call(&draw, 100), 0);
    assert_int_equal(front_profile_set(1), 0);
    assert_int_equal(profile_draw_call(&draw, 100), WEIGHT_ONE);
    assert_int_equal(profile_draw_call(NULL, 100), WEIGHT_ONE);
    profile_set_busy(true);
    assert_int_equal(profile_draw_call(&draw, 100), 0);
    assert_int_equal(profile_draw_call(NULL, 100), 0);
    profile_set_busy(false);
    assert_int_equal(profile_draw_call(&draw, 100), WEIGHT_ONE);
    assert_int_equal(front_profile_set(0), 0);
    assert_int_equal(profile_draw_call(&draw, 100), 0);
}

/* ---- Spans that are samples (Z9) ---- */

static void *free_span(void *block)
{
    front_free(block);
    return NULL;
}

static unsigned page_map_class(const void *block) { return window_page_map()[window_unit(block)]; }

/* A span that is a sample is the thread's own, and again an ordinary one after its free: by the same thread, by
 * another, by realloc, and after the profile has ended. */
static void test_sampled_spans_stay(void)
{
    const size_t size = 120000;
    unsigned class = class_of_size(size);
    pthread_t thread;
    void *plain, *block;

    core_begin();
    plain = front_malloc(size);
    front_free(plain);
    assert_int_equal(front_profile_set(1), 0);
    front_collect(false);
    for (unsigned way = 0; way < 4; way++) {
        block = allocate_at(site_a, size);
        assert_ptr_equal(atomic_load(&slab_of(block)->owner), cache_current()->heap);
        assert_int_equal(page_map_class(block), CLASS_NONE);
        assert_int_equal(table_records(), 1);
        assert_int_equal(front_usable_size(block, "malloc_usable_size"), class_size(class));
        if (way == 1) {
            pthread_create(&thread, NULL, free_span, block);
            pthread_join(thread, NULL);
        } else if (way == 2) {
            void *moved = front_realloc(block, 4 * size, "realloc");
            assert_int_equal(table_records(), 1);
            front_free(moved);
        } else {
            if (way == 3)
                assert_int_equal(front_profile_set(0), 0);
            front_free(block);
        }
        assert_int_equal(table_records(), 0);
        assert_int_equal(table_foreign(), 0);
        if (way == 0)
            assert_int_equal(page_map_class(block), class);
    }
    block = front_malloc(size);
    assert_int_equal(page_map_class(block), class);
    front_free(block);
}

/* A free of an address inside such a span is misuse, and the span stays a sample. So is a second free. */
static void test_sampled_spans_inside(void)
{
    const char *said;
    char *block;

    core_begin();
    hak_options.abort_on_misuse = 0;
    assert_int_equal(front_profile_set(1), 0);
    front_collect(false);
    block = allocate_at(site_a, 120000);
    capture_begin();
    front_free(block + BLOCK_ALIGN);
    front_free(block + UNIT_SIZE);
    said = capture_end();
    assert_int_equal(count_of(said, "not the start of a block"), 2);
    assert_int_equal(page_map_class(block), CLASS_NONE);
    assert_int_equal(table_records(), 1);
    front_free(block);
    assert_int_equal(table_records(), 0);
    front_collect(false); /* else the second free is that of the block freed last, which the fast path sees */
    capture_begin();
    front_free(block);
    said = capture_end();
    assert_int_equal(count_of(said, "freed already"), 1);
}

/* The sites' sums count such spans exactly if every block is a sample. */
static void test_sampled_spans_are_counted(void)
{
    enum { COUNT = 50 };
    void *held[COUNT];

    core_begin();
    assert_int_equal(front_profile_set(1), 0);
    front_collect(false);
    for (unsigned i = 0; i < COUNT; i++)
        held[i] = allocate_at(site_b, 70000 + 20000 * (size_t)i);
    assert_int_equal(in_use_of(site_b, false).objects, COUNT * WEIGHT_ONE);
    for (unsigned i = 0; i < COUNT; i++)
        front_free(held[i]);
    assert_int_equal(in_use_of(site_b, false).objects, 0);
    assert_int_equal(in_use_of(site_b, true).objects, COUNT * WEIGHT_ONE);
}

static struct thread_cache *sampled_cache;

static void *take_samples(void *unused)
{
    (void)unused;
    front_free(allocate_at(site_a, 4096));
    sampled_cache = cache_current();
    return sampled_cache->stacks;
}

/* The memory for an ended thread's stacks serves the next thread. */
static void test_stacks_serve_the_next(void)
{
    pthread_t thread;
    void *first, *second;

    core_begin();
    assert_int_equal(front_profile_set(1), 0);
    pthread_create(&thread, NULL, take_samples, NULL);
    pthread_join(thread, &first);
    assert_non_null(first);
    assert_null(sampled_cache->stacks);
    pthread_create(&thread, NULL, take_samples, NULL);
    pthread_join(thread, &second);
    assert_ptr_equal(second, first);
}

/* Off and on again: a block that outlives the pause is known when it is freed, and no call is sampled while off. */
static void test_off_and_on(void)
{
    enum { COUNT = 20000 };
    static void *held[COUNT];

    core_begin();
    for (unsigned round = 0; round < 4; round++) {
        assert_int_equal(front_profile_set(1024 << round), 0);
        front_collect(false); /* the thread's cache joins the profile at once */
        for (unsigned i = 0; i < COUNT; i++)
            held[i] = allocate_at(site_c, 256);
        assert_true(table_records() > 0);
        assert_int_equal(front_profile_set(0), 0);
        for (unsigned i = 0; i < COUNT; i++)
            front_free(held[i]);
        assert_int_equal(table_records(), 0);
        for (unsigned i = 0; i < COUNT; i++)
            held[i] = allocate_at(site_c, 256);
        assert_int_equal(table_records(), 0);
        check_runs();
        for (unsigned i = 0; i < COUNT; i++)
            front_free(held[i]);
        check_runs();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_counts_one),
        core_unit_test(test_counts_forty),
        core_unit_test(test_counts_medium),
        core_unit_test(test_counts_large),
        core_unit_test(test_churn_small),
        core_unit_test(test_churn_deep),
        core_unit_test(test_churn_medium),
        core_unit_test(test_churn_span),
        core_unit_test(test_churn_uncached_span),
        core_unit_test(test_churn_huge),
        core_unit_test(test_every_entry),
        core_unit_test(test_failed_calls),
        core_unit_test(test_calls_between),
        core_unit_test(test_calls_between_are_unknown),
        core_unit_test(test_no_sample),
        core_unit_test(test_sampled_spans_stay),
        core_unit_test(test_sampled_spans_inside),
        core_unit_test(test_sampled_spans_are_counted),
        core_unit_test(test_stacks_serve_the_next),
        core_unit_test(test_off_and_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
