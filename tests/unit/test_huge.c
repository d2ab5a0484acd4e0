/* Protects pool/huge.h: mappings, the cache of freed ranges, resizing and accounting (B1 to B4). */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include "pool/huge.h"
#include "superslab/footprint.h"
#include "superslab/metadata.h"
#include "superslab/purge.h"
#include "superslab/ranges.h"

static void begin(void)
{
    core_begin();
}

/* Bytes that are mapped without any huge block. */
static size_t window_bytes(void)
{
    return window_head_bytes() +
           (window_slots_mapped() - window_slots_begin() - shared_pool.decommitted) * SUPERSLAB_SIZE;
}

static void advance(uint64_t milliseconds)
{
    fake_advance(milliseconds * MILLISECOND);
}

static size_t cached_bytes(void)
{
    struct huge_usage usage;
    huge_usage(&usage);
    return usage.cached_bytes;
}

/* Checks B3, and that nothing else is mapped. */
static void check_usage(size_t blocks, size_t live, size_t cached)
{
    struct huge_usage usage;

    huge_usage(&usage);
    assert_int_equal(usage.live_blocks, blocks);
    assert_int_equal(usage.live_bytes, live);
    assert_int_equal(usage.cached_bytes, cached);
    assert_int_equal(shared_pool.huge_bytes, live + cached);
    assert_int_equal(fake_bytes_mapped() - window_bytes(), live + cached);
}

static char *allocate_at(size_t size, size_t alignment)
{
    bool zero = false;
    char *block = huge_allocate(size, alignment, &zero, NULL);

    assert_non_null(block);
    assert_int_equal((uintptr_t)block % base_max(alignment, os_page_size()), 0);
    assert_int_equal(huge_size(block, NULL), base_align_up(size, UNIT_SIZE)); /* B1 */
    for (size_t at = 0; zero && at < size; at += 1024)
        assert_int_equal(block[at], 0);
    return block;
}

static char *allocate(size_t size)
{
    return allocate_at(size, BLOCK_ALIGN);
}

static void release(char *block)
{
    assert_true(huge_free(block));
}

/* Allocates blocks that do not touch each other: the blocks between them stay in use. */
static void allocate_apart(const size_t *sizes, size_t count, char **blocks)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = allocate(sizes[i]);
        allocate(UNIT_SIZE);
    }
}

/* ---- One block ---- */

static void test_allocate_and_free(void)
{
    struct heap *heap = (struct heap *)1;
    char *block;

    begin();
    block = allocate(5 * HAK_MIB + 1);
    check_usage(1, 5 * HAK_MIB + UNIT_SIZE, 0);
    assert_true(fake_is_mapped(block, 5 * HAK_MIB + UNIT_SIZE));
    assert_int_equal(huge_size(block, &heap), 5 * HAK_MIB + UNIT_SIZE);
    assert_null(heap);
    assert_int_equal(huge_size(block + UNIT_SIZE, &heap), 0);
    assert_int_equal(huge_size(block + 16, NULL), 0);
    assert_false(huge_free(block + UNIT_SIZE) || huge_free(block + 16) || huge_free(&block));
    release(block);
    assert_false(huge_free(block));
    assert_int_equal(huge_size(block, NULL), 0);
    check_usage(0, 0, 5 * HAK_MIB + UNIT_SIZE);
    assert_int_equal(huge_purge(true), 5 * HAK_MIB + UNIT_SIZE);
    check_usage(0, 0, 0);
}

static void test_alignment(void)
{
    char *blocks[16];
    size_t count = 0;

    begin();
    for (size_t alignment = BLOCK_ALIGN; alignment <= 64 * HAK_MIB; alignment *= 8)
        blocks[count++] = allocate_at(3 * HAK_MIB, alignment);
    while (count)
        release(blocks[--count]);
    /* Ranges from the cache are aligned as asked for, too. */
    for (size_t alignment = BLOCK_ALIGN; alignment <= 64 * HAK_MIB; alignment *= 8)
        blocks[count++] = allocate_at(2 * HAK_MIB, alignment);
}

