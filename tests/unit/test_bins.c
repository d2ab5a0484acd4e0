/* Protects harden/bins.h and harden/spans.h: a thread's rings, the blocks that malloc takes, and the spans that wait.
 * test_hardened.c tests the reports of misuse. */
#include "heaps.h"

#include <string.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/thread.h"
#include "harden/bins.h"

static struct thread_cache *cache;
static struct bins *bins;

static void begin(void)
{
    cache = core_begin_thread();
    bins = &cache->hardened;
}

/* Of blocks whose seal fits behind them: a request of the class's size less 8. */
static unsigned class_for(size_t size) { return class_of_size(size + 8); }

enum { BLOCKS = 800 };
static char *blocks[BLOCKS];

static void take_blocks(size_t size, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_non_null(blocks[i] = front_malloc(size));
}

/* ---- Rings ---- */

/* Half of a ring's limit at most is the quarantine; bins->bytes is the sum over the limits. */
static void check_rings(void)
{
    size_t bytes = 0;

    for (unsigned class = 1; class < CLASS_SPAN_1; class++) {
        const struct ring *ring = &bins->rings[class];
        unsigned limit = ring->limit;
        assert_true(limit <= ring_rows[class].mask + 1u);
        assert_true(ring_count(ring) <= ring_rows[class].mask + 1u);
        assert_int_equal(ring->keep, base_min(limit / 2, harden_keep_most(class)));
        bytes += limit * class_size(class);
    }
    assert_int_equal(bins->bytes, bytes);
}

static void use_ring(size_t size, unsigned count)
{
    take_blocks(size, count);
    for (unsigned i = 0; i < count; i++) {
        front_free(blocks[i]);
        check_rings();
    }
}

/* A ring doubles up to its length. A flush leaves the quarantine; one of all leaves nothing and forgets the limit. */
static void test_limit(void)
{
    static const size_t sizes[] = { 8, 100, 248, 1016, 4000 };

    begin();
    for (size_t i = 0; i < 5; i++) {
        unsigned class = class_for(sizes[i]), first, length = ring_rows[class].mask + 1u;
        take_blocks(sizes[i], 1);
        first = bins->rings[class].limit;
        assert_in_range(first, 2, length);
        front_free(blocks[0]);
        use_ring(sizes[i], BLOCKS);
        assert_in_range(bins->rings[class].limit, length / 2, length);
        assert_in_range(ring_count(&bins->rings[class]), bins->rings[class].keep + 1, length);
        bins_flush(bins, cache->slots, cache->heap, false);
        assert_int_equal(ring_count(&bins->rings[class]), bins->rings[class].keep);
        assert_int_equal(bins_count(bins, class), bins->rings[class].keep);
        bins_flush(bins, cache->slots, cache->heap, true);
        assert_int_equal(bins_count(bins, class), 0);
        assert_int_equal(bins->bytes, 0);
        assert_false(bins->used);
        take_blocks(sizes[i], 1);
        assert_int_equal(bins->rings[class].limit, first);
        front_free(blocks[0]);
        bins_flush(bins, cache->slots, cache->heap, true);
    }
}

/* With many threads a ring grows to the thread's share and no further. */
static void test_share(void)
{
    begin();
    atomic_store(&heap_signals.kept_share, 1);
    use_ring(248, 200);
    assert_in_range(bins->bytes, 8 * HAK_KIB + 1, 16 * HAK_KIB);
}

/* When there are more threads, rings that hold more than twice the share shrink. */
static void test_more_threads(void)
{
    size_t most;

    begin();
    use_ring(1016, 200);
    use_ring(752, 200);
    use_ring(504, 200);
    assert_true(bins->bytes > 100 * HAK_KIB);
    atomic_store(&heap_signals.kept_share, 1);
    for (unsigned i = 0; i < 5; i++) {
        use_ring(1016, 200);
        use_ring(752, 200);
        use_ring(504, 200);
    }
    most = base_max(16 * HAK_KIB, bins_share(cache->heap));
    assert_in_range(bins->bytes, 1, 2 * most);
}

/* A freed block serves malloc only after as many others were freed as half of the quarantine holds, and then soon. */
static void test_quarantine(void)
{
    unsigned keep, between = 0;
    char *freed;

    begin();
    use_ring(248, BLOCKS);
    keep = bins->rings[class_for(248)].keep;
    assert_true(keep > 8);
    take_blocks(248, 2);
    freed = blocks[1];
    front_free(freed);
    for (; between < 10000; between++) {
        char *block = front_malloc(248);
        if (block == freed)
            break;
        front_free(block);
    }
    assert_in_range(between, keep / 2, 4 * keep + 128);
}

