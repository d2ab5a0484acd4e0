/* Protects the contract of every hak_* function at its edges (api/hak.c), on the real OS. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/base.h"
#include "hakmem/hakmem.h"

/* Sizes on both sides of every border between classes, spans and huge blocks. */
static const size_t sizes[] = { 0,    1,     15,    16,    17,    128,    129,     1000,    1024,   1025,
                                4096, 32768, 32769, 65536, 65537, 262144, 1048576, 1048577, 5000000 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Sizes that no system can serve. Volatile, because the compiler warns of constants that are too large. */
static volatile size_t too_large[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX,        SIZE_MAX - 15,
                                       SIZE_MAX - 4096,         (size_t)1 << 62, PTRDIFF_MAX };
enum { TOO_LARGE = sizeof too_large / sizeof too_large[0] };

static void assert_filled(const unsigned char *bytes, int value, size_t size)
{
    if (size == 0)
        return;
    assert_int_equal(bytes[0], value);
    assert_int_equal(memcmp(bytes, bytes + 1, size - 1), 0); /* each equals the one before it */
}

#define ASSERT_ENOMEM(expression)         \
    do {                                  \
        errno = 0;                        \
        assert_null(expression);          \
        assert_int_equal(errno, ENOMEM);  \
    } while (0)

static void test_version(void **state)
{
    (void)state;
    assert_string_equal(hak_version(), HAK_VERSION_STRING);
}

static void test_malloc_and_free(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        unsigned char *one = hak_malloc(sizes[i]), *two = hak_malloc(sizes[i]);
        assert_non_null(one);
        assert_non_null(two);
        assert_ptr_not_equal(one, two);
        assert_int_equal((uintptr_t)one % 16, 0);
        assert_true(hak_usable_size(one) >= sizes[i]);
        assert_int_equal(hak_usable_size(one), hak_good_size(sizes[i]));
        memset(one, 1, hak_usable_size(one));
        memset(two, 2, hak_usable_size(two));
        assert_filled(one, 1, hak_usable_size(one));
        errno = 4711;
        hak_free(one);
        hak_free(two);
        assert_int_equal(errno, 4711);
    }
    hak_free(NULL);
    assert_int_equal(hak_usable_size(NULL), 0);
}

static void test_too_large(void **state)
{
    (void)state;
    void *block = hak_malloc(100), *unchanged = block;
    hak_heap_t *heap = hak_heap_new();
    for (size_t i = 0; i < TOO_LARGE; i++) {
        size_t size = too_large[i];
        ASSERT_ENOMEM(hak_malloc(size));
        ASSERT_ENOMEM(hak_calloc(1, size));
        ASSERT_ENOMEM(hak_calloc(size, 1));
        ASSERT_ENOMEM(hak_realloc(block, size));
        ASSERT_ENOMEM(hak_realloc(NULL, size));
        ASSERT_ENOMEM(hak_reallocarray(block, size, 1));
        ASSERT_ENOMEM(hak_aligned_alloc(64, size));
        ASSERT_ENOMEM(hak_aligned_alloc((size_t)1 << 40, size));
        ASSERT_ENOMEM(hak_alloc_at(size, NULL));
        ASSERT_ENOMEM(hak_heap_malloc(heap, size));
        ASSERT_ENOMEM(hak_heap_calloc(heap, 1, size));
        ASSERT_ENOMEM(hak_heap_realloc(heap, block, size));
        ASSERT_ENOMEM(hak_heap_aligned_alloc(heap, 4096, size));
        errno = 4711;
        assert_int_equal(hak_posix_memalign(&block, 64, size), ENOMEM);
        assert_ptr_equal(block, unchanged);
        assert_int_equal(errno, 4711);
        assert_int_equal(hak_expand(block, size), 0);
    }
    ASSERT_ENOMEM(hak_calloc(SIZE_MAX / 2, 3));
    ASSERT_ENOMEM(hak_calloc((size_t)1 << 32, (size_t)1 << 32));
    ASSERT_ENOMEM(hak_reallocarray(block, SIZE_MAX / 4, 5));
    ASSERT_ENOMEM(hak_heap_calloc(heap, SIZE_MAX / 2, 3));
    hak_heap_destroy(heap);
    hak_free(block);
}

static void test_zeroed(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) { /* rounds two and three get memory that was used before */
        for (size_t i = 0; i < SIZES; i++) {
            unsigned char *block = hak_calloc(1, sizes[i]);
            assert_non_null(block);
            assert_filled(block, 0, sizes[i]);
            memset(block, 0xee, hak_usable_size(block));
            hak_free(block);
        }
    }
    unsigned char *block = hak_calloc(7, 11);
    assert_true(hak_usable_size(block) >= 77);
    hak_free(block);
}

