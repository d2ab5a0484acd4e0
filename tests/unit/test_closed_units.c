/* Protects superslab/closed_units.h: freed spans stay closed until their units are used again, and open then. */
#include "heaps.h"

#include <string.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/process.h"
#include "front/thread.h"
#include "harden/bins.h"
#include "os/peek.h"
#include "superslab/closed_units.h"
#include "superslab/purge.h"

static struct thread_cache *cache;

/* Nothing is purged but by the test. */
static void begin(void)
{
    hak_options.purge_delay = 1000000;
    cache = core_begin_thread();
}

static bool can_read(const char *byte) { return os_can_read((uintptr_t)byte); }

static void flush_quarantine(void) { bins_flush(&cache->hardened, cache->slots, cache->heap, true); }

enum { COUNT = 24 };
static char *blocks[COUNT];

static void take_all(size_t size)
{
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(blocks[i] = front_malloc(size));
        memset(blocks[i], 0x5a, size);
    }
}

/* Frees all blocks, which then lie in their heap and in the shared pool. */
static void free_all(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i]);
    flush_quarantine();
}

static unsigned count_readable(void)
{
    unsigned readable = 0;

    for (unsigned i = 0; i < COUNT; i++)
        readable += can_read(blocks[i]);
    return readable;
}

/* The spans are zero when they are used again, and each was closed and opened once. */
static void test_until_used_again(void)
{
    uint64_t calls;

    begin();
    for (unsigned units = 1; units <= SPAN_MAX_UNITS; units += 5) {
        size_t size = units * UNIT_SIZE - 100;
        take_all(size);
        calls = fake_calls(FAKE_PROTECT);
        free_all();
        assert_int_equal(fake_calls(FAKE_PROTECT) - calls, COUNT);
        assert_int_equal(count_readable(), 0);
        core_check_pool();
        for (unsigned i = 0; i < COUNT; i++) {
            assert_non_null(blocks[i] = front_calloc(1, size));
            for (size_t at = 0; at < size; at += 16)
                assert_int_equal(blocks[i][at], 0);
            memset(blocks[i], 0x5a, size);
        }
        assert_true(fake_calls(FAKE_PROTECT) - calls <= 2 * COUNT);
        free_all();
        front_collect(true);
        assert_int_equal(count_readable(), 0);
        core_check_pool();
        core_check_untouched();
    }
}

/* Slabs of small blocks, and spans of other lengths, open the units that they take. */
static void test_other_use(void)
{
    static const size_t sizes[] = { 100, 5000, 50000, UNIT_SIZE, 2 * UNIT_SIZE, 4 * UNIT_SIZE, 7 * UNIT_SIZE,
                                    9 * UNIT_SIZE, 16 * UNIT_SIZE };
    enum { SIZES = sizeof sizes / sizeof sizes[0] };

    begin();
    chance_begin();
    for (unsigned round = 0; round < 30; round++) {
        take_all(sizes[chance_below(SIZES)]);
        core_check_pool();
        free_all();
        switch (chance_below(3)) {
        case 0:
            front_collect(false);
            break;
        case 1:
            front_collect(true);
            break;
        }
        core_check_pool();
        core_check_untouched();
    }
}

/* Closes spans of 1 unit, often enough for fences, and gives all to the shared pool. Returns one's SuperSlab. */
static uint32_t close_and_empty(void)
{
    uint32_t number;

    take_all(UNIT_SIZE - 100);
    number = window_slot_of(blocks[0]);
    for (unsigned round = 0; round < 20; round++) {
        free_all();
        take_all(UNIT_SIZE - 100);
    }
    free_all();
    assert_true(fake_calls(FAKE_FENCE) > 0);
    lock_acquire(&cache->heap->lock);
    heap_release_warm(cache->heap);
    lock_release(&cache->heap->lock);
    return number;
}

/* A SuperSlab that becomes EMPTY opens as a whole for slabs of another length, also when its header was purged. */
static void emptied(bool purged)
{
    struct slab *slabs[2 * COUNT];
    size_t count = 0;
    uint32_t number;

    begin();
    number = close_and_empty();
    assert_int_equal(shared_pool.slots[number].free, POOL_ALL_UNITS);
    assert_int_equal(count_readable(), 0);
    if (purged)
        purge_run(true);
    assert_int_equal(shared_pool.slots[number].touched == 0, purged);
    while (count < 2 * COUNT && shared_pool.slots[number].free == POOL_ALL_UNITS)
        core_acquire(4, 1, 1, &slabs[count++]);
    assert_true(shared_pool.slots[number].free != POOL_ALL_UNITS);
    for (size_t i = 0; i < count; i++) {
        core_touch(slabs[i]);
        assert_true(guard_units_lie_behind(slabs[i]));
        assert_false(can_read(slabs[i]->start + 4 * UNIT_SIZE));
        core_release(slabs[i]);
    }
    core_check_pool();
}

static void test_emptied(void) { emptied(false); }
static void test_emptied_and_purged(void) { emptied(true); }

/* Memory that the kernel refuses to open is not given out, and is not lost. */
static void test_refused(void)
{
    char *block;

    begin();
    take_all(5 * UNIT_SIZE - 100);
    free_all();
    fake_fail_from(FAKE_PROTECT, 1);
    for (unsigned i = 0; i < COUNT; i++) {
        block = front_malloc(5 * UNIT_SIZE - 100);
        if (block)
            memset(block, 1, 5 * UNIT_SIZE - 100);
    }
    fake_fail_nothing();
    core_check_pool();
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(block = front_malloc(5 * UNIT_SIZE - 100));
        memset(block, 1, 5 * UNIT_SIZE - 100);
    }
    core_check_pool();
}

