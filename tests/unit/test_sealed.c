/* Protects the hardened path (front/sealed.h, harden/): calls report misuse, and correct use is silent.
 *
 * tests/process/hardening shows the same to programs. */
#include "heaps.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "front/fast.h"
#include "front/sealed.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/thread.h"

static const size_t sizes[] = { 1, 8, 15, 16, 24, 100, 504, 1000, 1008, 1016, 1017, 5000, 40000, 57336, 57344,
                                60000, 300000, 1048560, 1048568, 1048569, 3000000 };
#define SIZES (sizeof sizes / sizeof sizes[0])

static void begin(void)
{
    (void)core_begin_thread();
    assert_int_equal(harden.secret[1] & 1, 1); /* an odd factor mixes all bits of an address */
}

/* The messages of a call. */
#define SAID(call) (capture_begin(), (void)(call), capture_end())
#define ASSERT_SAYS(call, words) assert_has(SAID(call), words)
#define ASSERT_SILENT(call) assert_string_equal(SAID(call), "")

static void assert_zero_from(const char *block, size_t from, size_t to)
{
    /* One call of the C library compares all bytes: a sanitizer takes long for each access of the loop. */
    if (from >= to || (block[from] == 0 && memcmp(block + from, block + from + 1, to - from - 1) == 0))
        return;
    for (; from < to; from++)
        if (block[from] != 0)
            fail_msg("byte %zu is %d", from, block[from]);
}

/* ---- Correct use ---- */

static void use_all_sizes(void)
{
    for (unsigned round = 0; round < 30; round++)
        for (size_t i = 0; i < SIZES; i++) {
            char *block = round % 3 ? front_malloc(sizes[i]) : front_calloc(1, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % BLOCK_ALIGN, 0);
            if (round % 3 == 0)
                assert_zero_from(block, 0, sizes[i]);
            memset(block, 0x5a, sizes[i]);
            assert_int_equal(front_usable_size(block, "malloc_usable_size"), sizes[i]);
            assert_int_equal(front_block_size(block), sizes[i]);
            assert_int_equal(front_block_size(block + 1), 0);
            if (round % 2)
                front_free_sized(block, sizes[i], 1, "free_sized");
            else
                front_free(block);
            assert_int_equal(front_block_size(block), 0);
        }
}

static void test_correct_use(void)
{
    begin();
    ASSERT_SILENT(use_all_sizes());
}

/* When the thread asks for it, held-back blocks go to their slabs, and these to the pool. */
static void test_collect(void)
{
    static void *blocks[2000];

    begin();
    for (size_t i = 0; i < 2000; i++)
        blocks[i] = front_malloc(400);
    for (size_t i = 0; i < 2000; i++)
        front_free(blocks[i]);
    for (size_t i = 0; i < 20; i++)
        blocks[i] = front_malloc(60000);
    for (size_t i = 0; i < 20; i++)
        front_free(blocks[i]);
    assert_true(shared_pool.units_used > 1);
    front_collect(true);
    print_message("%zu units\n", (size_t)shared_pool.units_used);
    assert_int_equal(shared_pool.units_used, 0);
    ASSERT_SILENT(use_all_sizes());
}

