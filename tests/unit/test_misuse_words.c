/* Protects pool/misuse.h: how it classifies an address, and the words of its message. */
#include "heaps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "front/fast.h"
#include "front/process.h"
#include "pool/huge.h"
#include "pool/misuse.h"
#include "superslab/metadata.h"
#include "superslab/purge.h"

static const void *place;
static enum misuse kind;

static void report(void)
{
    misuse_report("free", place, kind);
    misuse_settle();
}

/* Compares the line that misuse_report writes. The program goes on. */
static void check_words(const void *pointer, enum misuse misuse, const char *words)
{
    char expected[256];
    const char *said;

    snprintf(expected, sizeof expected, "hakmem: free(0x%" PRIxPTR "): %s\n", (uintptr_t)pointer, words);
    hak_options.abort_on_misuse = 0;
    capture_begin();
    misuse_report("free", pointer, misuse);
    said = capture_end();
    assert_string_equal(said, expected);
    /* The same line again, and then abort. */
    hak_options.abort_on_misuse = 1;
    place = pointer;
    kind = misuse;
    assert_aborts(report, expected);
}

static void check(const void *pointer, enum misuse misuse, const char *words)
{
    assert_int_equal(misuse_of(pointer), misuse);
    check_words(pointer, misuse, words);
}

static void *take(struct heap *heap, unsigned class)
{
    void *block;

    heaps_take_all(heap, class, &block, 1);
    return block;
}

#define FOREIGN_WORDS "not allocated by HAKMEM; no size class, no owner"
#define INSIDE_WORDS "not the start of a block (inside a block, or unaligned); "
#define FREED_WORDS "freed already; "
#define SIZE_WORDS "the block is not of that size or alignment; "

static void test_before_init(void)
{
    int local = 0;

    check(&local, MISUSE_FOREIGN, FOREIGN_WORDS);
    check(NULL, MISUSE_FOREIGN, FOREIGN_WORDS);
}

static void test_foreign(void)
{
    static char data[100];
    int local = 0;

    heaps_begin();
    check(&local, MISUSE_FOREIGN, FOREIGN_WORDS);
    check(data + 16, MISUSE_FOREIGN, FOREIGN_WORDS);
    check((const void *)(uintptr_t)16, MISUSE_FOREIGN, FOREIGN_WORDS);
    check((const void *)UINTPTR_MAX, MISUSE_FOREIGN, FOREIGN_WORDS);
    check((const void *)(uintptr_t)test_foreign, MISUSE_FOREIGN, FOREIGN_WORDS);
    /* HAKMEM's own records are not blocks either. */
    check(window_base(), MISUSE_FOREIGN, FOREIGN_WORDS);
    check(window_page_map() + 64, MISUSE_FOREIGN, FOREIGN_WORDS);
    check(metadata_allocate(64, 64), MISUSE_FOREIGN, FOREIGN_WORDS);
    check(window_base() + window_units() * UNIT_SIZE, MISUSE_FOREIGN, FOREIGN_WORDS);
}

static const char *owned_words(const char *words, size_t size, const struct heap *heap)
{
    static char text[200];

    snprintf(text, sizeof text, "%ssize class %zu, owner heap %u of thread %u", words, size, heap->id, heap->thread_id);
    return text;
}

static void test_blocks(void)
{
    struct heap *heap = heaps_begin();

    assert_int_equal(heap->thread_id, os_thread_id());
    for (unsigned class = 1; class < CLASS_COUNT; class += 5) {
        char *block = take(heap, class), *other = take(heap, class);
        size_t size = class_size(class);
        check(block + 8, MISUSE_NO_BLOCK, owned_words(INSIDE_WORDS, size, heap));
        check(block + 1, MISUSE_NO_BLOCK, owned_words(INSIDE_WORDS, size, heap));
        check(block + size - 1, MISUSE_NO_BLOCK, owned_words(INSIDE_WORDS, size, heap));
        check_words(block, MISUSE_SIZE, owned_words(SIZE_WORDS, size, heap));
        if (!class_is_span(class)) { /* the other block keeps the slab in use */
            heaps_return(heap, class, (void *[]){ block }, 1);
            check(block, MISUSE_FREED, owned_words(FREED_WORDS, size, heap));
        }
        (void)other;
    }
}

