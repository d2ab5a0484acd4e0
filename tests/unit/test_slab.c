/* Protects pool/slab.h: the maps of a slab against a model, for every class; misuse that slab_put finds; scrubbing. */
#include "core.h"

#include <string.h>

#include "pool/slab.h"
#include "pool/heap.h"
#include "superslab/metadata.h"

static struct heap owner;

static struct slab *carve(unsigned class)
{
    struct slab *slab;

    core_acquire(size_classes[class].units, 1, 1, &slab);
    slab_carve(slab, class, &owner);
    return slab;
}

/* Bytes that scrubbing the slab gives back. */
static size_t scrub(struct slab *slab)
{
    size_t purged = 0;
    assert_true(slab_scrub(slab, NULL, &purged));
    return purged;
}

static void let_go(struct slab *slab)
{
    slab->zero = false;
    core_release(slab);
}

static char *block_at(const struct slab *slab, size_t index)
{
    return slab->start + index * class_size(slab->class);
}

/* Checks H2, H5 and the count of H1 from outside. */
static void check_slab(const struct slab *slab, size_t used)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    size_t free = 0;

    for (unsigned i = 0; i < slab_words(slab); i++) {
        uint64_t word = atomic_load(&mutable->local[i]);
        free += base_count_bits(word);
        assert_int_equal((slab->summary >> i) & 1, word != 0);
    }
    assert_int_equal(slab->summary & ~base_low_mask(slab_words(slab)), 0);
    assert_int_equal(free, slab->blocks - used);
    assert_int_equal(slab->used, used);
    slab_check(slab);
}

static void put(struct slab *slab, const void *block)
{
    assert_int_equal(slab_put(slab, block), SLAB_PUT_DONE);
    slab->used--;
}

/* ---- Carving and taking ---- */

static void test_carve(void)
{
    core_begin();
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        struct slab *slab = carve(class);
        assert_int_equal(atomic_load(&slab->state), SLAB_ACTIVE);
        assert_ptr_equal(atomic_load(&slab->owner), &owner);
        assert_int_equal(slab->blocks, size_classes[class].blocks);
        assert_int_equal(slab_bytes(slab), size_classes[class].units * UNIT_SIZE);
        assert_int_equal(atomic_load(&slab->remote_count), 0);
        for (unsigned i = 0; i < slab->blocks; i++)
            assert_true(slab_block_is_free(slab, i));
        check_slab(slab, 0);
        assert_int_equal(core_resident(slab->start, slab_bytes(slab)), 0);
        core_release(slab);
    }
}

/* Takes all blocks in batches of any size: each once, the lowest first, and none is touched. */
static void test_take(void)
{
    void *out[SLAB_MAX_BLOCKS + 100];

    core_begin();
    chance_begin();
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        struct slab *slab = carve(class);
        size_t taken = 0;
        while (taken < slab->blocks) {
            size_t want = 1 + chance_below(100), got = want - slab_take(slab, out, want);
            assert_int_equal(got, base_min(want, slab->blocks - taken));
            for (size_t i = 0; i < got; i++) /* out[] is filled downwards */
                assert_ptr_equal(out[want - 1 - i], block_at(slab, taken + i));
            taken += got;
            check_slab(slab, taken);
        }
        assert_int_equal(slab->summary, 0);
        assert_int_equal(slab_take(slab, out, 5), 5);
        assert_true(block_at(slab, slab->blocks) <= slab->start + slab_bytes(slab));
        assert_int_equal(core_resident(slab->start, slab_bytes(slab)), 0);
        core_release(slab);
    }
}

/* ---- Putting back ---- */