static void test_moving(void **state)
{
    (void)state;
    for (size_t i = 1; i < SIZES; i++) {
        for (size_t j = 1; j < SIZES; j++) {
            unsigned char *block = hak_realloc(NULL, sizes[i]);
            assert_non_null(block);
            memset(block, (int)i, sizes[i]);
            block = hak_realloc(block, sizes[j]);
            assert_non_null(block);
            assert_true(hak_usable_size(block) >= sizes[j]);
            assert_filled(block, (int)i, base_min(sizes[i], sizes[j]));
            memset(block, 0xee, hak_usable_size(block));
            assert_null(hak_realloc(block, 0)); /* frees */
        }
    }
    void *block = hak_realloc(NULL, 0);
    assert_non_null(block);
    block = hak_reallocarray(block, 10, 10);
    assert_true(hak_usable_size(block) >= 100);
    hak_free(block);
}

static void test_alignment(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= 8 * HAK_MIB; alignment *= 2) {
        for (size_t i = 0; i < SIZES; i += 3) {
            unsigned char *block = hak_aligned_alloc(alignment, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_true(hak_usable_size(block) >= sizes[i]);
            memset(block, 1, hak_usable_size(block));
            block = hak_realloc(block, sizes[i] + 100);
            assert_filled(block, 1, sizes[i]);
            hak_free_sized(block, sizes[i] + 100);

            void *other = NULL;
            int error = hak_posix_memalign(&other, alignment, sizes[i]);
            assert_int_equal(error, alignment < sizeof(void *) ? EINVAL : 0);
            if (error == 0) {
                assert_int_equal((uintptr_t)other % alignment, 0);
                hak_free_aligned_sized(other, alignment, sizes[i]);
            }
        }
    }
    static const size_t wrong[] = { 0, 3, 24, 48, SIZE_MAX, ((size_t)1 << 63) + 16 };
    void *block = &block;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        errno = 0;
        assert_null(hak_aligned_alloc(wrong[i], 64));
        assert_int_equal(errno, EINVAL);
        errno = 4711;
        assert_int_equal(hak_posix_memalign(&block, wrong[i], 64), EINVAL);
        assert_ptr_equal(block, &block);
        assert_int_equal(errno, 4711);
    }
}

static void test_good_size(void **state)
{
    (void)state;
    size_t before = 0;
    for (size_t size = 0; size < 3 * HAK_MIB; size += size < 2000 ? 1 : 997) {
        size_t good = hak_good_size(size);
        assert_true(good >= size && good >= before);
        assert_int_equal(hak_good_size(good), good);
        before = good;
    }
}

static void test_expand(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        unsigned char *block = hak_malloc(sizes[i]);
        size_t usable = hak_usable_size(block);
        memset(block, 5, usable);
        assert_true(hak_expand(block, usable) >= usable);
        size_t wanted = usable + 1, got = hak_expand(block, wanted);
        assert_true(got == 0 || got >= wanted);
        assert_int_equal(hak_usable_size(block), got == 0 ? usable : got);
        assert_filled(block, 5, usable);
        hak_free(block);
    }
    assert_int_equal(hak_expand(NULL, 16), 0);
}

static void test_batch(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static void *blocks[COUNT + 1];
    for (size_t i = 0; i < 14; i++) {
        memset(blocks, 0, sizeof blocks);
        assert_int_equal(hak_malloc_batch(sizes[i], COUNT, blocks), COUNT);
        assert_null(blocks[COUNT]);
        for (size_t j = 0; j < COUNT; j++) {
            assert_true(hak_usable_size(blocks[j]) >= sizes[i]);
            memset(blocks[j], (int)(j % 251), sizes[i]);
        }
        for (size_t j = 0; j < COUNT; j++)
            assert_filled(blocks[j], (int)(j % 251), sizes[i]);
        void *lone = blocks[COUNT / 2];
        blocks[COUNT / 2] = NULL;
        errno = 4711;
        hak_free_batch(blocks, COUNT);
        assert_int_equal(errno, 4711);
        assert_non_null(blocks[0]); /* the array is not changed */
        hak_free(lone);
    }
    assert_int_equal(hak_malloc_batch(16, 0, blocks), 0);
    hak_free_batch(NULL, 0);
    errno = 0;
    assert_int_equal(hak_malloc_batch(too_large[0], 3, blocks), 0);
    assert_int_equal(errno, ENOMEM);
}