/* Under `auto` a block of 2 MiB or more is advised huge pages once 16 MiB of other memory are mapped. */
static void test_huge_pages(void)
{
    uint64_t before;

    hak_options.thp = OPTION_AUTO;
    begin();
    before = fake_calls(FAKE_ADVISE_HUGE);
    allocate(15 * HAK_MIB);
    allocate(2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before);
    allocate(2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
    allocate(2 * HAK_MIB - UNIT_SIZE);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), before + 1);
}

static void test_impossible(void)
{
    bool zero;

    begin();
    assert_null(huge_allocate(REQUEST_MAX, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(SIZE_MAX, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(REQUEST_MAX / 2, BLOCK_ALIGN, &zero, NULL));
    assert_null(huge_allocate(2 * HAK_MIB, (size_t)1 << 63, &zero, NULL));
    check_usage(0, 0, 0);
}

static void test_zero(void)
{
    bool zero = false;
    char *block;

    begin();
    block = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_true(zero);
    memset(block, 1, 2 * HAK_MIB);
    release(block);
    assert_ptr_equal(huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL), block);
    assert_false(zero);
    release(block);
    huge_purge(true);
    block = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    assert_true(zero);
    for (size_t at = 0; at < 2 * HAK_MIB; at += 512)
        assert_int_equal(block[at], 0);
}

static void test_covers(void)
{
    char *block, *other;

    begin();
    block = allocate(3 * HAK_MIB);
    other = allocate(UNIT_SIZE);
    assert_true(huge_covers(block, true) && huge_covers(block + 100, true));
    assert_true(huge_covers(block + 3 * HAK_MIB - 1, true));
    /* The kernel chooses both addresses. No block lies below the lower one. */
    assert_false(huge_covers((block < other ? block : other) - 1, true));
    assert_false(huge_covers(&block, true) || huge_covers(block, false));
    release(block);
    assert_false(huge_covers(block, true));
    assert_true(huge_covers(block, false) && huge_covers(block + 3 * HAK_MIB - 1, false));
    assert_false(huge_covers(block + 3 * HAK_MIB, false) || huge_covers(block - 1, false));
}

/* ---- The cache ---- */

static void test_reuse(void)
{
    char *block;
    uint64_t maps;

    begin();
    block = allocate(7 * HAK_MIB);
    maps = fake_calls(FAKE_MAP);
    for (unsigned i = 0; i < 50; i++) {
        release(block);
        assert_ptr_equal(allocate(7 * HAK_MIB - i * 1000), block);
        assert_int_equal(huge_size(block, NULL), base_align_up(7 * HAK_MIB - i * 1000, UNIT_SIZE));
        release(block);
        assert_ptr_equal(allocate(7 * HAK_MIB), block);
    }
    assert_int_equal(fake_calls(FAKE_MAP), maps);
    assert_int_equal(fake_calls(FAKE_UNMAP), 0);
}

static void test_best_fit(void)
{
    /* The best fit is neither the first in address order, whichever way addresses grow, nor the range freed first. */
    static const size_t sizes[] = { 5 * HAK_MIB, 8 * HAK_MIB, 4 * HAK_MIB, 3 * HAK_MIB, 6 * HAK_MIB };
    char *blocks[5];
    uint64_t maps;

    begin();
    allocate_apart(sizes, 5, blocks);
    for (size_t i = 0; i < 5; i++)
        release(blocks[i]);
    maps = fake_calls(FAKE_MAP);
    assert_ptr_equal(allocate(4 * HAK_MIB), blocks[2]);
    assert_ptr_equal(allocate(2 * HAK_MIB), blocks[3]); /* leaves 1 MiB */
    assert_ptr_equal(allocate(5 * HAK_MIB), blocks[0]);
    assert_ptr_equal(allocate(2 * HAK_MIB), blocks[4]); /* leaves 4 MiB */
    assert_ptr_equal(allocate(4 * HAK_MIB), blocks[4] + 2 * HAK_MIB);
    assert_ptr_equal(allocate(7 * HAK_MIB), blocks[1]); /* leaves 1 MiB */
    assert_int_equal(cached_bytes(), 2 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_MAP), maps);
    allocate(2 * HAK_MIB); /* the two ranges of 1 MiB do not touch */
    assert_int_equal(fake_calls(FAKE_MAP), maps + 1);
}

