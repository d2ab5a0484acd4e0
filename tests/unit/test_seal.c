/* Protects harden/seal.h: every byte counts in checks and when memory is zeroed, and a seal tells the size and kind. */
#include "core.h"

#include <string.h>

#include "harden/patrol.h"
#include "harden/seal.h"
#include "os/os.h"
#include "pool/heap.h"
#include "pool/slab.h"

enum { MOST = 2048, MARGIN = 64 };
static _Alignas(64) char memory[MARGIN + MOST + MARGIN];
static char *const block = memory + MARGIN;

static void secrets(void)
{
    harden.secret[0] = UINT64_C(0x1122334455667788);
    harden.secret[1] = UINT64_C(0x99aabbccddeeff01);
}

/* Nothing outside of [from, to) is read or written: the margins hold other bytes. */
static void set_margins(size_t size, int value)
{
    memset(memory, value, MARGIN);
    memset(block + size, value, MARGIN);
}

static void test_zero(void)
{
    for (size_t size = 16; size <= MOST; size += 16) {
        memset(block, 0x5a, size);
        set_margins(size, 0x77);
        seal_zero(block, size);
        for (size_t at = 0; at < size; at++)
            assert_int_equal(block[at], 0);
        for (size_t at = 1; at <= MARGIN; at++)
            assert_true(block[size + at - 1] == 0x77 && *(block - at) == 0x77);
    }
}

static void test_is_zero(void)
{
    for (size_t size = 16; size <= MOST; size += 16) {
        memset(block, 0, size);
        set_margins(size, 1);
        assert_true(seal_is_zero(block, size));
        assert_int_equal(seal_first_written(block, size), size);
        for (size_t at = 0; at < size; at++) {
            block[at] = (char)0x80;
            assert_false(seal_is_zero(block, size));
            assert_int_equal(seal_first_written(block, size), at);
            block[at] = 0;
        }
    }
}

/* Whether the seal is broken while the byte has another value, and told to be so at the byte. */
static void check_byte(size_t slot, size_t at, char value, size_t requested, enum seal_kind kind)
{
    char before = block[at];
    struct seal seal;

    block[at] = value;
    if (value != before) {
        bool code = at >= slot - 3; /* a change there may give the block another size or kind */
        assert_true(seal_read(block, slot, &seal) == SEAL_BROKEN ||
                    (code && (seal.requested != requested || seal.kind != kind)));
        assert_true(seal.changed == at || code);
        assert_true(seal.requested == requested || code);
        assert_false(seal_may_be(block, slot) && at >= slot - SEAL_BYTES && !code);
    }
    block[at] = before;
}

/* In a slot of each class, for each size: the seal that was put is read, no byte of the pattern or the seal changes
 * unseen, by a zero neither, and a block that was cleared has none. */
static void check_seals(size_t slot, size_t step)
{
    struct seal seal;

    for (size_t requested = 0; requested + SEAL_BYTES <= slot; requested += step) {
        enum seal_kind kind = (enum seal_kind)(requested % 3);
        size_t grown;
        memset(block, 0, slot);
        assert_int_equal(seal_read(block, slot, &seal), SEAL_NONE);
        seal_put(block, slot, requested, kind);
        memset(block, 0x33, requested);
        assert_int_equal(seal_read(block, slot, &seal), SEAL_WHOLE);
        /* It grows and shrinks. */
        grown = slot - SEAL_BYTES - requested % 7 % (slot - SEAL_BYTES - requested + 1);
        seal_change(block, slot, requested, grown, kind, seal_mix(block));
        assert_int_equal(seal_read(block, slot, &seal), SEAL_WHOLE);
        assert_int_equal(seal.requested, grown);
        memset(block + requested, 0x44, grown - requested);
        seal_change(block, slot, grown, requested, kind, seal_mix(block));
        for (size_t at = 0; at < requested; at++)
            assert_int_equal(block[at], 0x33);
        for (size_t at = requested; at < slot; at++) {
            if (at >= requested + SEAL_BYTES && at < slot - SEAL_BYTES)
                continue;
            check_byte(slot, at, (char)(block[at] ^ 0x10), requested, kind);
            check_byte(slot, at, 0, requested, kind);
        }
        assert_int_equal(seal_read(block, slot, &seal), SEAL_WHOLE);
        assert_int_equal(seal.requested, requested);
        assert_int_equal(seal.kind, kind);
        seal_clear(block, slot);
        assert_int_equal(seal_read(block, slot, &seal), SEAL_NONE);
        assert_true(seal_is_clear(block, slot, seal_mix(block)));
    }
}

static void test_seals(void)
{
    secrets();
    for (unsigned class = 1; class_size(class) <= MOST; class++)
        check_seals(class_size(class), class_size(class) <= 128 ? 1 : 13);
}

