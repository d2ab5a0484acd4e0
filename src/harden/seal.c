#include "harden/seal.h"

#include <string.h>

#include "os/os.h"
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

/* No other thread has the block: the store takes nobody's write away. */
static void touch(char *at)
{
    uint64_t *word = (uint64_t *)(void *)at;
    struct slab *slab = slab_of(at);

    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    atomic_fetch_or_explicit(&slab->given, slab_page_bit(slab, at, os_page_size()), memory_order_relaxed);
}

void seal_touch(void *const *blocks, size_t count, size_t slot)
{
    uintptr_t page = ~(uintptr_t)(os_page_size() - 1), known = 0; /* of the byte that was touched last */

    for (size_t i = 0; i < count; i++) {
        char *block = blocks[i], *seal = block + slot - SEAL_BYTES;
        if (HAK_UNLIKELY((((uintptr_t)block ^ known) & page) != 0))
            touch(block);
        if (HAK_UNLIKELY((((uintptr_t)block ^ (uintptr_t)seal) & page) != 0))
            touch(seal);
        known = (uintptr_t)seal;
    }
}

void seal_clear_any(char *block, size_t slot)
{
    seal_set(block, slot, 0); /* in one store, for V18 */
    if (HAK_LIKELY(slot <= ZEROED_MOST)) {
        memset(block, 0, slot);
        return;
    }
    seal_zero(block, FREE_EDGE);
    seal_zero(block + slot - FREE_EDGE_BEHIND, FREE_EDGE_BEHIND);
}

size_t seal_first_changed(const char *block, size_t slot)
{
    size_t at = seal_first_written(block, slot <= ZEROED_MOST ? slot : FREE_EDGE);

    if (slot <= ZEROED_MOST || at != FREE_EDGE)
        return at;
    at = slot - FREE_EDGE_BEHIND;
    return at + seal_first_written(block + at, FREE_EDGE_BEHIND);
}