/* B2: a range is cut to size, and its parts join again in whatever order they come back. */
static void test_split_and_join(void)
{
    static const unsigned orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
    };
    char *whole, *parts[3];
    uint64_t maps;

    begin();
    whole = allocate(9 * HAK_MIB);
    maps = fake_calls(FAKE_MAP);
    for (size_t order = 0; order < 6; order++) {
        release(whole);
        for (size_t i = 0; i < 3; i++) {
            parts[i] = allocate(3 * HAK_MIB);
            assert_ptr_equal(parts[i], whole + i * 3 * HAK_MIB);
        }
        check_usage(3, 9 * HAK_MIB, 0);
        for (size_t i = 0; i < 3; i++)
            release(parts[orders[order][i]]);
        check_usage(0, 0, 9 * HAK_MIB);
        assert_ptr_equal(allocate(9 * HAK_MIB), whole);
        check_usage(1, 9 * HAK_MIB, 0);
    }
    assert_int_equal(fake_calls(FAKE_MAP), maps);
}

static void test_byte_bound(void)
{
    static const size_t sizes[] = { 6 * HAK_MIB, 4 * HAK_MIB, 5 * HAK_MIB, 3 * HAK_MIB };
    char *blocks[4], *large;

    hak_options.huge_cache = 16 * HAK_MIB;
    begin();
    large = allocate(9 * HAK_MIB);
    allocate_apart(sizes, 4, blocks);
    for (size_t i = 0; i < 4; i++) {
        release(blocks[i]);
        advance(10);
        assert_true(cached_bytes() <= 16 * HAK_MIB);
    }
    /* Only the oldest range, the first, has left. */
    assert_false(huge_covers(blocks[0], false));
    assert_int_equal(cached_bytes(), 12 * HAK_MIB);
    assert_int_equal(fake_calls(FAKE_UNMAP), 1);
    /* A block above half of the bound does not enter the cache, and evicts nothing. */
    release(large);
    assert_false(huge_covers(large, false));
    assert_int_equal(cached_bytes(), 12 * HAK_MIB);
    for (size_t i = 1; i < 4; i++)
        assert_true(huge_covers(blocks[i], false));
    check_usage(4, 4 * UNIT_SIZE, 12 * HAK_MIB);
}

/* The byte bound holds also when many old ranges are small. */
static void test_byte_bound_small_ranges(void)
{
    enum { SMALL = 40, LARGE = 3 };
    size_t sizes[SMALL + LARGE];
    char *blocks[SMALL + LARGE];

    hak_options.huge_cache = 32 * HAK_MIB;
    begin();
    for (size_t i = 0; i < SMALL + LARGE; i++)
        sizes[i] = i < SMALL ? UNIT_SIZE : 15 * HAK_MIB;
    allocate_apart(sizes, SMALL + LARGE, blocks);
    for (size_t i = 0; i < SMALL + LARGE; i++) {
        release(blocks[i]);
        advance(10);
        assert_in_range(cached_bytes(), 0, hak_options.huge_cache);
    }
}

/* The footprint that B4 allows for a live peak. The slack is halved once nothing of that peak is live. */
static size_t allowed(size_t peak, bool changed)
{
    size_t slack = peak / 4 + FOOTPRINT_SPARE;
    return peak + (changed ? slack / 2 : slack);
}