/* When memory is out, malloc takes freed blocks out of the quarantine, and fails when there are none. */
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
    assert_int_equal(ring_count(&bins->rings[class_for(248)]), 0);
    assert_null(front_malloc(248));
    fake_fail_nothing();
    assert_non_null(front_malloc(248));
}

/* A tick returns the blocks before the quarantine to their slabs. The quarantine stays. */
static void test_tick(void)
{
    const struct ring *ring;

    begin();
    ring = &bins->rings[class_for(248)];
    use_ring(248, BLOCKS);
    assert_true(ring_count(ring) > ring->keep);
    housekeep_purge(false);
    assert_true(ring->keep > 0);
    assert_int_equal(ring_count(ring), ring->keep);
    front_collect(true);
    assert_int_equal(ring_count(ring), 0);
}

/* Calls that the fast path served are counted when the ring next goes to the slabs or comes from them. */
static void test_hits(void)
{
    unsigned class = class_for(248);
    const struct class_counters *counters;
    uint64_t hits;

    begin();
    counters = &cache->heap->classes[class];
    use_ring(248, BLOCKS);
    bins_flush(bins, cache->slots, cache->heap, true);
    hits = counters->malloc_hits + counters->free_hits;
    assert_in_range(hits, BLOCKS, 2 * BLOCKS);
}

/* ---- Blocks before the ones that a refill takes ---- */

/* Frees every second of 200 blocks to their slab, changes the last byte of the others, and takes as many blocks again.
 * Returns how many calls reported the change. */