/* Once the slab is gone, the message cannot tell the block's size class or owner. */
static void test_gone(void)
{
    struct heap *heap = heaps_begin();
    char *block = take(heap, CLASS_SPAN_4);

    check(superslab_of(block), MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner");
    heaps_return(heap, CLASS_SPAN_4, (void *[]){ block }, 1);
    check(block, MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner"); /* it is warm (O6) */
    heaps_release_warm(heap);
    check(block, MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner");
    check(block + 100, MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner");
    /* Also when the whole SuperSlab, with its header, was purged. */
    assert_int_equal(purge_run(true), SUPERSLAB_SIZE);
    check(block, MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner");
    check(superslab_of(block), MISUSE_FREED, FREED_WORDS "size class gone with its slab, no owner");
}

static void test_huge(void)
{
    bool zero;
    char *block, *spacer;

    heaps_begin();
    block = huge_allocate(3 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    spacer = huge_allocate(3 * HAK_MIB, BLOCK_ALIGN, &zero, NULL);
    check(block + 16, MISUSE_NO_BLOCK, INSIDE_WORDS "size class huge, no owner");
    check(block + UNIT_SIZE, MISUSE_NO_BLOCK, INSIDE_WORDS "size class huge, no owner");
    check_words(block, MISUSE_SIZE, SIZE_WORDS "size class huge, no owner");
    assert_true(huge_free(block, NULL));
    check(block, MISUSE_FREED, FREED_WORDS "size class huge, no owner");
    check(block + 16, MISUSE_FREED, FREED_WORDS "size class huge, no owner");
    huge_purge(true);
    check(block, MISUSE_FOREIGN, FOREIGN_WORDS);
    assert_true(huge_free(spacer, NULL));
}

/* A heap that finds misuse itself names the calling function, and the call has no effect. */
static void test_returned(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[4], *wrong[3];
    const char *said;

    hak_options.abort_on_misuse = 0;
    heaps_take_all(heap, CLASS_64, blocks, 4);
    heaps_return(heap, CLASS_64, (void *[]){ blocks[0] }, 1);
    wrong[0] = blocks[0];
    wrong[1] = (char *)blocks[1] + 16;
    wrong[2] = blocks[2];
    capture_begin();
    heaps_return(heap, CLASS_64, wrong, 3);
    heaps_return(heap, CLASS_80, (void *[]){ blocks[1] }, 1); /* of another class */
    said = capture_end();
    assert_int_equal(count_of(said, "hakmem: free("), 3);
    assert_int_equal(count_of(said, FREED_WORDS), 2);
    assert_int_equal(count_of(said, INSIDE_WORDS), 1);
    assert_int_equal(slab_of(blocks[1])->used, 2);
    heaps_check();
}

static void test_returned_remotely(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[4], *span;
    const char *said;

    hak_options.abort_on_misuse = 0;
    heaps_take_all(heap, CLASS_64, blocks, 4);
    heaps_take_all(heap, CLASS_SPAN_2, &span, 1);
    capture_begin();
    remote_free_blocks(CLASS_64, (void *[]){ blocks[0] }, 1, "operator delete");
    remote_free_blocks(CLASS_64, (void *[]){ blocks[0] }, 1, "operator delete");
    remote_free_blocks(CLASS_64, (void *[]){ (char *)blocks[1] + 8 }, 1, "operator delete");
    remote_free_blocks(CLASS_SPAN_2, (void *[]){ (char *)span + 64 }, 1, "operator delete");
    said = capture_end();
    assert_int_equal(count_of(said, "hakmem: operator delete("), 3);
    assert_int_equal(count_of(said, FREED_WORDS), 1);
    assert_int_equal(count_of(said, INSIDE_WORDS), 2);
    assert_int_equal(atomic_load(&slab_of(blocks[0])->remote_count), 1);
    lock_acquire(&heap->lock);
    remote_drain(heap);
    lock_release(&heap->lock);
    assert_int_equal(slab_of(blocks[0])->used, 3);
    heaps_check();
}

/* One block of a row is free already, or is none. All others are freed, by the owner and by other threads. */
static void test_row_returned(void)
{
    enum { ROW = 40 };
    struct heap *heap = heaps_begin();
    void *blocks[ROW], *again[ROW];

    hak_options.abort_on_misuse = 0;
    for (unsigned way = 0; way < 8; way++) {
        bool down = way & 1, remote = way & 2, inside = way & 4;
        const char *said;
        heaps_take_all(heap, CLASS_64, blocks, ROW);
        for (unsigned i = 0; i < ROW; i++)
            again[i] = blocks[down ? ROW - 1 - i : i];
        if (inside)
            again[7] = (char *)again[7] + 16;
        else if (remote)
            remote_free_blocks(CLASS_64, &again[7], 1, "free");
        else
            heaps_return(heap, CLASS_64, &again[7], 1);
        if (inside)
            blocks[0] = (char *)again[7] - 16;
        capture_begin();
        if (remote)
            remote_free_blocks(CLASS_64, again, ROW, "free");
        else
            heaps_return(heap, CLASS_64, again, ROW);
        said = capture_end();
        assert_int_equal(count_of(said, "hakmem: free("), 1);
        assert_int_equal(count_of(said, inside ? INSIDE_WORDS : FREED_WORDS), 1);
        if (inside)
            heaps_return(heap, CLASS_64, blocks, 1);
        lock_acquire(&heap->lock);
        remote_drain(heap);
        lock_release(&heap->lock);
        assert_null(heap->body->available[CLASS_64].head);
        heaps_check();
    }
}

/* ---- free, from the call on ---- */

static void check_free(void *address, const char *words)
{
    char expected[64];
    const char *said;

    snprintf(expected, sizeof expected, "hakmem: free(0x%" PRIxPTR "): ", (uintptr_t)address);
    capture_begin();
    front_free(address);
    said = capture_end();
    assert_has(said, expected);
    assert_has(said, words);
    assert_int_equal(count_of(said, "hakmem:"), 1);
}

static void test_wrong_frees(void)
{
    static char *const environment[] = { "HAKMEM_ABORT_ON_MISUSE=0", NULL };
    static const size_t sizes[] = { 16, 1000, 40000, 300000, 3000000 };
    char local[64], *block = NULL;

    fake_set_environment(environment);
    assert_true(process_init());
    check_free(local, "not allocated by HAKMEM");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        block = front_malloc(sizes[i]);
        assert_non_null(block);
        check_free(block + 1, "not the start of a block");
        capture_begin();
        front_free(block);
        assert_string_equal(capture_end(), "");
    }
    check_free(block, "free("); /* a huge block, whose addresses may be gone */
    block = front_malloc(16);
    check_free(superslab_of(block), "free("); /* the header */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_before_init),
        core_unit_test(test_foreign),
        core_unit_test(test_blocks),
        core_unit_test(test_gone),
        core_unit_test(test_huge),
        core_unit_test(test_returned),
        core_unit_test(test_returned_remotely),
        core_unit_test(test_row_returned),
        core_unit_test(test_wrong_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