static void test_put_and_take(void)
{
    static bool in_use[SLAB_MAX_BLOCKS];
    void *out[64];

    core_begin();
    chance_begin();
    for (unsigned class = 1; class < CLASS_SPAN_2; class++) {
        struct slab *slab = carve(class);
        size_t used = 0;
        memset(in_use, 0, sizeof in_use);
        for (unsigned step = 0; step < 600; step++) {
            size_t index = chance_below(slab->blocks), want = 1 + chance_below(64), lowest = 0;
            if (in_use[index]) {
                put(slab, block_at(slab, index));
                in_use[index] = false;
                used--;
                assert_int_equal(slab_put(slab, block_at(slab, index)), SLAB_PUT_FREED);
            } else {
                for (size_t left = slab_take(slab, out, want), i = want; i > left; i--) {
                    while (in_use[lowest])
                        lowest++;
                    assert_ptr_equal(out[i - 1], block_at(slab, lowest));
                    in_use[lowest] = true;
                    used++;
                }
            }
            if (step % 16 == 0)
                check_slab(slab, used);
        }
        for (size_t i = 0; i < slab->blocks; i++)
            assert_int_equal(slab_put(slab, block_at(slab, i)), in_use[i] ? SLAB_PUT_DONE : SLAB_PUT_FREED);
        slab->used = 0;
        check_slab(slab, 0);
        core_release(slab);
    }
}

/* Draws blocks of a slab in an order of frees: rows upwards or downwards, and single blocks. Returns their number. */
static size_t draw_rows(const struct slab *slab, bool *in_use, void **blocks)
{
    size_t count = 0;

    for (unsigned part = 0; part < 8; part++) {
        size_t index = chance_below(slab->blocks), length = 1 + chance_below(part % 2 ? 200 : 3);
        bool down = chance_below(2);
        for (; length && index < slab->blocks && in_use[index]; length--) {
            in_use[index] = false;
            blocks[count++] = block_at(slab, index);
            index += down ? SIZE_MAX : 1; /* no block lies below 0 */
        }
    }
    return count;
}

/* Rows of blocks in either direction, across the map's words and up to the slab's ends. */
static void test_put_rows(void)
{
    static bool in_use[SLAB_MAX_BLOCKS];
    static void *blocks[8 * 200], *out[SLAB_MAX_BLOCKS];

    core_begin();
    chance_begin();
    for (unsigned class = 1; class < CLASS_SPAN_2; class++) {
        struct slab *slab = carve(class);
        for (unsigned round = 0; round < 20; round++) {
            size_t used = slab->blocks;
            assert_int_equal(slab_take(slab, out, slab->blocks), 0);
            memset(in_use, true, slab->blocks);
            for (unsigned batch = 0; batch < 20; batch++) {
                enum slab_put_result result = SLAB_PUT_DONE;
                size_t count = draw_rows(slab, in_use, blocks);
                if (count == 0)
                    continue;
                assert_ptr_equal(slab_put_run(slab, blocks, blocks + count, &result), blocks + count);
                assert_int_equal(result, SLAB_PUT_DONE);
                slab->used -= (uint32_t)count;
                used -= count;
                check_slab(slab, used);
                for (size_t i = 0; i < slab->blocks; i++)
                    assert_int_equal(slab_block_is_free(slab, (unsigned)i), !in_use[i]);
            }
            for (size_t i = 0; i < slab->blocks; i++)
                if (in_use[i])
                    put(slab, block_at(slab, i));
        }
        core_release(slab);
    }
}

/* A row stops at a block that is free already. The blocks before it are put back. */
static void test_put_rows_freed(void)
{
    void *out[1024], *row[50];

    core_begin();
    for (unsigned down = 0; down < 2; down++)
        for (size_t freed = 0; freed < 50; freed++) {
            enum slab_put_result result = SLAB_PUT_DONE;
            struct slab *slab = carve(CLASS_64);
            void **stop;
            assert_int_equal(slab_take(slab, out, slab->blocks), 0);
            for (size_t i = 0; i < 50; i++)
                row[i] = block_at(slab, down ? 139 - i : 90 + i);
            put(slab, row[freed]);
            stop = slab_put_run(slab, row, row + 50, &result);
            assert_ptr_equal(stop, row + freed);
            assert_int_equal(result, SLAB_PUT_FREED);
            slab->used -= (uint32_t)freed;
            check_slab(slab, (size_t)slab->blocks - freed - 1);
            for (size_t i = 0; i < 50; i++)
                assert_int_equal(slab_put(slab, row[i]), i <= freed ? SLAB_PUT_FREED : SLAB_PUT_DONE);
            for (size_t i = 0; i < slab->blocks; i++)
                slab_put(slab, block_at(slab, i));
            slab->used = 0;
            core_release(slab);
        }
}

