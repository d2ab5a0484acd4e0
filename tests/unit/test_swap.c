/* Protects V8 (front/thread_cache.h): the two stacks of libhakmem-secure, and the checks of blocks that move. */
#include "heaps.h"

#include <string.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/thread.h"

static struct thread_cache *cache;

static void begin(void) { cache = core_begin_thread(); }

enum { BLOCKS = 800 };
static char *blocks[BLOCKS];

static void take_blocks(size_t size, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_non_null(blocks[i] = front_malloc(size));
}

/* A request whose seal fits behind it has its class. */
static unsigned class_for(size_t size) { return class_of_size(size + SEAL_BYTES); }

static void use(size_t size, unsigned count)
{
    take_blocks(size, count);
    for (unsigned i = 0; i < count; i++)
        front_free(blocks[i]);
}

/* malloc takes from the run, free puts into the bin. No block is in both, or twice. */
static void test_two_stacks(void)
{
    unsigned class = class_for(248), count = 0;
    static void *seen[2 * BLOCKS];

    begin();
    use(248, BLOCKS);
    for (unsigned i = 0; i < cache_count(cache, class); i++)
        seen[count++] = cache->slots[cache->base[class] + 1 + i];
    for (unsigned i = 0; i < cache_run_left(cache, class); i++)
        seen[count++] = cache->slots[size_classes[class].run_base + 1 + i];
    assert_int_equal(count, cache_blocks(cache, class));
    assert_true(cache_count(cache, class) > 0);
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < i; k++)
            assert_ptr_not_equal(seen[i], seen[k]);
}

/* A freed block serves malloc only after 32 others were freed, and then soon. */
static void test_delay(void)
{
    unsigned class = class_for(248), between = 0;
    char *freed;

    begin();
    use(248, BLOCKS);
    take_blocks(248, 2);
    assert_true(cache->bins[class].limit - cache->base[class] >= 64);
    freed = blocks[1];
    front_free(freed);
    for (; between < 100000; between++) {
        char *block = front_malloc(248);
        if (block == freed)
            break;
        front_free(block);
    }
    assert_in_range(between, 32, 512);
    freed = front_malloc(248);
    front_free(freed);
    for (unsigned i = 0; i < 300; i++)
        assert_ptr_not_equal(front_malloc(248), freed); /* none was freed since */
}

/* What waits leaves room for what serves: a thread beside others that takes and frees 12 large blocks in turn, of which
 * it would cache 16 in the other libraries, soon moves none to and from its slabs. */
static void test_room_beside_what_waits(void)
{
    uint64_t refilled, flushed;

    begin();
    atomic_store(&heap_signals.several, true); /* no deep bins */
    for (unsigned i = 0; i < 16; i++)
        use(20000, 12);
    refilled = cache->heap->body->counters.refilled_blocks;
    flushed = cache->heap->body->counters.flushed_blocks;
    for (unsigned i = 0; i < 32; i++)
        use(20000, 12);
    assert_int_equal(cache->heap->body->counters.refilled_blocks, refilled);
    assert_int_equal(cache->heap->body->counters.flushed_blocks, flushed);
}

/* Blocks that were freed one after the other do not come back so. */
static void test_order(void)
{
    unsigned neighbours = 0, found = 0;

    begin();
    use(248, BLOCKS);
    for (unsigned i = 0, last = 0; i < 64; i++) {
        const char *block = front_malloc(248);
        unsigned at = 0;
        while (at < BLOCKS && blocks[at] != block)
            at++;
        if (at == BLOCKS)
            continue;
        found++;
        neighbours += at + 1 == last || at == last + 1;
        last = at;
    }
    assert_true(found >= 32);
    assert_in_range(neighbours, 0, found / 4);
}

/* When memory is out, malloc takes blocks that wait, and fails when there are none. */
static void test_memory_is_out(void)
{
    unsigned taken = 0;

    begin();
    take_blocks(248, 8);
    fake_fail_from(FAKE_ANY, 1);
    for (; front_malloc(248) != NULL; taken++)
        assert_true(taken < 1000000);
    for (unsigned i = 0; i < 8; i++)
        front_free(blocks[i]);
    for (unsigned i = 0; i < 8; i++)
        assert_non_null(front_malloc(248));
    assert_int_equal(cache_blocks(cache, class_for(248)), 0);
    assert_null(front_malloc(248));
    fake_fail_nothing();
    assert_non_null(front_malloc(248));
}

/* Calls that the fast path served are counted by the time that the cache is empty. */
static void test_hits(void)
{
    const struct class_counters *counters;

    begin();
    counters = &cache->heap->classes[class_for(248)];
    use(248, BLOCKS);
    cache_flush_all(cache, true);
    assert_int_equal(cache_blocks(cache, class_for(248)), 0);
    assert_in_range(counters->malloc_hits + counters->free_hits, BLOCKS, 2 * BLOCKS);
}

/* Frees every second of 200 blocks to their slab, changes the last byte of the others, and takes as many blocks again.
 * Returns how many calls reported the change. */
static unsigned refill_beside(int change)
{
    unsigned reports;

    take_blocks(24, 200);
    for (unsigned i = 0; i < 200; i += 2)
        front_free(blocks[i]);
    cache_flush_all(cache, true);
    for (unsigned i = 1; i < 200; i += 2)
        blocks[i][31] = (char)(blocks[i][31] ^ change);
    capture_begin();
    for (unsigned i = 0; i < 200; i += 2)
        blocks[i] = front_malloc(24);
    reports = count_of(capture_end(), "written at or past its end");
    for (unsigned i = 1; i < 200; i += 2)
        blocks[i][31] = (char)(blocks[i][31] ^ change);
    return reports;
}

static void test_written_before(void)
{
    begin();
    assert_true(refill_beside(0x55) > 0);
}

static void test_whole_before(void)
{
    begin();
    assert_int_equal(refill_beside(0), 0);
}

/* A fork may come as a thread has made its cache and not set its heap. A tick in the child ends that heap. */
static void test_cache_without_a_heap(void)
{
    struct heap *heap;

    begin();
    assert_non_null(heap = registry_take_heap());
    assert_true(registry_add_cache(heap, CACHE_BYTES, sizeof(struct thread_cache)));
    registry_abandon_heap(heap);
    housekeep_purge(true);
    assert_int_equal(registry.kept, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_two_stacks),
        core_unit_test(test_delay),
        core_unit_test(test_room_beside_what_waits),
        core_unit_test(test_order),
        core_unit_test(test_memory_is_out),
        core_unit_test(test_hits),
        core_unit_test(test_written_before),
        core_unit_test(test_whole_before),
        core_unit_test(test_cache_without_a_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