/* B4: when no cached range fits, a block is mapped, and ranges leave as far as the sum exceeds the bound. */
static void test_live_bound(void)
{
    enum { BLOCKS = 10, SIZE = 8 * HAK_MIB };
    size_t sizes[BLOCKS], live, mapped = BLOCKS * (SIZE + UNIT_SIZE);
    char *blocks[BLOCKS];

    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        sizes[i] = SIZE;
    allocate_apart(sizes, BLOCKS, blocks);
    live = mapped + metadata_bytes();
    for (size_t i = 0; i < BLOCKS; i++)
        release(blocks[i]);
    assert_int_equal(cached_bytes(), BLOCKS * SIZE);
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = allocate(SIZE + (i + 1) * UNIT_SIZE);
        assert_true(shared_pool.huge_bytes <= allowed(live, true));
    }
    assert_true(cached_bytes() < BLOCKS * SIZE);
    /* The peak is forgotten after two purge delays. */
    for (size_t i = 0; i < 8; i++)
        release(blocks[i]);
    for (unsigned i = 0; i < 3; i++) {
        advance(hak_options.purge_delay + 1);
        purge_run(false);
        huge_purge(true);
    }
    blocks[0] = allocate(SIZE);
    blocks[1] = allocate(3 * SIZE);
    live = 4 * SIZE + BLOCKS * UNIT_SIZE + metadata_bytes();
    release(blocks[1]);
    blocks[1] = allocate(3 * SIZE + UNIT_SIZE);
    assert_true(shared_pool.huge_bytes <= allowed(live + UNIT_SIZE, false));
}

/* While most memory is live and blocks take turns, ranges wait for a block that fits: nothing is unmapped. */
static void test_turns_are_free(void)
{
    enum { BLOCKS = 10, SIZE = 4 * HAK_MIB };
    size_t sizes[BLOCKS];
    char *blocks[BLOCKS];
    uint64_t unmaps, maps;

    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        sizes[i] = SIZE + i % 2 * HAK_MIB;
    allocate_apart(sizes, BLOCKS, blocks);
    unmaps = fake_calls(FAKE_UNMAP);
    maps = fake_calls(FAKE_MAP);
    for (size_t turn = 0; turn < 1000; turn++) {
        size_t i = turn % BLOCKS;
        release(blocks[i]);
        blocks[i] = allocate(sizes[i]);
    }
    assert_int_equal(fake_calls(FAKE_UNMAP), unmaps);
    assert_int_equal(fake_calls(FAKE_MAP), maps);
}

/* Free units leave before a block is mapped, and ranges leave before units are touched. */
static void test_sizes_share_the_bound(void)
{
    enum { MEBIBYTES = 64, UNITS = MEBIBYTES * HAK_MIB / UNIT_SIZE };
    static struct slab *slabs[UNITS];
    char *blocks[MEBIBYTES / 4];
    size_t live;

    begin();
    core_acquire(1, 1, UNITS, slabs);
    live = shared_pool_footprint();
    for (size_t i = 0; i < UNITS; i++)
        core_release(slabs[i]);
    for (size_t i = 0; i < MEBIBYTES / 4; i++) {
        blocks[i] = allocate(4 * HAK_MIB);
        assert_true(shared_pool_footprint() <= allowed(live, true));
    }
    core_check_pool();
    for (size_t i = 0; i < MEBIBYTES / 4; i++)
        release(blocks[i]);
    for (size_t i = 0; i < UNITS; i++) {
        core_acquire(1, 1, 1, &slabs[i]);
        assert_true(shared_pool_footprint() <= allowed(live, true));
    }
    core_check_pool();
    assert_int_equal(shared_pool.huge_bytes, cached_bytes());
    assert_int_equal(shared_pool.huge_waiting, cached_bytes());
}