static void test_collect_and_idle(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(8000);
        memset(blocks[i], 1, 8000);
    }
    for (size_t i = 0; i < COUNT; i++)
        hak_free(blocks[i]);
    assert_true(hak_collect(true) > COUNT * 8000 / 2);
    hak_thread_idle();
    char *block = hak_malloc(100); /* an idle thread may allocate again */
    assert_non_null(block);
    hak_thread_idle();
    hak_free(block);
    hak_collect(false);
    hak_thread_idle();
}

static void *free_elsewhere(void *block)
{
    hak_free(block);
    return NULL;
}

static void test_heaps(void **state)
{
    (void)state;
    hak_heap_t *heap = hak_heap_new(), *other = hak_heap_new();
    assert_non_null(heap);
    assert_non_null(other);
    assert_ptr_not_equal(heap, other);
    for (size_t i = 0; i < SIZES; i++) {
        unsigned char *block = hak_heap_malloc(heap, sizes[i]);
        assert_non_null(block);
        assert_ptr_equal(hak_heap_of(block), heap);
        memset(block, 7, sizes[i]);
        if (sizes[i] != 0) {
            block = hak_heap_realloc(heap, block, sizes[i] * 2);
            assert_filled(block, 7, sizes[i]);
            assert_ptr_equal(hak_heap_of(block), heap);
        }
        unsigned char *zeroed = hak_heap_calloc(heap, 3, sizes[i]);
        assert_filled(zeroed, 0, 3 * sizes[i]);
        unsigned char *aligned = hak_heap_aligned_alloc(other, 1024, sizes[i]);
        assert_int_equal((uintptr_t)aligned % 1024, 0);
        assert_ptr_equal(hak_heap_of(aligned), other);
        if (i % 3 == 0) {
            hak_free(block);
        } else if (i % 3 == 1) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, block), 0);
            pthread_join(thread, NULL);
        }
    }
    errno = 0;
    assert_null(hak_heap_aligned_alloc(heap, 3, 64));
    assert_int_equal(errno, EINVAL);
    void *own = hak_malloc(100), *moved = hak_heap_realloc(heap, NULL, 100);
    assert_null(hak_heap_of(own));
    assert_null(hak_heap_of(NULL));
    assert_ptr_equal(hak_heap_of(moved), heap);
    /* hak_heap_realloc moves another heap's block into this heap. A block of any size outlives the other heap. */
    for (size_t size = 100; size < 40000000; size *= 20) {
        char *block = memset(hak_heap_malloc(other, size), 7, size);
        block = hak_heap_realloc(heap, block, size + size / 2);
        assert_ptr_equal(hak_heap_of(block), heap);
        assert_int_equal(block[size - 1], 7);
    }
    hak_heap_destroy(heap);
    hak_heap_destroy(other);
    hak_heap_destroy(NULL);
    hak_free(own);
}

static void on_pressure(size_t bytes_mapped, size_t bytes_limit)
{
    (void)bytes_mapped;
    (void)bytes_limit;
}

static void test_pressure_handler(void **state)
{
    (void)state;
    assert_true(hak_set_pressure_handler(on_pressure) == NULL);
    assert_true(hak_set_pressure_handler(NULL) == on_pressure);
    assert_true(hak_set_pressure_handler(NULL) == NULL);
}

static void free_wrong_size(void)
{
    hak_free_sized(hak_malloc(100), 5000);
}

static void free_wrong_alignment(void)
{
    char *block = hak_malloc(16 * HAK_KIB + 1); /* not every 20 KiB block is aligned to 16 KiB */
    for (int i = 0; i < 8 && (uintptr_t)block % (16 * HAK_KIB) == 0; i++)
        block = hak_malloc(16 * HAK_KIB + 1);
    hak_free_aligned_sized(block, 16 * HAK_KIB, 16 * HAK_KIB + 1);
}

static void usable_of_stack(void)
{
    char block[64] = { 0 };
    (void)hak_usable_size(block);
}

static void test_misuse_names_the_function(void **state)
{
    (void)state;
    assert_aborts(free_wrong_size, "hakmem: hak_free_sized(0x");
    assert_aborts(free_wrong_alignment, "hakmem: hak_free_aligned_sized(0x");
    assert_aborts(usable_of_stack, "hakmem: hak_usable_size(0x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),       cmocka_unit_test(test_malloc_and_free),
        cmocka_unit_test(test_too_large),     cmocka_unit_test(test_zeroed),
        cmocka_unit_test(test_moving),       cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_good_size),     cmocka_unit_test(test_expand),
        cmocka_unit_test(test_batch),         cmocka_unit_test(test_collect_and_idle),
        cmocka_unit_test(test_heaps),         cmocka_unit_test(test_pressure_handler),
        cmocka_unit_test(test_misuse_names_the_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
