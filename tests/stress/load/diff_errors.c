/* Protects requests that cannot succeed: they return NULL with the errno of the contract, and change nothing else. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>

#include "differential.h"

static const size_t impossible[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096,
                                     SIZE_MAX / 2 + 2 };

static void expect_enomem(const void *start, const char *what, size_t size)
{
    CHECK(start == NULL, "%s of %zu bytes gives a block", what, size);
    CHECK(errno == ENOMEM, "%s of %zu bytes sets errno %d", what, size, errno);
}

static void fail_plain(size_t size)
{
    void *pair[2] = { NULL, NULL };

    errno = 0;
    expect_enomem(hak_malloc(size), "malloc", size);
    errno = 0;
    expect_enomem(hak_alloc_at(size, NULL), "alloc_at", size);
    errno = 0;
    expect_enomem(hak_calloc(1, size), "calloc", size);
    errno = 0;
    expect_enomem(hak_realloc(NULL, size), "realloc", size);
    errno = 0;
    expect_enomem(hak_aligned_alloc(64, size), "aligned_alloc", size);
    errno = 0;
    CHECK(hak_malloc_batch(size, 2, pair) == 0 && errno == ENOMEM, "malloc_batch of %zu bytes", size);
}

static void fail_product(struct chance *chance)
{
    size_t count = ((size_t)1 << 33) + chance_below(chance, 100);
    size_t each = ((size_t)1 << 31) + chance_below(chance, 100);

    errno = 0;
    expect_enomem(hak_calloc(count, each), "calloc overflow", each);
    errno = 0;
    expect_enomem(hak_reallocarray(NULL, count, each), "reallocarray overflow", each);
    errno = 0;
    expect_enomem(hak_calloc(SIZE_MAX / 2 + 1, 2), "calloc wrap to 0", 2);
}

static void fail_alignment(struct chance *chance)
{
    size_t wrong = 3 + 4 * chance_below(chance, 1000);
    void *untouched = &wrong;
    int result;

    errno = 0;
    CHECK(hak_aligned_alloc(wrong, 64) == NULL && errno == EINVAL, "aligned_alloc(%zu)", wrong);
    errno = 0;
    CHECK(hak_aligned_alloc(0, 64) == NULL && errno == EINVAL, "aligned_alloc(0)");
    errno = 99;
    result = hak_posix_memalign(&untouched, wrong, 64);
    CHECK(result == EINVAL && untouched == &wrong && errno == 99, "posix_memalign(%zu) gives %d", wrong, result);
    result = hak_posix_memalign(&untouched, sizeof(void *) / 2, 64);
    CHECK(result == EINVAL && untouched == &wrong && errno == 99, "posix_memalign(4) gives %d", result);
    result = hak_posix_memalign(&untouched, 64, SIZE_MAX - 4096);
    CHECK(result == ENOMEM && untouched == &wrong && errno == 99, "posix_memalign of too much gives %d", result);
}

/* A live block survives each failing call on it. */
static void fail_on_block(const struct block *block, size_t size)
{
    errno = 0;
    expect_enomem(hak_realloc(block->start, size), "realloc", size);
    errno = 0;
    expect_enomem(hak_reallocarray(block->start, size / 2 + 1, 4), "reallocarray", size);
    CHECK(hak_expand(block->start, size) == 0, "expand to %zu", size);
    CHECK(hak_usable_size(block->start) == block->usable, "a failed realloc changed the usable size");
    block_verify(block);
}

/* Sizes that are valid numbers and exceed what page tables can map, or nearly. */
static void ask_for_terabytes(struct chance *chance)
{
    size_t size = (size_t)1 << (46 + chance_below(chance, 16));
    void *start;

    errno = 0;
    start = hak_malloc(size);
    CHECK(start != NULL || errno == ENOMEM, "malloc of %zu bytes sets errno %d", size, errno);
    CHECK(start == NULL || hak_usable_size(start) >= size, "malloc of %zu bytes gives too little", size);
    hak_free(start);
}

void diff_errors_step(struct diff_seat *seat, struct diff_slot *slot)
{
    size_t size = impossible[chance_below(&seat->chance, sizeof impossible / sizeof impossible[0])];

    switch (chance_below(&seat->chance, 4)) {
    case 0:
        fail_plain(size);
        seat->calls += 6;
        break;
    case 1:
        fail_product(&seat->chance);
        seat->calls += 3;
        break;
    case 2:
        fail_alignment(&seat->chance);
        seat->calls += 5;
        break;
    default:
        if (chance_is(&seat->chance, 20))
            ask_for_terabytes(&seat->chance);
        seat->calls++;
        break;
    }
    if (slot->block.start != NULL) {
        fail_on_block(&slot->block, size);
        seat->calls += 4;
    }
}