/* A slot of up to 128 bytes is looked at whole; a larger one at its edges, and all of it for some secrets. */
static void check_clear(size_t slot, bool all)
{
    uint64_t mix = all ? 0 : UINT64_MAX;

    memset(block, 0x44, slot);
    set_margins(slot, 0x77);
    seal_clear(block, slot);
    for (size_t at = 0; at < slot; at++) {
        bool watched = all || slot <= SEAL_WATCHED_MOST || at < FREE_EDGE || at >= slot - FREE_EDGE_BEHIND;
        assert_int_equal(block[at], 0);
        block[at] ^= 1;
        assert_int_equal(seal_is_clear(block, slot, mix), !watched);
        block[at] ^= 1;
    }
    for (size_t at = 1; at <= MARGIN; at++)
        assert_true(block[slot + at - 1] == 0x77 && *(block - at) == 0x77);
}

static void test_clear(void)
{
    for (unsigned class = 1; class_size(class) <= MOST; class++) {
        check_clear(class_size(class), true);
        check_clear(class_size(class), false);
    }
}

/* Of a larger slot only the edges are cleared and looked at, for each secret. */
static void check_large(size_t slot, bool all)
{
    static _Alignas(16) char large[57344];

    memset(large, 0x44, sizeof large);
    seal_clear_any(large, slot);
    for (size_t at = 0; at < slot; at++) {
        bool edge = at < FREE_EDGE || at >= slot - FREE_EDGE_BEHIND;
        assert_int_equal(large[at], edge ? 0 : 0x44);
        if (!edge)
            continue;
        large[at] = 1;
        assert_false(seal_is_clear(large, slot, all ? 0 : UINT64_MAX));
        assert_int_equal(seal_first_changed(large, slot), at);
        large[at] = 0;
    }
    assert_true(seal_is_clear(large, slot, all ? 0 : UINT64_MAX));
    assert_int_equal(seal_first_changed(large, slot), slot);
}

static void test_clear_large(void)
{
    for (unsigned class = 1; class < CLASS_COUNT && !class_is_span(class); class++) {
        if (class_size(class) <= ZEROED_MOST)
            continue;
        check_large(class_size(class), true);
        check_large(class_size(class), false);
    }
}

/* Where a large block lay, a carved slab of smaller ones is zero, and the edges of larger ones are. */
static void test_units_of_large_blocks(void)
{
    static const unsigned carved[] = { CLASS_1024, CLASS_14336, CLASS_16384, CLASS_57344, CLASS_SPAN_2 };
    static struct heap owner;

    core_begin();
    for (size_t i = 0; i < sizeof carved / sizeof *carved; i++) {
        unsigned class = carved[i];
        size_t slot = class_size(class);
        struct slab *slab;
        core_acquire(size_classes[class].units, 1, 1, &slab);
        assert_false(slab->unclean);
        memset(slab->start, 0x77, slab_bytes(slab));
        slab->unclean = true;
        slab_carve(slab, class, &owner);
        for (unsigned j = 0; j < size_classes[class].blocks; j++) {
            const char *start = slab->start + j * slot;
            assert_true(class_is_span(class) ? seal_first_written(start, FREE_EDGE) == FREE_EDGE
                                             : seal_is_clear(start, slot, 0));
            assert_int_equal(start[slot / 2], slot <= ZEROED_MOST ? 0 : 0x77);
        }
        assert_int_equal(slab->unclean, slot > ZEROED_MOST);
    }
}

static unsigned pages_of(const struct slab *slab)
{
    unsigned char resident[UNIT_SIZE / 4096];
    unsigned count = 0;

    assert_true(os_resident_pages(slab->start, slab_bytes(slab), resident));
    for (unsigned i = 0; i < UNIT_SIZE / os_page_size(); i++)
        count += resident[i] & 1;
    return count;
}

/* The look at a whole slab finds a write to a free block, and gives no memory to pages that nobody used. */
static void test_look_at_slab(void)
{
    static struct heap owner;
    struct slab *slab;
    bool in_use;

    core_begin();
    core_acquire(1, 1, 1, &slab);
    slab_carve(slab, CLASS_1024, &owner);
    assert_true(os_purge(slab->start, UNIT_SIZE));
    assert_null(patrol_slab(slab, &in_use));
    assert_int_equal(pages_of(slab), 0);
    /* Two blocks on one page, none of which begins there. */
    seal_touch((void *const[]){ slab->start + 41 * 1024, slab->start + 42 * 1024 }, 2, 1024);
    assert_int_equal(pages_of(slab), 1);
    assert_null(patrol_slab(slab, &in_use));
    assert_int_equal(pages_of(slab), 1);
    slab->start[40 * 1024 + 500] = 1;
    assert_ptr_equal(patrol_slab(slab, &in_use), slab->start + 40 * 1024);
    assert_false(in_use);
    assert_int_equal(pages_of(slab), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_zero),
        core_unit_test(test_is_zero),
        core_unit_test(test_seals),
        core_unit_test(test_clear),
        core_unit_test(test_clear_large),
        core_unit_test(test_units_of_large_blocks),
        core_unit_test(test_look_at_slab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