static void use_alignments(void)
{
    for (size_t alignment = 1; alignment <= 4 * HAK_MIB; alignment *= 2)
        for (size_t i = 0; i < SIZES; i += 3) {
            char *block = front_aligned_alloc(alignment, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            memset(block, 1, sizes[i]);
            assert_int_equal(front_usable_size(block, "malloc_usable_size"), sizes[i]);
            front_free_sized(block, sizes[i], alignment, "free_aligned_sized");
        }
}

static void test_alignments(void)
{
    begin();
    ASSERT_SILENT(use_alignments());
    assert_null(front_aligned_alloc((size_t)1 << 62, 1));
    assert_int_equal(errno, ENOMEM);
}

static void resize_all(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (size_t k = 0; k < SIZES; k++) {
            char *block = front_malloc(sizes[i]), *resized;
            size_t both = base_min(sizes[i], sizes[k]);
            memset(block, 0x33, sizes[i]);
            resized = front_realloc(block, sizes[k], "realloc");
            assert_non_null(resized);
            for (size_t at = 0; at < both; at += base_max(both / 50, 1))
                assert_int_equal(resized[at], 0x33);
            assert_int_equal(resized[both - 1], 0x33);
            memset(resized, 0x44, sizes[k]);
            assert_int_equal(front_usable_size(resized, "malloc_usable_size"), sizes[k]);
            assert_null(front_realloc(resized, 0, "realloc"));
        }
}

static void test_resizing(void)
{
    char *block;

    begin();
    ASSERT_SILENT(resize_all());
    block = front_realloc(NULL, 50, "realloc");
    assert_non_null(block);
    assert_null(front_realloc(block, SIZE_MAX, "realloc"));
    assert_int_equal(errno, ENOMEM);
    front_free(block);
    ASSERT_SAYS(assert_null(front_realloc(block, 60, "realloc")), "realloc(");
    block = front_malloc(3000000);
    assert_null(front_realloc(block, SIZE_MAX, "realloc"));
    front_free(block);
    ASSERT_SAYS(assert_null(front_realloc(block, 60, "realloc")), "freed already");
}

static void assert_size(const char *block, size_t size, bool is_block)
{
    struct heap *heap;
    bool found = !is_block;

    assert_int_equal(sealed_size(block, &found, &heap), size);
    assert_int_equal(found, is_block);
    assert_null(heap);
}

/* Only a live and whole block has a size. */
static void test_sizes(void)
{
    begin();
    for (size_t i = 0; i < SIZES; i++) {
        char *block = front_malloc(sizes[i]);
        assert_size(block, sizes[i], true);
        assert_size(block + 1, 0, false);
        block[sizes[i]] ^= 1;
        assert_size(block, 0, false);
        block[sizes[i]] ^= 1;
        front_free(block);
        assert_size(block, 0, false);
    }
}

/* A block grows in place as far as its class has room, and a huge one into free addresses; its size is exact. */
static void test_expand(void)
{
    char *block;

    begin();
    block = front_malloc(20);
    assert_int_equal(front_expand(block, 10), 20);
    assert_int_equal(front_expand(block, 24), 24);
    assert_int_equal(front_usable_size(block, "malloc_usable_size"), 24);
    assert_zero_from(block, 20, 24);
    assert_int_equal(front_expand(block, 100), 0);
    assert_int_equal(front_expand(block, POOLED_MAX + 1), 0);
    block[24] ^= 1;
    ASSERT_SAYS(assert_int_equal(front_expand(block, 24), 0), "written past its end: 24 bytes were asked for");
    block[24] ^= 1;
    front_free(block);
    ASSERT_SAYS(assert_int_equal(front_expand(block, 20), 0), "freed already");
    assert_int_equal(front_expand(NULL, 20), 0);

    block = front_malloc(3000000);
    assert_int_equal(front_expand(block, 2000000), 3000000);
    assert_int_equal(front_expand(block, SIZE_MAX), 0);
    if (front_expand(block, 3000100) != 0) {
        assert_int_equal(front_usable_size(block, "malloc_usable_size"), 3000100);
        memset(block, 1, 3000100);
    }
    ASSERT_SILENT(front_free(block));
    block = front_malloc(0);
    assert_int_equal(front_expand(block, 1), 0);
    ASSERT_SILENT(front_free(block));
}

/* ---- Misuse ---- */

/* Whether a write of this byte behind the requested size is found: the first eight, as far as they lie before the
 * inaccessible pages of a huge block, and in a slot those of the seal. */
static bool is_watched(const char *block, size_t size, size_t at)
{
    size_t slot;

    if (at < size + SEAL_BYTES)
        return size <= POOLED_MAX - SEAL_BYTES || at < base_align_up(size, os_page_size());
    slot = size <= SEALED_MOST ? class_size(slab_of(block)->class) : 0;
    return at + SEAL_BYTES >= slot && at < slot;
}

/* The next free finds the write, tells its place, and keeps the block. */
static void test_past_the_end(void)
{
    begin();
    for (size_t i = 0; i < SIZES; i++) {
        char *block = front_malloc(sizes[i]);
        size_t slot = sizes[i] <= SEALED_MOST ? class_size(slab_of(block)->class) : 0;
        for (size_t at = sizes[i]; at < base_max(sizes[i] + SEAL_BYTES, slot); at++) {
            const char *said;
            char words[100];
            if (!is_watched(block, sizes[i], at))
                continue;
            block[at] ^= 0x41;
            said = SAID(front_free(block));
            snprintf(words, sizeof words, "free(%p): written past its end: ", (void *)block);
            assert_has(said, words);
            snprintf(words, sizeof words, "byte %zu changed", at);
            if (at + SEAL_BYTES < slot + 2 || slot == 0) /* else the seal no longer tells the size */
                assert_has(said, words);
            block[at] ^= 0x41;
        }
        assert_int_equal(front_usable_size(block, "malloc_usable_size"), sizes[i]);
        block[sizes[i]] ^= 1;
        ASSERT_SAYS(assert_int_equal(front_usable_size(block, "malloc_usable_size"), 0), "written past its end");
        ASSERT_SAYS(assert_null(front_realloc(block, 10, "realloc")), "realloc(");
        block[sizes[i]] ^= 1;
        ASSERT_SILENT(front_free(block));
    }
}

static void test_twice_and_inside(void)
{
    begin();
    for (size_t i = 0; i < SIZES; i++) {
        char *block = front_malloc(sizes[i]);
        if (sizes[i] > 16)
            ASSERT_SAYS(front_free(block + 16), "not the start of a block");
        ASSERT_SAYS(front_free(block + 1), "not the start of a block");
        ASSERT_SILENT(front_free(block));
        ASSERT_SAYS(front_free(block), "free(");
        ASSERT_SAYS(front_free_sized(block, sizes[i], 1, "free_sized"), "freed already");
        ASSERT_SAYS(assert_int_equal(front_usable_size(block, "malloc_usable_size"), 0), "malloc_usable_size(");
    }
    static char no_block[64];
    char *volatile address = no_block; /* the compiler would warn of a free of what is no block */
    ASSERT_SAYS(front_free(address), "not allocated by HAKMEM");
}

static void test_other_size_or_kind(void)
{
    static const char *const names[] = { "free", "operator delete", "operator delete[]" };
    begin();
    for (size_t i = 0; i < SIZES; i++) {
        char *block = front_malloc(sizes[i]);
        ASSERT_SAYS(front_free_sized(block, sizes[i] + 1, 1, "free_sized"), "free_sized(");
        ASSERT_SAYS(front_free_sized(block, sizes[i] - 1, 1, "free_sized"), "not of that size or alignment");
        for (unsigned kind = SEAL_MALLOC; kind <= SEAL_NEW_ARRAY; kind++)
            for (unsigned by = SEAL_MALLOC; by <= SEAL_NEW_ARRAY; by++) {
                struct sealed_claim claim = { SIZE_MAX, 1, by };
                char words[100];
                if (kind == by)
                    continue;
                sealed_mark(block, (enum seal_kind)kind);
                snprintf(words, sizeof words, ", freed by %s", names[by]);
                ASSERT_SAYS(sealed_free(block, claim, "free"), words);
            }
        sealed_mark(block, SEAL_NEW);
        ASSERT_SAYS(assert_null(front_realloc(block, 10, "realloc")), "allocated by operator new, freed by free");
        ASSERT_SILENT(sealed_free(block, (struct sealed_claim){ sizes[i], 1, SEAL_NEW }, "operator delete"));
        block = front_malloc(sizes[i]);
        sealed_mark(block, SEAL_NEW_ARRAY);
        ASSERT_SILENT(sealed_free(block, (struct sealed_claim){ SIZE_MAX, 1, SEAL_NEW_ARRAY }, "delete[]"));
    }
    sealed_mark(NULL, SEAL_NEW);
}

/* No block is no misuse. */
static void test_null(void)
{
    begin();
    ASSERT_SILENT(sealed_free(NULL, SEALED_NO_CLAIM, "free"));
    ASSERT_SILENT(assert_int_equal(sealed_usable_size(NULL, "malloc_usable_size"), 0));
    ASSERT_SILENT(assert_int_equal(sealed_expand(NULL, 10, "hak_expand"), 0));
    ASSERT_SILENT(front_free(sealed_realloc(NULL, NULL, 10, "realloc")));
}

/* A write to a freed block is found when the block is used again or leaves the quarantine, and reported once. */
static void test_written_while_free(void)
{
    begin();
    for (size_t i = 0; i < SIZES && sizes[i] <= 40000; i++) {
        char *block = front_malloc(sizes[i]);
        const char *said;
        front_free(block);
        block[base_min(sizes[i] / 2, FREE_EDGE - 1)] = 7; /* near an edge, where larger ones are looked at */
        capture_begin();
        for (unsigned k = 0; k < 2000; k++) {
            char *blocks[3];
            for (unsigned n = 0; n < 3; n++)
                blocks[n] = front_malloc(sizes[i]);
            for (unsigned n = 0; n < 3; n++)
                front_free(blocks[n]);
        }
        said = capture_end();
        assert_has(said, "written while it was free, at byte");
        assert_has(said, "(now 0x07)");
        assert_int_equal(count_of(said, "hakmem:"), 1);
    }
}

static void touch(void);
static char *touched;
static void touch(void) { *(volatile char *)touched = 1; }

/* Freed spans and huge blocks cannot be touched while they wait, by chance; nor can blocks of 0 bytes. */
static void test_no_access(void)
{
    begin();
    for (size_t i = 0; i < SIZES; i++) {
        unsigned closed = 0;
        for (unsigned tries = 0; sizes[i] > 57344 && tries < 200; tries++) {
            touched = front_malloc(sizes[i]);
            assert_int_equal(signal_of(touch), 0);
            front_free(touched);
            closed += signal_of(touch) == SIGSEGV;
        }
        assert_true(closed > 0 || sizes[i] <= 57344); /* else with a probability of (15/16)^200 = 0.000002 */
    }
    touched = front_malloc(0);
    assert_int_equal(signal_of(touch), SIGSEGV);
    front_free(touched);
}

/* Writes past a block that stays in use between others in use, then takes and frees blocks of the class. Returns the
 * messages. */
static const char *said_of_a_kept_block(void)
{
    enum { BLOCKS = 4000, BATCH = 400, SIZE = 24, ROUNDS = 60 };
    static char *blocks[BLOCKS];
    const char *said = "";
    char *kept;

    begin();
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = front_malloc(SIZE);
    kept = blocks[BLOCKS / 2];
    kept[31] ^= 0x11; /* the tail word */
    for (unsigned round = 0; round < ROUNDS && *said == 0; round++) {
        capture_begin();
        for (unsigned from = 0; from < BLOCKS; from += BATCH) { /* more than a ring holds: blocks go back to slabs */
            for (unsigned i = from; i < from + BATCH; i++)
                if (blocks[i] < kept - 64 || blocks[i] > kept + 64) {
                    front_free(blocks[i]);
                    blocks[i] = NULL;
                }
            for (unsigned i = from; i < from + BATCH; i++)
                blocks[i] = blocks[i] ? blocks[i] : front_malloc(SIZE);
        }
        said = capture_end();
    }
    return said;
}
static void test_patrol(void)
{
    assert_has(said_of_a_kept_block(), "written at or past its end; found by a patrol");
}

/* ---- Blocks of 0 bytes ---- */

static void test_nothing(void)
{
    enum { BLOCKS = 3000 };
    static char *blocks[BLOCKS];
    struct heap *heap;
    bool found;

    begin();
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = front_malloc(0);
        assert_non_null(blocks[i]);
        assert_int_equal(front_usable_size(blocks[i], "malloc_usable_size"), 0);
    }
    for (unsigned i = 1; i < BLOCKS; i++)
        assert_ptr_not_equal(blocks[i], blocks[i - 1]);
    assert_int_equal(sealed_size(blocks[0], &found, &heap), 0);
    assert_true(found);
    assert_null(heap);
    assert_int_equal(sealed_size(blocks[0] + 1, &found, &heap), 0);
    assert_false(found);
    ASSERT_SAYS(front_free(blocks[0] + 1), "not the start of a block; between blocks of 0 bytes");
    ASSERT_SAYS(front_free_sized(blocks[0], 1, 1, "free_sized"), "the block is not of that size; it has 0 bytes");
    for (unsigned i = 0; i < BLOCKS; i++)
        ASSERT_SILENT(front_free_sized(blocks[i], 0, 1, "free_sized"));
    ASSERT_SAYS(front_free(blocks[5]), "freed already; a block of 0 bytes");
    ASSERT_SAYS(assert_null(front_realloc(blocks[5], 10, "realloc")), "freed already; a block of 0 bytes");
    blocks[0] = front_malloc(0);
    blocks[1] = front_realloc(blocks[0], 10, "realloc");
    assert_int_equal(front_usable_size(blocks[1], "malloc_usable_size"), 10);
    ASSERT_SILENT(front_free(blocks[1]));
    blocks[0] = front_aligned_alloc(64, 0);
    assert_int_equal((uintptr_t)blocks[0] % 64, 0);
    ASSERT_SILENT(front_free(blocks[0]));
}

