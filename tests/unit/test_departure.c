/* Protects superslab/waiting.h (N7): what leaves at a free where no purge thread runs, and how times are compared. */
#include "heaps.h"

#include <stdlib.h>

#include "front/fast.h"
#include "front/front.h"
#include "pool/huge.h"
#include "superslab/footprint.h"
#include "superslab/purge.h"
#include "superslab/ranges.h"

/* ---- The rule ---- */

static void test_rule(void **state)
{
    static const struct {
        size_t live, wanted;
        bool attended;
        size_t most;
    } rows[] = {
        { 0, 0, false, 16 * HAK_MIB },
        { 64 * HAK_MIB, 0, false, 32 * HAK_MIB },
        { 1024 * HAK_MIB, 0, false, 272 * HAK_MIB },
        { 64 * HAK_MIB, 31 * HAK_MIB, false, 32 * HAK_MIB },
        { 64 * HAK_MIB, 33 * HAK_MIB, false, 33 * HAK_MIB },
        { 0, 0, true, SIZE_MAX },
        { 64 * HAK_MIB, 33 * HAK_MIB, true, SIZE_MAX },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(waiting_most((struct waiting_inputs){ rows[i].live, rows[i].wanted, rows[i].attended }),
                         rows[i].most);
    assert_int_equal(waiting_excess((struct waiting_inputs){ 0, 0, false }, 16 * HAK_MIB), 0);
    assert_int_equal(waiting_excess((struct waiting_inputs){ 0, 0, false }, 16 * HAK_MIB + 4), 4 * HAK_MIB + 1);
    assert_int_equal(waiting_excess((struct waiting_inputs){ 0, 0, false }, 160 * HAK_MIB), 144 * HAK_MIB);
}

/* A thread holds `live` MiB outside of its slabs while `waiting` MiB wait. Each row follows the one before. */
static void test_unpin_rule(void **state)
{
    static const struct {
        size_t live, waiting, wanted;
        bool attended;
        enum waiting_unpin unpin;
        size_t holes;
    } rows[] = {
        { 400, 0, 0, false, UNPIN_NOTHING, 0 },
        { 301, 300, 0, false, UNPIN_NOTHING, 0 },
        { 300, 99, 0, false, UNPIN_NOTHING, 0 },
        { 300, 100, 0, true, UNPIN_NOTHING, 0 },
        { 300, 100, 92, false, UNPIN_NOTHING, 0 },
        { 300, 100, 91, false, UNPIN_CACHE, 0 },
        { 226, 400, 0, false, UNPIN_NOTHING, 0 },
        { 225, 400, 0, false, UNPIN_CACHE, 0 },
        { 201, 400, 0, false, UNPIN_NOTHING, 0 },
        { 168, 400, 0, false, UNPIN_PAGES, 0 },
        { 126, 400, 0, false, UNPIN_CACHE, 0 },
        { 84, 400, 0, false, UNPIN_PAGES, 0 },
        { 800, 0, 0, false, UNPIN_NOTHING, 0 },
        { 600, 800, 0, false, UNPIN_CACHE, 0 },
        { 401, 800, 0, false, UNPIN_CACHE, 0 },
        { 300, 800, 0, false, UNPIN_PAGES, 0 },
        { 150, 800, 0, false, UNPIN_CACHE, 800 },
        { 112, 801, 0, false, UNPIN_PAGES, 800 },
    };
    struct waiting_peaks peaks = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct waiting_inputs inputs = { rows[i].live * HAK_MIB, rows[i].wanted * HAK_MIB, rows[i].attended };
        assert_int_equal(waiting_unpin(inputs, rows[i].holes * HAK_MIB, rows[i].waiting * HAK_MIB, &peaks),
                         rows[i].unpin);
    }
}

/* ---- Lives of memory ---- */

/* A program of one thread takes blocks, frees all but the first of `kept` parts, and does so again after a pause. One
 * with a stride frees blocks that lie so far apart: slabs become empty last, and SuperSlabs hardly at all. */
struct life {
    const char *name;
    size_t size, blocks, kept, rounds, stride;
    unsigned pause_ms;
    bool attended;
    size_t peak, held, left; /* golden, in KiB: the footprint at its highest, after the last free, and what left it */
};