static void test_put_no_block(void)
{
    void *out[SLAB_MAX_BLOCKS];

    core_begin();
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        struct slab *slab = carve(class);
        size_t size = class_size(class), blocks = slab->blocks;
        assert_int_equal(slab_take(slab, out, blocks), 0);
        for (size_t i = 0; i < blocks; i += 1 + blocks / 16) {
            assert_int_equal(slab_put(slab, block_at(slab, i) + 1), SLAB_PUT_NO_BLOCK);
            assert_int_equal(slab_put(slab, block_at(slab, i) + 8), SLAB_PUT_NO_BLOCK);
            assert_int_equal(slab_put(slab, block_at(slab, i) + size - 1), SLAB_PUT_NO_BLOCK);
            if (size > BLOCK_ALIGN)
                assert_int_equal(slab_put(slab, block_at(slab, i) + BLOCK_ALIGN), SLAB_PUT_NO_BLOCK);
        }
        /* The tail of the slab that is no block. */
        for (char *at = block_at(slab, blocks); at < slab->start + slab_bytes(slab); at += BLOCK_ALIGN)
            assert_int_equal(slab_put(slab, at), SLAB_PUT_NO_BLOCK);
        check_slab(slab, blocks);
        core_release(slab);
    }
}

/* H3: a block whose remote bit is set counts as free. */
static void test_block_is_free(void)
{
    struct slab *slab;
    void *out[100];

    core_begin();
    slab = carve(CLASS_64);
    slab_take(slab, out, 100);
    for (unsigned i = 0; i < slab->blocks; i++)
        assert_int_equal(slab_block_is_free(slab, i), i >= 100);
    atomic_store(&slab->remote[1], UINT64_C(1) << 6);
    for (unsigned i = 0; i < slab->blocks; i++)
        assert_int_equal(slab_block_is_free(slab, i), i >= 100 || i == 70);
}

/* ---- Scrubbing ---- */

/* Fills each block in use with its index, scrubs, and checks the contents. */
static void scrub_with(struct slab *slab, const bool *in_use, size_t used)
{
    size_t page = os_page_size(), pages = slab_bytes(slab) / page, size = class_size(slab->class), empty = 0;
    static bool holds[8 * UNIT_SIZE / 4096];

    memset(slab->start, 0x77, slab_bytes(slab));
    slab->zero = false;
    memset(holds, 0, sizeof holds);
    for (size_t i = 0; i < slab->blocks; i++)
        if (in_use[i]) {
            memset(block_at(slab, i), (int)i, size);
            for (size_t at = i * size / page; at <= ((i + 1) * size - 1) / page; at++)
                holds[at] = true;
        }
    for (size_t i = 0; i < pages; i++)
        empty += !holds[i];
    if (used * size > slab_bytes(slab) / 2) {
        assert_int_equal(scrub(slab), 0);
        return;
    }
    assert_int_equal(scrub(slab), empty * page);
    for (size_t i = 0; i < pages; i++)
        assert_int_equal(core_resident(slab->start + i * page, page), holds[i] ? page : 0);
    for (size_t i = 0; i < slab->blocks; i++)
        if (in_use[i])
            for (size_t at = 0; at < size; at++)
                if (block_at(slab, i)[at] != (char)i)
                    fail_msg("class %u: byte %zu of block %zu is lost", slab->class, at, i);
    check_slab(slab, used);
    assert_int_equal(scrub(slab), 0); /* scrubbed already */
}