/* ---- Heaps ---- */

static void test_heaps(void)
{
    struct heap *heap;
    char *blocks[SIZES];

    begin();
    heap = front_heap_new();
    assert_non_null(heap);
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = front_heap_aligned_alloc(heap, 16, sizes[i], i % 2);
        assert_non_null(blocks[i]);
        memset(blocks[i], 1, sizes[i]);
        assert_ptr_equal(front_heap_of(blocks[i]), heap);
    }
    blocks[0] = front_heap_realloc(heap, blocks[0], 700);
    assert_ptr_equal(front_heap_of(blocks[0]), heap);
    blocks[SIZES - 1] = front_heap_realloc(heap, blocks[SIZES - 1], 4000000);
    assert_ptr_equal(front_heap_of(blocks[SIZES - 1]), heap);
    blocks[SIZES - 1] = front_heap_realloc(heap, blocks[SIZES - 1], 40);
    assert_ptr_equal(front_heap_of(blocks[SIZES - 1]), heap);
    ASSERT_SILENT(front_free(blocks[2]));
    ASSERT_SAYS(front_free(blocks[2]), "freed already");
    blocks[1][sizes[1]] ^= 1;
    ASSERT_SAYS(front_free(blocks[1]), "written past its end");
    ASSERT_SILENT(front_heap_reset(heap));
    for (size_t i = 3; i < 12; i++) { /* memory that is given back is zero, as every free block is */
        char *block = front_heap_aligned_alloc(heap, 16, sizes[i], true);
        assert_zero_from(block, 0, sizes[i]);
    }
    ASSERT_SILENT(front_heap_destroy(heap));
}