/* A block grows into the freed range behind it without a system call. */
static void test_grow_into_range(void)
{
    char *whole, *first, *second;
    uint64_t remaps;

    begin();
    whole = allocate(8 * HAK_MIB);
    release(whole);
    first = allocate(3 * HAK_MIB);
    second = allocate(5 * HAK_MIB);
    assert_ptr_equal(first, whole);
    assert_ptr_equal(second, whole + 3 * HAK_MIB);
    release(second);
    remaps = fake_calls(FAKE_REMAP);
    memset(first, 7, 3 * HAK_MIB);
    assert_ptr_equal(huge_resize(first, 4 * HAK_MIB, true), first);
    check_usage(1, 4 * HAK_MIB, 4 * HAK_MIB);
    assert_ptr_equal(huge_resize(first, 8 * HAK_MIB, false), first);
    check_usage(1, 8 * HAK_MIB, 0);
    assert_int_equal(fake_calls(FAKE_REMAP), remaps);
    for (size_t at = 0; at < 3 * HAK_MIB; at += 1024)
        assert_int_equal(first[at], 7);
    /* Nothing is left behind the block. */
    (void)huge_resize(first, 9 * HAK_MIB, true);
    assert_int_equal(fake_calls(FAKE_REMAP), remaps + 1);
}

static void no_cache(void)
{
    char *block;

    begin();
    block = allocate(2 * HAK_MIB);
    release(block);
    check_usage(0, 0, 0);
    assert_int_equal(fake_calls(FAKE_UNMAP), 1);
}

static void test_no_cache(void)
{
    hak_options.huge_cache = 0;
    no_cache();
}

static void test_no_delay(void)
{
    hak_options.purge_delay = 0;
    no_cache();
}

/* The table of ranges overflows: old ranges leave, and none is lost. */
static void test_table_full(void)
{
    enum { BLOCKS = 700 };
    static char *blocks[BLOCKS];
    size_t cached;

    begin();
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = allocate(UNIT_SIZE);
    /* Every second block by address, so that no two ranges touch. */
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t j = i + 1; j < BLOCKS; j++)
            if (blocks[j] < blocks[i]) {
                char *block = blocks[i];
                blocks[i] = blocks[j];
                blocks[j] = block;
            }
    for (size_t i = 0; i < BLOCKS; i += 2) {
        release(blocks[i]);
        advance(1);
    }
    cached = cached_bytes();
    assert_in_range(cached, UNIT_SIZE, 256 * UNIT_SIZE);
    check_usage(BLOCKS / 2, BLOCKS / 2 * UNIT_SIZE, cached);
    assert_true(huge_covers(blocks[BLOCKS - 2], false));
    for (size_t i = 1; i < BLOCKS; i += 2)
        release(blocks[i]);
    cached = cached_bytes();
    assert_int_equal(huge_purge(true), cached);
    check_usage(0, 0, 0);
}

static void test_purge_delay(void)
{
    static const size_t sizes[] = { 2 * HAK_MIB, 3 * HAK_MIB };
    char *blocks[2];

    begin();
    allocate_apart(sizes, 2, blocks);
    release(blocks[0]);
    advance(hak_options.purge_delay / 2);
    release(blocks[1]);
    advance(hak_options.purge_delay / 2 - 4);
    assert_false(purge_is_due(shared_pool_now_ms()));
    assert_int_equal(huge_purge(false), 0);
    advance(8);
    assert_true(purge_is_due(shared_pool_now_ms()));
    assert_int_equal(huge_purge(false), 2 * HAK_MIB);
    assert_int_equal(huge_purge(false), 0);
    advance(hak_options.purge_delay / 2);
    assert_int_equal(huge_purge(false), 3 * HAK_MIB);
    check_usage(2, 2 * UNIT_SIZE, 0);
}

/* ---- Resizing ---- */

static void fill(char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        *(size_t *)(void *)(block + at) = at ^ 0x5a5a;
}

static void check_filled(const char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        assert_int_equal(*(const size_t *)(const void *)(block + at), at ^ 0x5a5a);
}

static void test_shrink(void)
{
    char *block;

    begin();
    block = allocate(8 * HAK_MIB);
    fill(block, 8 * HAK_MIB);
    assert_ptr_equal(huge_resize(block, 5 * HAK_MIB + 1, false), block);
    check_usage(1, 5 * HAK_MIB + UNIT_SIZE, 3 * HAK_MIB - UNIT_SIZE);
    assert_int_equal(huge_size(block, NULL), 5 * HAK_MIB + UNIT_SIZE);
    check_filled(block, 5 * HAK_MIB + UNIT_SIZE);
    assert_ptr_equal(huge_resize(block, 5 * HAK_MIB + 2, true), block);
    /* The tail that was cut off serves another block. */
    assert_ptr_equal(allocate(2 * HAK_MIB), block + 5 * HAK_MIB + UNIT_SIZE);
    release(block);
    check_usage(1, 2 * HAK_MIB, 6 * HAK_MIB);
}