static void test_scrub(void)
{
    static bool in_use[SLAB_MAX_BLOCKS];
    void *out[SLAB_MAX_BLOCKS];

    core_begin();
    chance_begin();
    for (unsigned class = 1; class < CLASS_SPAN_1; class++) {
        struct slab *slab = carve(class);
        for (unsigned density = 0; density < 3; density++) {
            size_t used = slab->blocks, keep_one_in = density == 0 ? 40 : density == 1 ? 4 : 2;
            assert_int_equal(slab_take(slab, out, slab->blocks), 0);
            for (size_t i = 0; i < slab->blocks; i++) {
                in_use[i] = chance_below(keep_one_in) == 0 || i == 3;
                if (!in_use[i]) {
                    put(slab, block_at(slab, i));
                    used--;
                }
            }
            scrub_with(slab, in_use, used);
            for (size_t i = 0; i < slab->blocks; i++)
                if (in_use[i])
                    put(slab, block_at(slab, i));
        }
        let_go(slab);
    }
}

static void test_scrub_again(void)
{
    struct slab *slab;
    void *out[32];
    uint64_t calls;
    size_t purged = 0;

    core_begin();
    slab = carve(CLASS_4096);
    slab_take(slab, out, 4);
    memset(slab->start, 1, slab_bytes(slab));
    assert_int_equal(scrub(slab), 12 * 4096);
    assert_int_equal(fake_calls(FAKE_PURGE), 1);
    put(slab, block_at(slab, 1));
    assert_int_equal(scrub(slab), 13 * 4096);
    assert_int_equal(fake_calls(FAKE_PURGE), 3); /* two stretches */
    slab_take(slab, out, 1);
    scrub(slab);
    calls = fake_calls(FAKE_PURGE);
    scrub(slab);
    assert_int_equal(fake_calls(FAKE_PURGE), calls);
    /* A refused purge is not counted. */
    put(slab, block_at(slab, 1));
    fake_fail_from(FAKE_PURGE, 1);
    assert_false(slab_scrub(slab, NULL, &purged));
    assert_int_equal(purged, 0);
    /* It is tried again. */
    fake_fail_nothing();
    assert_true(scrub(slab) > 0);
}

/* Freeing two neighbours in one call lets the slab be scrubbed again, and so does carving. */
static void test_scrub_after_run(void)
{
    struct slab *slab;
    void *out[32], **rest;
    enum slab_put_result result = SLAB_PUT_DONE;

    core_begin();
    slab = carve(CLASS_4096);
    assert_int_equal(slab_take(slab, out, 4), 0);
    assert_int_equal(scrub(slab), 12 * 4096);
    rest = slab_put_run(slab, out, out + 2, &result);
    assert_ptr_equal(rest, out + 2);
    slab->used -= 2;
    assert_int_equal(scrub(slab), 14 * 4096);
    slab->used = 0; /* a heap that ends drops its blocks */
    let_go(slab);
    assert_ptr_equal(carve(CLASS_4096), slab);
    assert_int_equal(scrub(slab), 16 * 4096);
}

/* P7: scrubbing purges pages of a slab in use, so it refuses huge pages first, but only if there is a page to purge. */
static void test_scrub_splits(void)
{
    struct slab *slab;
    struct slot *slot;
    void *out[16];

    hak_options.thp = OPTION_ALWAYS;
    core_begin();
    slab = carve(CLASS_4096);
    slot = &shared_pool.slots[window_slot_of(slab)];
    slab_take(slab, out, 16);
    memset(slab->start, 1, slab_bytes(slab));
    assert_int_equal(scrub(slab), 0);
    assert_int_equal(slot->huge_pages, PAGES_HUGE);
    for (size_t i = 0; i < 9; i++)
        put(slab, out[i]);
    assert_int_equal(scrub(slab), 9 * 4096);
    assert_int_equal(slot->huge_pages, PAGES_SPLIT);
    assert_int_equal(fake_calls(FAKE_ADVISE_HUGE), 2);
    assert_int_equal(fake_calls(FAKE_ADVISE_SMALL), 1);
}

