/* Protects front/medium.h: the blocks of 1 to 56 KiB that its fast paths take and give, and those that they refuse. */
#include "core.h"

#include <string.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/medium.h"
#include "front/thread.h"

_Static_assert(HAK_SECURE, "only libhakmem-secure has these paths");

static struct thread_cache *cache;

static void begin(void) { cache = core_begin_thread(); }

static struct ring *ring_of(unsigned class) { return &cache->hardened.rings[class]; }

/* The ring's entry that malloc takes next. */
static void **next_entry(unsigned class)
{
    return &cache->slots[ring_rows[class].first + (ring_of(class)->tail & ring_rows[class].mask)];
}

enum { SPARES = 64 };
static char *spares[SPARES];

/* A block that the program holds. Its class's ring has blocks that malloc may take, and room. The program holds all
 * `spares` but those that are NULL. */
static char *held(size_t size)
{
    struct ring *ring = ring_of(class_of_size(size + SEAL_BYTES));
    char *block;
    unsigned i;

    bins_flush(&cache->hardened, cache->slots, cache->heap, true); /* rings share their bytes */
    assert_non_null(block = front_malloc(size));
    for (i = 0; i < SPARES; i++)
        assert_non_null(spares[i] = front_malloc(size));
    for (i = 0; i < SPARES / 2; i++) {
        front_free(spares[i]);
        spares[i] = NULL;
    }
    for (i = 0; ring_is_full(ring); i++)
        assert_non_null(spares[i] = front_malloc(size));
    assert_in_range(ring_count(ring), ring->keep + 1, ring->limit - 1);
    return block;
}

static struct medium_place place_of(const char *block)
{
    struct medium_place place;

    assert_true(medium_find(block, slab_of(block)->class, &place));
    return place;
}

/* medium_free. A refusal changes nothing. */
static bool frees(char *block, struct hardened_claim claim)
{
    struct ring before[CLASS_COUNT];
    char *slab = (char *)base_align_down((uintptr_t)block, UNIT_SIZE);
    struct ledger ledger = *ledger_of(slab_of(slab));
    bool done;

    memcpy(before, cache->hardened.rings, sizeof before);
    done = medium_free(block, claim);
    if (!done) {
        assert_memory_equal(before, cache->hardened.rings, sizeof before);
        assert_memory_equal(&ledger, ledger_of(slab_of(slab)), sizeof ledger);
    }
    return done;
}

static const struct hardened_claim no_claim = { SIZE_MAX, 1, SEAL_MALLOC };

/* The sizes of a class: the least, the largest, and one between. */
static void class_sizes(unsigned class, size_t sizes[3])
{
    sizes[0] = base_max(class_size(class - 1) - SEAL_BYTES, QUICK_MOST) + 1;
    sizes[2] = class_size(class) - SEAL_BYTES;
    sizes[1] = (sizes[0] + sizes[2]) / 2;
}

/* In each class a block has its seal from malloc to free, is zero, and goes to the ring. */
static void test_each_class(void)
{
    begin();
    for (unsigned class = CLASS_1024; class < CLASS_SPAN_1; class++) {
        size_t sizes[3];
        class_sizes(class, sizes);
        for (unsigned i = 0; i < 3; i++) {
            char *kept = held(sizes[i]), *expected = *next_entry(class), *block = medium_malloc(sizes[i]);
            unsigned count = ring_count(ring_of(class));
            struct medium_place place;
            struct seal seal;
            assert_ptr_equal(block, expected);
            place = place_of(block);
            assert_int_equal(seal_read(block, class, place.ledger, place.index, &seal), SEAL_WHOLE);
            assert_int_equal(seal.requested, sizes[i]);
            assert_int_equal(seal.kind, SEAL_MALLOC);
            assert_int_equal(seal_first_written(block, base_align_down(sizes[i], 16)), base_align_down(sizes[i], 16));
            memset(block, 0x5a, sizes[i]);
            assert_true(frees(block, no_claim));
            assert_int_equal(ring_count(ring_of(class)), count + 1);
            assert_int_equal(seal_first_written(block, class_size(class)), class_size(class));
            assert_int_equal(seal_read(block, class, place.ledger, place.index, &seal), SEAL_NONE);
            assert_true(frees(kept, no_claim) || ring_is_full(ring_of(class)));
        }
    }
}

/* Other sizes are for other paths. */
static void test_sizes(void)
{
    begin();
    (void)held(QUICK_MOST);
    assert_null(medium_malloc(QUICK_MOST));
    (void)held(QUICK_MOST + 1);
    assert_null(medium_malloc(0));
    assert_non_null(medium_malloc(QUICK_MOST + 1));
    (void)held(MEDIUM_MOST);
    assert_non_null(medium_malloc(MEDIUM_MOST));
    (void)held(MEDIUM_MOST);
    assert_null(medium_malloc(MEDIUM_MOST + 1));
    assert_null(medium_malloc(SIZE_MAX));
}