static void test_grow(void)
{
    char *block, *grown;

    begin();
    block = allocate(2 * HAK_MIB);
    for (size_t size = 3 * HAK_MIB; size <= 40 * HAK_MIB; size += size / 2) {
        size_t before = huge_size(block, NULL);
        fill(block, before);
        grown = huge_resize(block, size, true);
        assert_non_null(grown);
        check_filled(grown, before);
        for (size_t at = before; at < size; at += 4096)
            assert_int_equal(grown[at], 0);
        assert_int_equal(huge_size(grown, NULL), base_align_up(size, UNIT_SIZE));
        if (grown != block)
            assert_int_equal(huge_size(block, NULL), 0);
        check_usage(1, base_align_up(size, UNIT_SIZE), 0);
        block = grown;
    }
    release(block);
}

/* Growing in place fails when another block follows, and the block stays unchanged. */
static void test_grow_in_place(void)
{
    char *whole, *block;
    uint64_t remaps;

    begin();
    whole = allocate(8 * HAK_MIB);
    release(whole);
    block = allocate(4 * HAK_MIB);
    assert_ptr_equal(block, whole);
    assert_ptr_equal(allocate(4 * HAK_MIB), whole + 4 * HAK_MIB);
    fill(block, 4 * HAK_MIB);
    remaps = fake_calls(FAKE_REMAP);
    assert_null(huge_resize(block, 5 * HAK_MIB, false));
    assert_int_equal(fake_calls(FAKE_REMAP), remaps + 1);
    check_usage(2, 8 * HAK_MIB, 0);
    check_filled(block, 4 * HAK_MIB);
    assert_int_equal(huge_size(block, NULL), 4 * HAK_MIB);
    block = huge_resize(block, 5 * HAK_MIB, true);
    assert_non_null(block);
    assert_ptr_not_equal(block, whole);
    check_filled(block, 4 * HAK_MIB);
    check_usage(2, 9 * HAK_MIB, 0);
}

static void test_resize_refused(void)
{
    char *block;

    hak_options.memory_limit = 10 * HAK_MIB;
    begin();
    block = allocate(4 * HAK_MIB);
    fill(block, 4 * HAK_MIB);
    assert_null(huge_resize(block, 11 * HAK_MIB, true));
    assert_null(huge_resize(block, REQUEST_MAX, true));
    assert_null(huge_resize(block, SIZE_MAX, true));
    fake_fail_nth(FAKE_REMAP, 1);
    assert_null(huge_resize(block, 5 * HAK_MIB, true));
    assert_null(huge_resize(block + UNIT_SIZE, 2 * HAK_MIB, true));
    assert_null(huge_resize(&block, 2 * HAK_MIB, true));
    check_usage(1, 4 * HAK_MIB, 0);
    check_filled(block, 4 * HAK_MIB);
    assert_non_null(huge_resize(block, 5 * HAK_MIB, true));
}

/* ---- Short of memory ---- */