/* ---- The heap profile ---- */

/* Every block of any size is a sample once the profile records all. */
static void test_profile(void)
{
    begin();
    assert_int_equal(front_profile_set(1), 0);
    for (size_t i = 0; i < SIZES; i++) {
        char *block = front_malloc(sizes[i]);
        size_t records = table_records();
        assert_true(records > 0);
        front_free(block);
        assert_int_equal(table_records(), records - 1);
    }
}

/* ---- Less than all ---- */

static void test_memory_is_out(void)
{
    begin();
    front_free(front_malloc(100));
    fake_fail_from(FAKE_ANY, 1);
    errno = 0;
    assert_null(front_malloc(3000000));
    assert_int_equal(errno, ENOMEM);
    assert_null(front_malloc(SIZE_MAX));
    for (unsigned i = 0; front_malloc(900000) != NULL; i++)
        assert_true(i < 1000);
    fake_fail_nothing();
    assert_non_null(front_malloc(3000000));
    assert_non_null(front_malloc(900000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_correct_use),
        core_unit_test(test_collect),
        core_unit_test(test_alignments),
        core_unit_test(test_resizing),
        core_unit_test(test_sizes),
        core_unit_test(test_expand),
        core_unit_test(test_past_the_end),
        core_unit_test(test_twice_and_inside),
        core_unit_test(test_other_size_or_kind),
        core_unit_test(test_null),
        core_unit_test(test_written_while_free),
        core_unit_test(test_no_access),
        core_unit_test(test_patrol),
        core_unit_test(test_nothing),
        core_unit_test(test_heaps),
        core_unit_test(test_profile),
        core_unit_test(test_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