static unsigned refill_beside(int change)
{
    unsigned reports;

    take_blocks(24, 200);
    for (unsigned i = 0; i < 200; i += 2)
        front_free(blocks[i]);
    bins_flush(bins, cache->slots, cache->heap, true);
    for (unsigned i = 1; i < 200; i += 2)
        blocks[i][31] = (char)(blocks[i][31] ^ change);
    capture_begin();
    for (unsigned i = 0; i < 200; i += 2)
        blocks[i] = front_malloc(24);
    reports = count_of(capture_end(), "was written at or past its end");
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

/* Larger blocks have no tail word: the program's bytes at their end are no misuse. */
static void test_full_blocks(void)
{
    begin();
    capture_begin();
    for (unsigned i = 0; i < 200; i++) {
        size_t size = i % 2 ? 2040 : 5112;
        blocks[i] = front_malloc(size);
        memset(blocks[i], 0x77, size);
    }
    for (unsigned i = 0; i < 200; i++)
        front_free(blocks[i]);
    assert_string_equal(capture_end(), "");
}

/* ---- Spans ---- */

/* Asks the kernel, which refuses to write from memory that cannot be read. */
static bool is_readable(const char *at)
{
    static int ends[2] = { -1, -1 };
    char byte;

    if (ends[0] < 0)
        assert_int_equal(pipe(ends), 0);
    return write(ends[1], at, 1) == 1 && read(ends[0], &byte, 1) == 1;
}

static void check_spans(void)
{
    const struct spans *spans = &bins->spans;
    size_t bytes = 0;

    assert_true(spans->count <= SPANS_MOST);
    for (unsigned i = 0; i < spans->count; i++) {
        const char *span = spans->span[i];
        bool closed = (spans->closed >> i) & 1;
        bytes += slab_bytes(slab_of(span));
        assert_int_equal(is_readable(span), !closed);
        assert_true(closed || !((spans->guarded >> i) & 1));
    }
    assert_int_equal(spans->bytes, bytes);
    assert_true(spans->count == 1 || bytes <= base_max(4 * HAK_MIB, bins_share(cache->heap)));
}

/* Each span that waits counts in its class, and none after a flush. */
static void test_spans_count(void)
{
    unsigned one, five;

    begin();
    take_blocks(60000, 3);
    assert_non_null(blocks[3] = front_malloc(300000));
    assert_non_null(blocks[4] = front_malloc(300000));
    one = slab_of(blocks[0])->class;
    five = slab_of(blocks[3])->class;
    for (unsigned i = 0; i < 5; i++)
        front_free(blocks[i]);
    assert_int_equal(spans_count(&bins->spans, one), 3);
    assert_int_equal(bins_count(bins, five), 2);
    assert_int_equal(bins_count(bins, CLASS_SPAN_16), 0);
    check_spans();
    bins_flush(bins, cache->slots, cache->heap, true);
    assert_int_equal(bins_count(bins, one), 0);
    assert_int_equal(bins->spans.bytes, 0);
}

/* The newest four spans do not serve malloc. Older ones do. */
static void test_spans_newest(void)
{
    begin();
    take_blocks(60000, 6);
    for (unsigned i = 0; i < 6; i++)
        front_free(blocks[i]);
    for (unsigned i = 6; i < 8; i++) {
        blocks[i] = front_malloc(60000);
        assert_true(blocks[i] == blocks[0] || blocks[i] == blocks[1]);
    }
    blocks[8] = front_malloc(60000);
    for (unsigned i = 0; i < 6; i++)
        assert_ptr_not_equal(blocks[8], blocks[i]);
}

/* Spans of all sizes come and go, closed in either way. calloc's bytes are zero, however much was written. */
static void test_spans_by_chance(void)
{
    enum { HELD = 12 };
    char *held[HELD] = { NULL };
    uint64_t guarded = 0, protected = 0;

    begin();
    chance_begin();
    capture_begin();
    for (unsigned step = 0; step < 3000; step++) {
        size_t size = 57400 + chance_below(7) * 65000, at = chance_below(HELD);
        if (held[at]) {
            const struct spans *spans = &bins->spans;
            front_free(held[at]);
            held[at] = NULL;
            guarded += (spans->guarded >> (spans->count - 1)) & 1;
            protected += ((spans->closed & ~spans->guarded) >> (spans->count - 1)) & 1;
        } else {
            held[at] = front_calloc(1, size);
            assert_non_null(held[at]);
            for (size_t page = 0; page < size; page += 4096)
                assert_int_equal(held[at][page + chance_below(base_min(4096, size - page))], 0);
            for (size_t page = 0; page < size; page += step > 1500 && chance_below(2) ? 4096 : size)
                held[at][page] = 1;
        }
        check_spans();
        fake_advance(chance_below(100) * MILLISECOND / 100);
    }
    assert_string_equal(capture_end(), "");
    bins_flush(bins, cache->slots, cache->heap, true);
    assert_true(guarded > 0 && protected > 0);
}

/* Frees `count` spans of which one page in `one_in` is written. Returns how many were purged. */
static uint64_t purges(unsigned count, size_t one_in)
{
    uint64_t before = fake_calls(FAKE_PURGE) + fake_calls(FAKE_GUARD);

    for (unsigned i = 0; i < count; i++) {
        char *block = front_malloc(1000000);
        for (size_t at = 0; at < 1000000; at += one_in * 4096)
            block[at] = 1;
        front_free(block);
    }
    return fake_calls(FAKE_PURGE) + fake_calls(FAKE_GUARD) - before;
}

/* A span of a class whose spans have little memory is purged, most of them as they are closed. Others are zeroed where
 * they are. Guard units take calls, too, until the thread has its SuperSlabs. */
static void test_spans_sparse(void)
{
    hak_options.purge_delay = 1000000;
    begin();
    (void)purges(100, 1);
    assert_int_equal(purges(100, 1), 0);
    assert_in_range(purges(200, 100), 50, 400);
    (void)purges(50, 1);
    assert_int_equal(purges(100, 1), 0);
}

/* Written pages may be in swap space and seem to have no memory. A span is zero nevertheless when malloc returns it
 * (V7), and so are calloc's bytes in libhakmem-secure. */
static void test_spans_swapped(void)
{
    enum { SIZE = 100000, HELD = 16 };

    begin();
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < HELD; i++) {
            assert_non_null(blocks[i] = front_malloc(SIZE));
            for (size_t at = 0; at < SIZE; at += 4096)
                assert_int_equal(blocks[i][at], 0);
            memset(blocks[i], 1, round % 3 ? SIZE : 1);
        }
        fake_set_memory_swapped(true);
        for (unsigned i = 0; i < HELD; i++)
            front_free(blocks[i]);
        fake_set_memory_swapped(false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_limit),
        core_unit_test(test_share),
        core_unit_test(test_more_threads),
        core_unit_test(test_quarantine),
        core_unit_test(test_memory_is_out),
        core_unit_test(test_tick),
        core_unit_test(test_hits),
        core_unit_test(test_written_before),
        core_unit_test(test_whole_before),
        core_unit_test(test_full_blocks),
        core_unit_test(test_spans_count),
        core_unit_test(test_spans_newest),
        core_unit_test(test_spans_by_chance),
        core_unit_test(test_spans_sparse),
        core_unit_test(test_spans_swapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
