/* Protects harden/seal.h: every byte counts in checks and when memory is zeroed, and a seal tells the size and kind. */
#include "core.h"

#include <string.h>

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
        bool watched = all || slot <= SEAL_WATCHED_MOST || at < FREE_EDGE || at >= slot - SEAL_EDGE_BEHIND;
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

/* Of a block that begins and ends inside of pages, each byte becomes zero, and pages without memory get none, at the
 * first two times. */
static void test_zero_large(void)
{
    enum { PAGES = 8 };
    unsigned char resident[PAGES];
    struct slab slab = { 0 };
    size_t page = os_page_size(), size = (PAGES - 1) * page;
    char *pages = os_map(PAGES * page, page);
    char *begin = pages + 512;

    assert_non_null(pages);
    for (unsigned time = 1; time <= 4; time++) {
        memset(pages, 0x77, 512 + 100);
        memset(pages + 3 * page, 0x77, 2 * page);
        memset(begin + size - 100, 0x77, 200);
        seal_zero_large(&slab, 5, begin, size);
        assert_true(os_resident_pages(pages, PAGES * page, resident));
        for (unsigned i = 0; i < PAGES; i++)
            assert_int_equal(resident[i] & 1, time > 2 || (i != 1 && i != 2 && i != 5 && i != 6));
        assert_true(begin[-1] == 0x77 && begin[size] == 0x77);
        assert_int_equal(seal_first_written(begin, size), size);
        assert_true(os_purge(pages + page, 2 * page) && os_purge(pages + 5 * page, 2 * page));
        assert_int_equal(atomic_load(&slab.resident), time < 2 ? 0 : UINT64_C(1) << 5);
    }
    os_unmap(pages, PAGES * page);
}

/* A block whose pages all have memory is asked about once. */
static void test_zero_large_of_what_is_resident(void)
{
    static _Alignas(64) char full[8 * 4096];
    struct slab slab = { 0 };

    memset(full, 0x77, sizeof full);
    seal_zero_large(&slab, 63, full, sizeof full);
    assert_int_equal(atomic_load(&slab.resident), UINT64_C(1) << 63);
    assert_int_equal(atomic_load(&slab.sparse), 0);
    assert_int_equal(seal_first_written(full, sizeof full), sizeof full);
}

/* A carved slab is zero where a span lay. If its SuperSlab may be divided and the blocks are larger than a page, its
 * memory went back. */
static void test_units_of_a_span(void)
{
    static struct heap owner;
    unsigned whole = 0;
    struct slab *slab;

    hak_options.thp = OPTION_ALWAYS;
    core_begin();
    for (unsigned i = 0; i < 4; i++) {
        unsigned class = i % 2 ? CLASS_20480 : CLASS_1024;
        bool divisible = i / 2;
        uint64_t purges;

        core_acquire(size_classes[class].units, 1, 1, &slab);
        assert_true(slab->divisible && !slab->unclean);
        memset(slab->start, 0x77, slab_bytes(slab));
        slab->unclean = true;
        slab->divisible = divisible;
        purges = fake_calls(FAKE_PURGE);
        slab_carve(slab, class, &owner);
        assert_int_equal(fake_calls(FAKE_PURGE) - purges, divisible && class == CLASS_20480);
        assert_int_equal(seal_first_written(slab->start, slab_bytes(slab)), slab_bytes(slab));
        assert_false(slab->unclean);
    }
    for (unsigned i = 0; i < 60; i++) { /* a SuperSlab with a huge page may not be divided */
        core_acquire(SPAN_MAX_UNITS, 1, 1, &slab);
        core_use(slab, SPAN_MAX_UNITS * UNIT_SIZE);
        assert_int_equal(slab->divisible, shared_pool.slots[window_slot_of(slab)].huge_pages != PAGES_HUGE);
        whole += !slab->divisible;
    }
    assert_true(whole > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_zero),
        core_unit_test(test_is_zero),
        core_unit_test(test_seals),
        core_unit_test(test_clear),
        core_unit_test(test_zero_large),
        core_unit_test(test_units_of_a_span),
        core_unit_test(test_zero_large_of_what_is_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
