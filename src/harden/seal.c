#include "harden/seal.h"

#include <string.h>

#include "os/os.h"
#include "superslab/arrival.h"
#include "superslab/superslab.h"

/* The last n bytes of a word in memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SLACK_LAST(n) ((n) == 0 ? 0 : UINT64_MAX << (64 - 8 * (n)) % 64)
#else
#define SLACK_LAST(n) ((n) == 0 ? 0 : UINT64_MAX >> (64 - 8 * (n)) % 64)
#endif
#define SLACK_PATTERN(n) (SLACK_LAST(n) & SEAL_PATTERN)

HAK_DATA_HERE const uint64_t seal_slack_masks[] = {
    SLACK_LAST(8), SLACK_LAST(7), SLACK_LAST(6), SLACK_LAST(5), SLACK_LAST(4),
    SLACK_LAST(3), SLACK_LAST(2), SLACK_LAST(1), SLACK_LAST(0),
};
HAK_DATA_HERE const uint64_t seal_patterns[] = {
    SLACK_PATTERN(8), SLACK_PATTERN(7), SLACK_PATTERN(6), SLACK_PATTERN(5), SLACK_PATTERN(4),
    SLACK_PATTERN(3), SLACK_PATTERN(2), SLACK_PATTERN(1), SLACK_PATTERN(0),
};

/* The first byte in which two words in memory differ; 8: none. */
static size_t word_first_changed(uint64_t a, uint64_t b)
{
    const char *one = (const char *)&a, *other = (const char *)&b;
    size_t i = 0;

    while (i < SEAL_BYTES && one[i] == other[i])
        i++;
    return i;
}

bool seal_decode(uint64_t word, size_t slot, struct seal *seal)
{
    uint64_t code = word >> (64 - SEAL_CODE_BITS);
    size_t requested = code & SEAL_SIZE_MASK;

    seal->kind = (enum seal_kind)(code >> SEAL_KIND_SHIFT);
    seal->requested = seal->kind <= SEAL_NEW_ARRAY && requested <= slot - SEAL_BYTES ? requested : SIZE_MAX;
    return seal->requested != SIZE_MAX && word << SEAL_CODE_BITS == 0;
}

enum seal_state seal_read(const char *block, size_t slot, struct seal *seal)
{
    uint64_t mix = seal_mix(block), word = seal_of(block, slot), mask;

    if (word == 0)
        return SEAL_NONE;
    if (!seal_decode(word ^ mix, slot, seal)) {
        /* A short write behind the block leaves the code. */
        seal->changed = slot - SEAL_BYTES;
        if (seal->requested != SIZE_MAX)
            seal->changed += word_first_changed(word, mix ^ seal_code(seal->requested, seal->kind));
        return SEAL_BROKEN;
    }
    if (HAK_LIKELY(seal_slack_is_whole(block, slot, seal->requested)))
        return SEAL_WHOLE;
    seal->changed = seal_slack_at(slot, seal->requested);
    mask = seal_slack_masks[seal->requested - seal->changed];
    seal->changed += word_first_changed(seal_load(block + seal->changed) & mask, SEAL_PATTERN & mask);
    return SEAL_BROKEN;
}

size_t seal_first_written(const char *memory, size_t size)
{
    const seal_words *at = (const seal_words *)(const void *)memory;
    size_t i = 0, count = size / sizeof *at;

    while (i < count && (at[i][0] | at[i][1]) == 0)
        i++;
    for (i *= sizeof *at; i < size && memory[i] == 0; i++)
        ;
    return i;
}

static void touch(char *at) { (void)__atomic_fetch_or((uint64_t *)(void *)at, 0, __ATOMIC_RELAXED); }

void seal_touch(void *const *blocks, size_t count, size_t slot)
{
    size_t page = os_page_size();

    for (size_t i = 0; i < count; i++) {
        char *block = blocks[i], *second = (char *)base_align_up((uintptr_t)block + 1, page);
        if (slot > page || second == block + page)
            touch(block);
        if (second < block + slot)
            touch(block + slot - SEAL_BYTES);
    }
}

/* Returns whether each page has memory. */
static bool zero_resident(char *block, size_t size)
{
    unsigned char resident[UNIT_SIZE / 4096];
    size_t page = os_page_size(), first = base_align_up((uintptr_t)block, page) - (uintptr_t)block;
    size_t last = base_align_down((uintptr_t)block + size, page) - (uintptr_t)block, from = first;
    bool whole = true;

    if (first >= last || !arrival_may_look() || !os_resident_pages(block + first, last - first, resident)) {
        memset(block, 0, size);
        return true;
    }
    memset(block, 0, first);
    while (from < last) {
        size_t to = from;
        bool here = resident[(from - first) / page] & 1;
        while (to < last && (resident[(to - first) / page] & 1) == here)
            to += page;
        /* What the system swapped out is not resident either. */
        if (here || !os_purge(block + from, to - from))
            memset(block + from, 0, to - from);
        else
            whole = false;
        from = to;
    }
    memset(block + last, 0, size - last);
    return whole;
}

void seal_zero_large(struct slab *slab, unsigned index, char *block, size_t size)
{
    uint64_t bit = UINT64_C(1) << index;

    if (atomic_load_explicit(&slab->resident, memory_order_relaxed) & bit)
        memset(block, 0, size);
    else if (zero_resident(block, size) || (atomic_fetch_or_explicit(&slab->sparse, bit, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&slab->resident, bit, memory_order_relaxed);
}
