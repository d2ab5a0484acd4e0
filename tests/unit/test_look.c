/* Protects harden/look.h: a write past the end of a block that stays is found when its slab is scrubbed. */
#include "heaps.h"

#include <stdio.h>
#include <string.h>

#include "front/fast.h"
#include "front/sealed.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "harden/look.h"

#define SAID(call) (capture_begin(), (void)(call), capture_end())
#define ASSERT_SILENT(call) assert_string_equal(SAID(call), "")

static void begin(void) { core_begin_thread(); }

/* A block of `size` bytes in a slab that is hardly in use, and so is scrubbed by the next purge. */
static char *begin_lonely(size_t size)
{
    static char *blocks[64];
    char *kept = NULL;

    for (size_t i = 0; i < 64; i++)
        assert_non_null(blocks[i] = front_malloc(size));
    for (size_t i = 0; i < 64; i++) {
        memset(blocks[i], 0x5a, size);
        if (i == 32)
            kept = blocks[i];
        else
            front_free(blocks[i]);
    }
    return kept;
}

/* Takes and frees a block in the slab, so that it is scrubbed again. */
static const char *purge_again(size_t size)
{
    front_free(front_malloc(size));
    return SAID(front_collect(true));
}

static const size_t sizes[] = { 8, 16, 24, 100, 500, 880, 888, 1000, 1016, 1017, 3000, 5000, 20000 };

/* Changes each byte of the seal to one that is neither zero nor the canary's. */
static void test_each_byte_past_the_end(void)
{
    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *block = begin_lonely(sizes[i]);
        size_t slot = class_size(slab_of(block)->class);
        assert_string_equal(purge_again(sizes[i]), "");
        for (size_t at = sizes[i]; at < slot; at++) {
            char words[120], was = block[at];
            const char *said;
            if (at >= sizes[i] + SEAL_BYTES && at + SEAL_BYTES < slot)
                continue;
            block[at] ^= 0x41;
            if (block[at] == 0)
                block[at] ^= 2;
            said = purge_again(sizes[i]);
            snprintf(words, sizeof words, "scrub(%p): written past its end: ", (void *)block);
            assert_has(said, words);
            assert_has(said, "found as its slab is scrubbed");
            snprintf(words, sizeof words, "%zu bytes were asked for, byte %zu changed", sizes[i], at);
            if (at + SEAL_BYTES < slot + 2) /* else the seal no longer tells the size */
                assert_has(said, words);
            block[at] = was;
        }
        assert_string_equal(purge_again(sizes[i]), "");
        ASSERT_SILENT(front_free(block));
    }
}

/* A block whose thread is between two stores of a seal looks like this. Zeros are found when it is freed. */
static void test_what_a_change_of_a_seal_leaves(void)
{
    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *block = begin_lonely(sizes[i]), was[SEAL_BYTES];
        size_t count = base_min(SEAL_BYTES, class_size(slab_of(block)->class) - SEAL_BYTES - sizes[i]);
        memcpy(was, block + sizes[i], count);
        for (size_t zeros = 1; zeros <= count; zeros++) {
            memset(block + sizes[i], 0, zeros);
            assert_string_equal(purge_again(sizes[i]), "");
        }
        memcpy(block + sizes[i], was, count);
        ASSERT_SILENT(front_free(block));
    }
}

/* The first block of a slab, which nobody has, is a guard for the second one. */
static void test_before_the_first_block(void)
{
    enum { SIZE = 100 };
    struct slab *slab;
    char words[120];
    const char *said;

    begin();
    slab = slab_of(begin_lonely(SIZE));
    assert_string_equal(purge_again(SIZE), "");
    slab->start[class_size(slab->class) - 1] = 7;
    said = purge_again(SIZE);
    snprintf(words, sizeof words, "scrub(%p): the memory before it was written; found as its slab is scrubbed",
             (void *)(slab->start + class_size(slab->class)));
    assert_has(said, words);
    slab->start[class_size(slab->class) - 1] = 0;
    assert_string_equal(purge_again(SIZE), "");
}

/* A free block has no seal, so a write to it is not taken for one past its end. */
static void test_free_blocks(void)
{
    enum { SIZE = 100, ROOM = 112 };
    char *kept, *beside;

    begin();
    kept = begin_lonely(SIZE);
    assert_int_equal(class_size(slab_of(kept)->class), ROOM);
    assert_string_equal(purge_again(SIZE), "");
    beside = kept + ((uintptr_t)kept % 4096 < 2048 ? ROOM : -ROOM); /* on a page that was not purged */
    memset(beside, 0x41, ROOM);
    assert_string_equal(SAID(front_collect(true)), "");
    memset(beside, 0, ROOM);
    ASSERT_SILENT(front_free(kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_each_byte_past_the_end), core_unit_test(test_what_a_change_of_a_seal_leaves),
        core_unit_test(test_before_the_first_block), core_unit_test(test_free_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