static const struct life lives[] = {
#define SPIKE(name, size, kept, rounds, ...) { name, size, (192 * HAK_MIB) / (size), kept, rounds, 1, __VA_ARGS__ }
#define STRIDE(name, size, kept, rounds, ...) \
    { name, size, (192 * HAK_MIB) / (size), kept, rounds, 10007, __VA_ARGS__ }
    SPIKE("small blocks", 1000, 0, 1, 0, false, 209068, 16556, 192512),
    SPIKE("spans", 100000, 0, 1, 0, false, 266476, 18476, 248000),
    SPIKE("huge blocks", 3000000, 0, 1, 0, false, 197422, 11950, 185472),
    SPIKE("small blocks, a quarter stays", 1000, 4, 1, 0, false, 209068, 80044, 129024),
    SPIKE("spans, a quarter stays", 100000, 4, 1, 0, false, 266476, 101804, 164672),
    SPIKE("spans again and again", 100000, 0, 6, 1, false, 268012, 268012, 248000),
    SPIKE("huge blocks again and again", 3000000, 0, 6, 1, false, 197422, 197422, 185472),
    SPIKE("small blocks, seldom", 1000, 0, 6, 2000, false, 209068, 16556, 1155072),
    SPIKE("spans, seldom", 100000, 0, 6, 2000, false, 266476, 18476, 1488000),
    SPIKE("huge blocks, seldom", 3000000, 0, 6, 2000, false, 197422, 11950, 1112832),
    SPIKE("spans beside a purge thread", 100000, 0, 1, 0, true, 266476, 258540, 7936),
    SPIKE("huge blocks beside a purge thread", 3000000, 0, 1, 0, true, 197422, 197422, 0),
    STRIDE("small blocks in another order", 1000, 0, 1, 0, false, 209068, 24044, 185024),
    STRIDE("small blocks in another order, a quarter stays", 1000, 4, 1, 0, false, 209068, 92204, 116864),
    STRIDE("small blocks in another order again and again", 1000, 0, 6, 1, false, 209068, 209068, 185024),
    STRIDE("spans in another order", 100000, 0, 1, 0, false, 266476, 17516, 248960),
    STRIDE("spans in another order, a quarter stays", 100000, 4, 1, 0, false, 266476, 102316, 164160),
    { "little", 1000, 10000, 0, 3, 1, 1, false, 12460, 12460, 0 },
};

static const struct life *life;

static size_t live_round(char **blocks)
{
    size_t peak;

    for (size_t i = 0; i < life->blocks; i++)
        if (blocks[i] == NULL)
            assert_non_null(blocks[i] = front_malloc(life->size));
    peak = shared_pool_footprint();
    for (size_t i = 0; i < life->blocks; i++) {
        size_t at = i * life->stride % life->blocks; /* the stride is a prime: each block once */
        if (life->kept && at < life->blocks / life->kept)
            continue;
        front_free(blocks[at]);
        blocks[at] = NULL;
    }
    return peak;
}

static void live(void)
{
    size_t peak = 0, held = 0, left = 0;
    char **blocks;

    life = &lives[core_row];
    core_begin_thread();
    shared_pool.attended = life->attended;
    blocks = calloc(life->blocks, sizeof *blocks);
    assert_non_null(blocks);
    for (size_t round = 0; round < life->rounds; round++) {
        size_t high = live_round(blocks);
        held = shared_pool_footprint();
        peak = base_max(peak, high);
        left += high > held ? high - held : 0;
        fake_advance(life->pause_ms * MILLISECOND);
    }
    free(blocks);
    print_message("%s: peak %zu, held %zu, left %zu KiB\n", life->name, peak / HAK_KIB, held / HAK_KIB, left / HAK_KIB);
    assert_int_equal(peak / HAK_KIB, life->peak);
    assert_int_equal(held / HAK_KIB, life->held);
    assert_int_equal(left / HAK_KIB, life->left);
    core_check_pool();
}

static void test_lives(void **state)
{
    (void)state;
    core_run_each(live, sizeof lives / sizeof lives[0]);
}

/* Takes what is missing of 200 MB of blocks, and frees all but each tenth. Returns how often memory was purged, and at
 * most by one free. */