static void test_memory_limit(void)
{
    char *blocks[3];
    bool zero;

    hak_options.memory_limit = 12 * HAK_MIB + HAK_MIB / 2; /* the half for metadata */
    begin();
    for (size_t i = 0; i < 3; i++)
        blocks[i] = allocate(4 * HAK_MIB);
    assert_null(huge_allocate(HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    check_usage(3, 12 * HAK_MIB, 0);
    release(blocks[0]);
    release(blocks[2]);
    /* Cached ranges leave when the limit needs room, as far as needed. */
    allocate(8 * HAK_MIB);
    check_usage(2, 12 * HAK_MIB, cached_bytes());
    assert_in_range(shared_pool_footprint(), 12 * HAK_MIB, hak_options.memory_limit);
}

static void test_map_refused(void)
{
    char *block;
    bool zero;

    begin();
    fake_fail_from(FAKE_MAP, 1);
    assert_null(huge_allocate(3 * HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    check_usage(0, 0, 0);
    fake_fail_nothing();
    block = allocate(3 * HAK_MIB);
    release(block);
    /* huge_allocate gives the cache back, and asks the system again. */
    fake_fail_nth(FAKE_MAP, 1);
    allocate(4 * HAK_MIB);
    check_usage(1, 4 * HAK_MIB, 0);
}

/* P5: a huge block may take the address space of empty SuperSlabs and of waiting slots; SuperSlabs may take it back. */
static void test_address_space(void)
{
    enum { SLABS = 10 * (SUPERSLAB_UNITS - 1) };
    static struct slab *slabs[SLABS];
    char *block;
    bool zero;

    begin();
    core_acquire(1, 1, SLABS, slabs);
    for (size_t i = 0; i < SLABS; i++)
        core_touch(slabs[i]);
    for (size_t i = SUPERSLAB_UNITS; i < SLABS; i++)
        core_release(slabs[i]);
    fake_set_address_space_limit(fake_bytes_mapped() + HAK_MIB);
    /* A request that can never succeed gives nothing back. */
    assert_null(huge_allocate(fake_bytes_mapped() + 2 * HAK_MIB, BLOCK_ALIGN, &zero, NULL));
    assert_int_equal(shared_pool.decommitted, 0);
    block = allocate(18 * HAK_MIB);
    assert_int_equal(shared_pool.decommitted, 8);
    check_usage(1, 18 * HAK_MIB, 0);
    core_check_pool();
    assert_int_equal(slabs[0]->start[0], 1);
    release(block);
    huge_purge(true);
    core_acquire(1, 1, SLABS - SUPERSLAB_UNITS, &slabs[SUPERSLAB_UNITS]);
    for (size_t i = SUPERSLAB_UNITS; i < SLABS; i++)
        assert_int_equal(slabs[i]->start[0], 0);
    core_check_pool();
    check_usage(0, 0, 0);
}

/* W4: another mapping that takes the place of an unmapped SuperSlab keeps it. The slot is foreign from then on. */
static void test_address_space_taken(void)
{
    enum { SLABS = 4 * (SUPERSLAB_UNITS - 1) };
    static struct slab *slabs[SLABS];
    uint32_t number;

    begin();
    core_acquire(1, 1, SLABS, slabs);
    number = window_slot_of(slabs[0]);
    for (size_t i = 0; i < SLABS; i++)
        core_release(slabs[i]);
    assert_true(purge_address_space(HAK_MIB) >= 4 * SUPERSLAB_SIZE);
    assert_int_equal(shared_pool.decommitted, 4);
    assert_int_equal(os_map_at(window_slot_address(number) + UNIT_SIZE, UNIT_SIZE), OS_PLACE_MAPPED);
    assert_false(window_contains(window_slot_address(number) + UNIT_SIZE));
    core_acquire(1, 1, SLABS, slabs);
    assert_int_equal(slot_kind(&window_slots[number]), SLOT_FOREIGN);
    assert_int_equal(shared_pool.slots_foreign, 1);
    assert_int_equal(shared_pool.decommitted, 0);
    for (size_t i = 0; i < SLABS; i++)
        assert_int_not_equal(window_slot_of(slabs[i]), number);
    core_check_pool();
}

/* ---- First-class heaps ---- */

static void test_heaps(void)
{
    static struct heap one, two;
    struct heap *heap;
    char *blocks[60];
    bool zero;

    begin();
    for (size_t i = 0; i < 60; i++)
        blocks[i] = huge_allocate(2 * HAK_MIB, BLOCK_ALIGN, &zero, i % 3 == 0 ? &one : i % 3 == 1 ? &two : NULL);
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(huge_size(blocks[i], &heap), 2 * HAK_MIB);
        assert_ptr_equal(heap, i % 3 == 0 ? &one : i % 3 == 1 ? &two : NULL);
    }
    huge_free_heap(&one);
    for (size_t i = 0; i < 60; i++)
        assert_int_equal(huge_size(blocks[i], NULL), i % 3 == 0 ? 0 : 2 * HAK_MIB);
    check_usage(40, 80 * HAK_MIB, 40 * HAK_MIB);
    huge_free_heap(&one);
    check_usage(40, 80 * HAK_MIB, 40 * HAK_MIB);
}

/* ---- While hardening is on ---- */

/* A freed block's address is not used again: its memory serves the next block at another one. */
static void test_hardened_reuse(void)
{
    char *block, *next;

    hak_options.hardened = 1;
    begin();
    for (unsigned round = 0; round < 20; round++) {
        block = allocate_at(4 * HAK_MIB, 16);
        memset(block, 1, 4 * HAK_MIB);
        huge_free(block);
        check_usage(0, 0, 4 * HAK_MIB);
        next = allocate_at(4 * HAK_MIB, 16);
        assert_int_equal(next == block, HAK_THREAD_SANITIZER); /* which allows few addresses */
        assert_int_equal(fake_is_mapped(block, 4096), HAK_THREAD_SANITIZER);
        check_usage(1, 4 * HAK_MIB, 0);
        huge_free(next);
        ranges_purge(true);
        check_usage(0, 0, 0);
    }
}

/* If the kernel does not move it, the block lies where the freed one lay. */
static void test_hardened_reuse_refused(void)
{
    char *block;

    hak_options.hardened = 1;
    begin();
    block = allocate_at(4 * HAK_MIB, 16);
    huge_free(block);
    fake_fail_from(FAKE_REMAP, 1);
    assert_ptr_equal(allocate_at(4 * HAK_MIB, 16), block);
    check_usage(1, 4 * HAK_MIB, 0);
}

/* Blocks lie far from each other, so that a write past or before one meets nothing. */
static void test_hardened_places(void)
{
    enum { BLOCKS = 100 };
    char *blocks[BLOCKS];
    size_t near = 0;

    hak_options.hardened = 1;
    begin();
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate_at(2 * HAK_MIB, 4096);
        assert_true(blocks[i] < window_base() || HAK_THREAD_SANITIZER);
        for (size_t j = 0; j < i; j++)
            near += (size_t)labs(blocks[i] - blocks[j]) < 4 * HAK_MIB;
    }
    assert_true(near <= 5 || HAK_THREAD_SANITIZER); /* of 4,950 pairs; an emulator has few addresses */
    check_usage(BLOCKS, BLOCKS * 2 * HAK_MIB, 0);
    allocate_at(2 * HAK_MIB, 8 * HAK_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_allocate_and_free),
        core_unit_test(test_alignment),
        core_unit_test(test_huge_pages),
        core_unit_test(test_impossible),
        core_unit_test(test_zero),
        core_unit_test(test_covers),
        core_unit_test(test_reuse),
        core_unit_test(test_best_fit),
        core_unit_test(test_split_and_join),
        core_unit_test(test_byte_bound),
        core_unit_test(test_byte_bound_small_ranges),
        core_unit_test(test_no_cache),
        core_unit_test(test_no_delay),
        core_unit_test(test_live_bound),
        core_unit_test(test_turns_are_free),
        core_unit_test(test_sizes_share_the_bound),
        core_unit_test(test_grow_into_range),
        core_unit_test(test_table_full),
        core_unit_test(test_purge_delay),
        core_unit_test(test_shrink),
        core_unit_test(test_grow),
        core_unit_test(test_grow_in_place),
        core_unit_test(test_resize_refused),
        core_unit_test(test_memory_limit),
        core_unit_test(test_map_refused),
        core_unit_test(test_address_space),
        core_unit_test(test_address_space_taken),
        core_unit_test(test_heaps),
        core_unit_test(test_hardened_reuse),
        core_unit_test(test_hardened_reuse_refused),
        core_unit_test(test_hardened_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
