#include "huge_blocks.h"

/* Bytes that are mapped without any huge block. */
static size_t window_bytes(void)
{
    return window_head_bytes() +
           (window_slots_mapped() - window_slots_begin() - shared_pool.decommitted) * SUPERSLAB_SIZE;
}

size_t huge_cached(void)
{
    struct huge_usage usage;
    huge_usage(&usage);
    return usage.cached_bytes;
}

void huge_check(size_t blocks, size_t live, size_t cached)
{
    struct huge_usage usage;

    huge_usage(&usage);
    assert_int_equal(usage.live_blocks, blocks);
    assert_int_equal(usage.live_bytes, live);
    assert_int_equal(usage.cached_bytes, cached);
    assert_int_equal(shared_pool.huge_bytes, live + cached);
    assert_int_equal(fake_bytes_mapped() - window_bytes(), live + cached);
}

char *huge_take_at(size_t size, size_t alignment)
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

char *huge_take(size_t size)
{
    return huge_take_at(size, BLOCK_ALIGN);
}

void huge_give(char *block)
{
    assert_true(huge_free(block, NULL));
}

void huge_take_apart(const size_t *sizes, size_t count, char **blocks)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = huge_take(sizes[i]);
        huge_take(UNIT_SIZE);
    }
}