static uint64_t live_with_tenth(char **blocks, size_t count, uint64_t *most)
{
    uint64_t begun, purges;

    for (size_t i = 0; i < count; i++)
        if (blocks[i] == NULL)
            assert_non_null(blocks[i] = front_malloc(1000));
    begun = purges = fake_calls(FAKE_PURGE);
    for (size_t i = 0; i < count; i++) {
        size_t at = i * 10007 % count;
        if (at % 10 == 0)
            continue;
        front_free(blocks[at]);
        blocks[at] = NULL;
        *most = base_max(*most, fake_calls(FAKE_PURGE) - purges);
        purges = fake_calls(FAKE_PURGE);
    }
    return purges - begun;
}

/* The pages between blocks in use leave, unless the program soon wants them again (N10, N6). */
static void test_scrubbed_slabs_are_wanted(void)
{
    static char *blocks[200000];
    size_t slabs = 200000 / 64;
    uint64_t most = 0;

    core_begin_thread();
    assert_true(live_with_tenth(blocks, 200000, &most) > slabs);
    assert_true(most <= 512 * 8); /* of a slab's 16 pages, each second one */
    assert_true(live_with_tenth(blocks, 200000, &most) < slabs / 100);
    /* What is free whole leaves all the same (N7). */
    for (size_t i = 0; i < 200000; i++)
        front_free(blocks[i]);
    assert_true(shared_pool_footprint() < 40 * HAK_MIB);
}

/* ---- Times ---- */

static void test_elapsed(void **state)
{
    (void)state;
    assert_int_equal(base_elapsed(1000, 400), 600);
    assert_int_equal(base_elapsed(400, 400), 0);
    assert_int_equal(base_elapsed(400, 401), 0);
    assert_int_equal(base_elapsed(400, 60400), 0);
    assert_int_equal(base_elapsed(0, 60001), UINT32_MAX - 60000);
    assert_int_equal(base_elapsed(5, UINT32_MAX - 4), 10);
    assert_int_equal(base_elapsed(UINT32_MAX - 4, 5), 0);
}

/* Memory that was freed after a purge read the clock is its newest. */
static void test_freed_meanwhile(void)
{
    uint32_t ahead, waited;
    struct slab *slab;
    bool zero;
    void *block;

    core_begin();
    shared_pool.attended = true;
    core_acquire(4, 1, 1, &slab);
    core_touch(slab);
    core_release(slab);
    block = huge_allocate(4 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_non_null(block);
    assert_true(huge_free(block, NULL));
    ahead = shared_pool_now_ms() + 6;
    shared_pool.slots[window_slot_of(slab)].freed_ms = range_cache.ranges[0].freed_ms = ahead;
    assert_int_equal(purge_free_units(false), 0);
    assert_int_equal(ranges_purge(false), 0);
    assert_true(ranges_oldest(shared_pool_now_ms(), &waited));
    assert_int_equal(waited, 0);
    fake_advance((hak_options.purge_delay + 8) * MILLISECOND);
    assert_true(purge_free_units(false) > 0);
    assert_true(ranges_purge(false) > 0);
}

/* ---- What was made ready ---- */

/* A prewarmed SuperSlab waits for its first use, however long that takes, and then leaves like others. */
static void test_prewarmed(void)
{
    struct slab *slab;

    core_begin();
    assert_int_equal(shared_pool_prewarm(20), 20);
    fake_advance(100 * hak_options.purge_delay * MILLISECOND);
    assert_int_equal(purge_run(false), 0);
    assert_int_equal(shared_pool.dirty_empties, 20);
    core_acquire(1, 1, 1, &slab);
    core_touch(slab);
    core_release(slab);
    fake_advance(2 * hak_options.purge_delay * MILLISECOND);
    assert_int_equal(purge_run(false), SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.dirty_empties, 19);
    assert_int_equal(purge_run(true), 19 * SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.units_prewarmed, 0);
    core_check_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_unpin_rule),
        cmocka_unit_test(test_lives),
        core_unit_test(test_scrubbed_slabs_are_wanted),
        cmocka_unit_test(test_elapsed),
        core_unit_test(test_freed_meanwhile),
        core_unit_test(test_prewarmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