/* ---- The slab of an address ---- */

static void test_slab_in_use_at(void)
{
    struct slab *slab, *warm, *one;
    char *superslab, *slot;
    void *record;

    assert_null(slab_in_use_at(&owner)); /* no window yet */
    core_begin();
    assert_null(slab_in_use_at(hak_window));
    assert_null(slab_in_use_at(window_slot_address(window_slots_begin())));
    assert_null(slab_in_use_at(window_slot_address(window_slots_begin() + 1)));
    slab = carve(CLASS_24576); /* of two units */
    one = carve(CLASS_64);
    core_acquire(1, 1, 1, &warm);
    superslab = (char *)superslab_of(slab);
    assert_true(slab->units > 1);
    for (size_t at = 0; at < slab_bytes(slab); at += 777)
        assert_ptr_equal(slab_in_use_at(slab->start + at), slab);
    assert_ptr_equal(slab_in_use_at(slab->start + slab_bytes(slab) - 1), slab);
    assert_ptr_equal(slab_in_use_at(one->start + 1), one);
    assert_null(slab_in_use_at(warm->start));
    assert_null(slab_in_use_at(superslab)); /* the header */
    assert_null(slab_in_use_at(superslab + UNIT_SIZE - 1));
    assert_null(slab_in_use_at(superslab + SUPERSLAB_SIZE - 1)); /* a unit that was never taken */
    let_go(one);
    assert_null(slab_in_use_at(one->start));

    record = metadata_allocate(64, 64);
    slot = window_slot_address(window_slot_of(record));
    assert_false(window_in_superslab(slot));
    assert_null(slab_in_use_at(slot + 3 * UNIT_SIZE));
    assert_true(window_in_superslab(superslab) && window_in_superslab(superslab + SUPERSLAB_SIZE - 1));
    for (size_t i = 0; i < 2; i++) {
        assert_null(slab_in_use_at((char *)(uintptr_t)i));
        assert_null(slab_in_use_at(hak_window - 1 - i));
        assert_null(slab_in_use_at(window_slot_address(window_slots_end()) + i));
        assert_null(slab_in_use_at((char *)(UINTPTR_MAX - i)));
    }
}

/* ---- The checker ---- */

static struct slab *broken;

static void check_broken(void)
{
    slab_check(broken);
}

static void test_slab_check(void)
{
    void *out[10];

    core_begin();
    broken = carve(CLASS_64);
    slab_take(broken, out, 10);
    slab_check(broken);
    broken->summary ^= 4;
    assert_int_equal(signal_of(check_broken) != 0, HAK_DEBUG); /* H2 */
    broken->summary ^= 4;
    broken->used = 9; /* H1: a block in use is not counted */
    assert_int_equal(signal_of(check_broken) != 0, HAK_DEBUG);
    broken->used = 0; /* H5 */
    assert_int_equal(signal_of(check_broken) != 0, HAK_DEBUG);
    broken->used = 10;
    slab_check(broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_carve),
        core_unit_test(test_take),
        core_unit_test(test_put_and_take),
        core_unit_test(test_put_rows),
        core_unit_test(test_put_rows_freed),
        core_unit_test(test_put_no_block),
        core_unit_test(test_block_is_free),
        core_unit_test(test_scrub),
        core_unit_test(test_scrub_again),
        core_unit_test(test_scrub_after_run),
        core_unit_test(test_scrub_splits),
        core_unit_test(test_slab_in_use_at),
        core_unit_test(test_slab_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
