#define _GNU_SOURCE
#include "block.h"

#include <hakmem/hakmem.h>
#include <string.h>
#include <sys/mman.h>

/* ---- The shadow map: regions of 1 GiB, each a bitmap of its 16-byte granules, mapped when first needed ---- */

#define GRANULE ((size_t)16)
#define REGION_SHIFT 30
#define REGION_BITMAP_BYTES (GIB / GRANULE / 8)
#define REGION_COUNT ((size_t)1 << (48 - REGION_SHIFT))

typedef _Atomic uint64_t shadow_word;

static shadow_word *_Atomic regions[REGION_COUNT];
static _Atomic size_t live_bytes;
static _Atomic size_t live_peak;
static _Atomic size_t live_count;

static shadow_word *region_of(uintptr_t address)
{
    size_t index = address >> REGION_SHIFT;
    shadow_word *bitmap;
    shadow_word *expected = NULL;

    CHECK(index < REGION_COUNT, "block at %p is outside 48 bits", (void *)address);
    bitmap = atomic_load_explicit(&regions[index], memory_order_acquire);
    if (bitmap != NULL)
        return bitmap;
    bitmap = support_map(REGION_BITMAP_BYTES);
    if (!atomic_compare_exchange_strong(&regions[index], &expected, bitmap)) {
        support_unmap(bitmap, REGION_BITMAP_BYTES);
        return expected;
    }
    return bitmap;
}