/* Takes spans, and writes a page of each. */
static void take_little(size_t size)
{
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(blocks[i] = front_malloc(size));
        for (size_t at = 0; at < size; at += 4096)
            assert_int_equal(blocks[i][at], 0);
        blocks[i][4096 * i] = 1;
    }
}

/* Spans that programs hardly write to are closed by guards: they have no memory, and count as untouched. */
static void test_guarded(void)
{
    struct bins *bins;

    begin();
    bins = &cache->hardened;
    for (unsigned round = 0; round < 20; round++) {
        take_little(3 * UNIT_SIZE - 100);
        for (unsigned i = 0; i < COUNT; i++)
            front_free(blocks[i]);
    }
    assert_true(bins->spans.guarded != 0);
    flush_quarantine();
    assert_int_equal(count_readable(), 0);
    lock_acquire(&cache->heap->lock);
    heap_release_warm(cache->heap);
    lock_release(&cache->heap->lock);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(core_resident(blocks[i], 3 * UNIT_SIZE), 0);
    core_check_pool();
    core_check_untouched();
}

/* Longer ones are purged and closed by os_protect, once there are fences beside them: a guard would cost more. */
static void test_little_between_fences(void)
{
    uint64_t guards = 0, purges = 0;

    begin();
    for (unsigned round = 0; round < 60; round++) {
        take_little(14 * UNIT_SIZE - 100);
        if (round == 50) {
            guards = fake_calls(FAKE_GUARD);
            purges = fake_calls(FAKE_PURGE);
        }
        free_all();
        assert_int_equal(count_readable(), 0);
        core_check_pool();
    }
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(core_resident(blocks[i], 14 * UNIT_SIZE), 0);
    assert_true(fake_calls(FAKE_FENCE) > 0);
    assert_true(fake_calls(FAKE_PURGE) - purges >= 10 * COUNT);
    assert_true(fake_calls(FAKE_GUARD) - guards <= COUNT);
}

/* Fences are made for places where spans are closed often, once each. */
static void test_fences(void)
{
    uint64_t fences;

    begin();
    (void)close_and_empty();
    fences = fake_calls(FAKE_FENCE);
    assert_true(fences <= 2 * COUNT);
    for (unsigned round = 0; round < 20; round++) {
        take_all(UNIT_SIZE - 100);
        free_all();
    }
    assert_true(fake_calls(FAKE_FENCE) <= 3 * COUNT);
    core_check_pool();
}

/* Each mapping counts: only the first SuperSlabs keep spans closed by os_protect, or get fences. */
static void test_mappings_are_bounded(void)
{
    enum { SLABS = 15 * 520 };
    static struct slab *slabs[SLABS];
    uint64_t fences = 0;

    begin();
    core_acquire(1, 1, SLABS, slabs);
    for (unsigned i = 0; i < SLABS; i++) {
        bool first = window_slot_of(slabs[i]) - window_slots_begin() < 512;
        assert_int_equal(closed_units_may_stay(slabs[i], CLOSED_BY_PROTECT), first);
        assert_true(closed_units_may_stay(slabs[i], CLOSED_BY_GUARD));
        fences = fake_calls(FAKE_FENCE);
        for (unsigned times = 0; times < 10; times++)
            closed_units_fence(slabs[i]);
        if (!first)
            assert_int_equal(fake_calls(FAKE_FENCE), fences);
    }
    assert_true(fences > 15 * 500);
    assert_true(fences <= 16 * 512);
}

/* Behind the first SuperSlabs a guard, which takes no mapping, replaces os_protect as a span leaves. Kernels without
 * guards open the span. */
static void behind_the_first(bool guards)
{
    enum { SLABS = 15 * 513 };
    static struct slab *slabs[SLABS];
    uint64_t protects;

    begin();
    core_acquire(1, 1, SLABS, slabs);
    take_all(4 * UNIT_SIZE - 100);
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(window_slot_of(blocks[i]) - window_slots_begin() >= 512);
    if (!guards)
        fake_fail_from(FAKE_GUARD, 1);
    protects = fake_calls(FAKE_PROTECT);
    free_all();
    assert_int_equal(fake_calls(FAKE_PROTECT) - protects, 2 * COUNT);
    assert_int_equal(count_readable(), guards ? 0 : COUNT);
    fake_fail_nothing();
    core_check_pool();
    take_all(4 * UNIT_SIZE - 100);
    for (unsigned i = 0; i < COUNT; i++)
        front_free(blocks[i]);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(blocks[i] = front_malloc(4 * UNIT_SIZE - 100));
        for (size_t at = 0; at < 4 * UNIT_SIZE - 100; at += 16)
            assert_int_equal(blocks[i][at], 0);
    }
    core_check_pool();
}

static void test_behind_the_first(void) { behind_the_first(true); }
static void test_behind_the_first_without_guards(void) { behind_the_first(false); }

/* Where freed memory is not zeroed, or no guard unit lies between slabs, spans are opened as they leave. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_until_used_again),     core_unit_test(test_other_use),
        core_unit_test(test_emptied),              core_unit_test(test_emptied_and_purged),
        core_unit_test(test_refused),              core_unit_test(test_guarded),
        core_unit_test(test_little_between_fences),
        core_unit_test(test_fences),               core_unit_test(test_mappings_are_bounded),
        core_unit_test(test_behind_the_first),
        core_unit_test(test_behind_the_first_without_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