/* malloc gives no block of an empty ring or of the quarantine, no block that was written meanwhile, no address that is
 * not the start of a block, and none while the fast paths are off. */
static void test_malloc_refuses(void)
{
    enum { SIZE = 5000 };
    unsigned class = class_of_size(SIZE + SEAL_BYTES);
    struct ring *ring, before;
    char *block;

    begin();
    ring = ring_of(class);
    assert_null(medium_malloc(SIZE));
    (void)held(SIZE);
    before = *ring;
    block = *next_entry(class);

    for (size_t at = 0; at < class_size(class); at += class_size(class) - 1) {
        block[at] = 1;
        assert_null(medium_malloc(SIZE));
        block[at] = 0;
    }
    *next_entry(class) = slab_of(block)->start + 1024; /* zero, and inside the slab's first block */
    memset(*next_entry(class), 0, class_size(class));
    assert_null(medium_malloc(SIZE));
    *next_entry(class) = block;
    harden_detour(true);
    assert_null(medium_malloc(SIZE));
    harden_detour(false);
    assert_memory_equal(ring, &before, sizeof before);

    while (ring_count(ring) > ring->keep)
        assert_non_null(medium_malloc(SIZE));
    assert_true(ring->keep > 0);
    assert_null(medium_malloc(SIZE));
    assert_int_equal(ring_count(ring), ring->keep);
}

/* free takes nothing but the start of a live block of these classes. */
static void test_free_refuses_addresses(void)
{
    static char foreign[64];
    char *block, *small, *span, *two_units, *behind;
    struct medium_place place;

    begin();
    two_units = held(24000);
    assert_int_equal(slab_of(two_units)->units, 2);
    assert_false(frees(slab_of(two_units)->start + UNIT_SIZE, no_claim)); /* in the middle of a block */
    assert_true(frees(two_units, no_claim));
    block = held(5000);
    small = front_malloc(100);
    span = front_malloc(60000);
    assert_false(medium_free(foreign, no_claim));
    assert_false(medium_free((char *)-16, no_claim));
    assert_false(frees(small, no_claim));
    assert_false(frees(span, no_claim));
    for (size_t at = 1; at < 5120; at += at < 32 ? 1 : 16)
        assert_false(frees(block + at, no_claim));
    /* Where the slab has bytes left. */
    behind = slab_of(block)->start + class_size(CLASS_5120) * size_classes[CLASS_5120].blocks;
    assert_true(slab_of(behind) == slab_of(block));
    assert_false(medium_find(behind, CLASS_5120, &place));
    assert_false(frees(behind, no_claim));
    assert_true(frees(block, no_claim));
    assert_false(frees(block, no_claim));
}

/* free takes a block only if all that the caller claims of it is true. */
static void test_free_refuses_claims(void)
{
    char *block;

    begin();
    block = held(5000);
    assert_false(frees(block, (struct hardened_claim){ 4999, 1, SEAL_MALLOC }));
    assert_false(frees(block, (struct hardened_claim){ 5001, 1, SEAL_MALLOC }));
    assert_false(frees(block, (struct hardened_claim){ SIZE_MAX, 16, SEAL_MALLOC }));
    assert_false(frees(block, (struct hardened_claim){ SIZE_MAX, 1, SEAL_NEW }));
    assert_true(frees(block, (struct hardened_claim){ 5000, 1, SEAL_MALLOC }));
    block = held(5000);
    hardened_mark(block, SEAL_NEW_ARRAY);
    assert_false(frees(block, no_claim));
    assert_true(frees(block, (struct hardened_claim){ 5000, 1, SEAL_NEW_ARRAY }));
}

/* free takes no block with a changed canary, and none while the fast paths are off or the ring has no room. */
static void test_free_refuses_states(void)
{
    enum { SIZE = 5000 };
    unsigned class = class_of_size(SIZE + SEAL_BYTES);
    char *block;

    begin();
    block = held(SIZE);
    for (size_t at = SIZE; at < SIZE + SEAL_BYTES; at++) {
        block[at] ^= 0x41;
        assert_false(frees(block, no_claim));
        block[at] ^= 0x41;
    }
    harden_detour(true);
    assert_false(frees(block, no_claim));
    harden_detour(false);
    for (unsigned i = SPARES / 2; !ring_is_full(ring_of(class)); i++)
        front_free(spares[i]);
    assert_false(frees(block, no_claim));
    assert_int_equal(front_usable_size(block, "malloc_usable_size"), SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_each_class),
        core_unit_test(test_sizes),
        core_unit_test(test_malloc_refuses),
        core_unit_test(test_free_refuses_addresses),
        core_unit_test(test_free_refuses_claims),
        core_unit_test(test_free_refuses_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