/* Sets or clears the bits of [start, start + bytes). Each must be in the other state. */
static void shadow_change(const void *start, size_t bytes, bool set)
{
    uintptr_t granule = (uintptr_t)start / GRANULE;
    uintptr_t end = ((uintptr_t)start + bytes + GRANULE - 1) / GRANULE;

    while (granule < end) {
        shadow_word *bitmap = region_of(granule * GRANULE);
        size_t word = granule % (GIB / GRANULE) / 64;
        unsigned bit = granule % 64;
        unsigned count = end - granule < 64 - bit ? (unsigned)(end - granule) : 64 - bit;
        uint64_t mask = (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << bit;
        uint64_t before;

        if (set)
            before = atomic_fetch_or_explicit(&bitmap[word], mask, memory_order_relaxed);
        else
            before = ~atomic_fetch_and_explicit(&bitmap[word], ~mask, memory_order_relaxed);
        CHECK((before & mask) == 0, "%zu bytes at %p %s near %p", bytes, start,
              set ? "overlap a live block" : "lost their marks", (void *)(granule * GRANULE));
        granule += count;
    }
}

static void shadow_mark(const struct block *block)
{
    size_t now = atomic_fetch_add_explicit(&live_bytes, block->usable, memory_order_relaxed) + block->usable;
    size_t peak = atomic_load_explicit(&live_peak, memory_order_relaxed);

    while (now > peak && !atomic_compare_exchange_weak_explicit(&live_peak, &peak, now, memory_order_relaxed,
                                                                memory_order_relaxed)) {
    }
    atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    shadow_change(block->start, block->usable, true);
}

static void shadow_unmark(const struct block *block)
{
    shadow_change(block->start, block->usable, false);
    atomic_fetch_sub_explicit(&live_bytes, block->usable, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
}

size_t block_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

size_t block_live_peak(void)
{
    return atomic_load(&live_peak);
}

size_t block_live_count(void)
{
    return atomic_load(&live_count);
}

/* ---- The pattern: 8-byte words made from seed and offset. It covers a small block, and places of a large one ---- */

#define DENSE_LIMIT (4 * KIB)
#define DENSE_SOMETIMES_LIMIT (256 * KIB)
#define EDGE_BYTES 256
#define MIDDLE_PLACES 64

struct pattern {
    size_t length;
    size_t step;   /* between words in the middle */
    size_t middle; /* first offset of the middle */
    size_t tail;   /* first offset of the tail */
};

static struct pattern pattern_of(const struct block *block)
{
    struct pattern pattern = { block->usable, 8, 0, 0 };
    bool dense = block->usable <= DENSE_LIMIT ||
                 (block->usable <= DENSE_SOMETIMES_LIMIT && block->seed % 64 == 0);

    pattern.tail = pattern.length & ~(size_t)7;
    if (!dense) {
        pattern.middle = EDGE_BYTES;
        pattern.tail = (pattern.length - EDGE_BYTES) & ~(size_t)7;
        pattern.step = ((pattern.tail - EDGE_BYTES) / MIDDLE_PLACES + 7) & ~(size_t)7;
    }
    return pattern;
}

static uint64_t pattern_word(uint64_t seed, size_t offset)
{
    return (seed + offset) * UINT64_C(0x9e3779b97f4a7c15) ^ seed;
}

static void pattern_write_range(unsigned char *start, size_t from, size_t to, size_t step, uint64_t seed)
{
    for (size_t offset = from; offset + 8 <= to; offset += step) {
        uint64_t word = pattern_word(seed, offset);
        memcpy(start + offset, &word, 8);
    }
}

static void pattern_check_range(const struct block *block, const unsigned char *start, size_t from, size_t to,
                                size_t step)
{
    for (size_t offset = from; offset + 8 <= to; offset += step) {
        uint64_t word;

        memcpy(&word, start + offset, 8);
        CHECK(word == pattern_word(block->seed, offset),
              "contents of %p (asked %zu, usable %zu) at offset %zu are %#llx", (const void *)start, block->size,
              block->usable, offset, (unsigned long long)word);
    }
}

static void pattern_write(const struct block *block)
{
    struct pattern pattern = pattern_of(block);

    pattern_write_range(block->start, 0, pattern.middle, 8, block->seed);
    pattern_write_range(block->start, pattern.middle, pattern.tail, pattern.step, block->seed);
    pattern_write_range(block->start, pattern.tail, pattern.length, 8, block->seed);
    for (size_t offset = pattern.length & ~(size_t)7; offset < pattern.length; offset++)
        block->start[offset] = (unsigned char)(block->seed + offset);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void block_verify_at(const struct block *block, const void *start, size_t bytes)
{
    struct pattern pattern = pattern_of(block);
    const unsigned char *at = start;

    bytes = smaller(bytes, pattern.length);
    pattern_check_range(block, at, 0, smaller(pattern.middle, bytes), 8);
    pattern_check_range(block, at, pattern.middle, smaller(pattern.tail, bytes), pattern.step);
    pattern_check_range(block, at, pattern.tail, bytes, 8);
    for (size_t offset = pattern.length & ~(size_t)7; offset < bytes; offset++)
        CHECK(at[offset] == (unsigned char)(block->seed + offset), "last bytes of %p (usable %zu)", start,
              block->usable);
}

void block_verify(const struct block *block)
{
    block_verify_at(block, block->start, block->usable);
}

void block_check_zero(const void *start, size_t bytes)
{
    const unsigned char *at = start;
    size_t step = bytes <= 64 * KIB ? 1 : 509;

    for (size_t offset = 0; offset < bytes; offset += step)
        CHECK(at[offset] == 0, "byte %zu of %zu at %p is %#x, not zero", offset, bytes, start, at[offset]);
    for (size_t offset = bytes - smaller(bytes, 64); offset < bytes; offset++)
        CHECK(at[offset] == 0, "byte %zu of %zu at %p is %#x, not zero", offset, bytes, start, at[offset]);
}

/* ---- The record ---- */

void block_adopt(struct block *block, void *start, size_t size, size_t alignment, uint64_t seed)
{
    CHECK(start != NULL, "no block of %zu bytes, alignment %zu", size, alignment);
    block->start = start;
    block->size = size;
    block->usable = hak_usable_size(start);
    block->alignment = alignment < GRANULE ? GRANULE : alignment;
    block->seed = seed;
    CHECK(block->usable >= size, "block %p of %zu bytes has %zu usable", start, size, block->usable);
    CHECK(block->usable > 0 || (size == 0 && hak_good_size(0) == 0 /* hardened */),
          "block %p of %zu bytes has none usable", start, size);
    CHECK((uintptr_t)start % block->alignment == 0, "block %p of %zu bytes is not aligned to %zu", start, size,
          block->alignment);
    shadow_mark(block);
    pattern_write(block);
}

void *block_release(struct block *block)
{
    void *start = block->start;

    CHECK(hak_usable_size(start) == block->usable, "usable size of %p went from %zu to %zu", start, block->usable,
          hak_usable_size(start));
    block_verify(block);
    shadow_unmark(block);
    block->start = NULL;
    return start;
}
