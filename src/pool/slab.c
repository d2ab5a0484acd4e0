#include "pool/slab.h"

#include <string.h>

#include "options/options.h"
#include "os/os.h"
#include "superslab/shared_pool.h"
#include "superslab/touched.h"

struct slab *slab_in_use_at(const void *address)
{
    struct slab *slab;

    /* The first unit is the header's. */
    if (!window_contains(address) || !window_in_superslab(address) ||
        ((uintptr_t)address & (SUPERSLAB_SIZE - 1)) < UNIT_SIZE)
        return NULL;
    slab = slab_of(address);
    return atomic_load_explicit(&slab->state, memory_order_acquire) == SLAB_ACTIVE ? slab : NULL;
}

void slab_set_page_map(const struct slab *slab, unsigned class)
{
    uint8_t *byte = window_page_map() + window_unit(slab->start);
    unsigned units = class_is_span(slab->class) ? 1 : slab->units; /* W2 */

    for (unsigned i = 0; i < units; i++)
        __atomic_store_n(&byte[i], (uint8_t)class, __ATOMIC_RELAXED);
}

/* Makes V7 true of the free blocks of a new slab. */
static void slab_clean(struct slab *slab, unsigned class)
{
    size_t size = class_size(class);

    if (slab->unclean && size <= ZEROED_MOST)
        memset(slab->start, 0, slab_bytes(slab));
    else if (slab->unclean)
        for (char *at = slab->start; at < slab->start + size_classes[class].blocks * size; at += size) {
            memset(at, 0, FREE_EDGE);
            if (!class_is_span(class))
                memset(at + size - FREE_EDGE_BEHIND, 0, FREE_EDGE_BEHIND);
        }
    slab->unclean = size > ZEROED_MOST;
}

void slab_carve(struct slab *slab, unsigned class, struct heap *owner)
{
    unsigned blocks = size_classes[class].blocks, words = (blocks + 63) / 64, i;

    HAK_ASSERT(atomic_load(&slab->state) == SLAB_WARM && slab->units == size_classes[class].units);
    if (HAK_SECURE) {
        slab_clean(slab, class);
        atomic_store_explicit(&slab->given, 0, memory_order_relaxed);
    }
    for (i = 0; i < words; i++) {
        atomic_store_explicit(&slab->local[i], base_low_mask(blocks - i * 64), memory_order_relaxed);
        atomic_store_explicit(&slab->remote[i], 0, memory_order_relaxed);
    }
    if (HAK_UNLIKELY(slab_blocks_withheld(class)))
        atomic_store_explicit(&slab->local[0], UINT64_MAX - 1, memory_order_relaxed);
    slab->summary = base_low_mask(words);
    slab->used = 0;
    slab->blocks = (uint16_t)blocks;
    __atomic_store_n(&slab->class, (uint8_t)class, __ATOMIC_RELAXED); /* statistics read it without a lock */
    slab->next = NULL;
    slab->prev = NULL;
    slab->scrubbed = slab->holes = false;
    atomic_store_explicit(&slab->remote_count, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, owner, memory_order_release);
    atomic_store_explicit(&slab->state, SLAB_ACTIVE, memory_order_release);
}

/* libhakmem-secure takes blocks from a random place on: in one of so many words of the map that have free blocks, the
 * lowest ones. A choice among all would soon touch each page of a slab. */
#define CHANCE_WORDS 4u

/* Quick, not cryptographic. Threads may get the same numbers: each takes from slabs of its own. */
static unsigned slab_chance(unsigned most)
{
    static _Atomic uint64_t chance; /* Order: relaxed; a race repeats a number */
    uint64_t state = atomic_load_explicit(&chance, memory_order_relaxed);

    state = (state ? state : os_random() | 1) * UINT64_C(0xd1342543de82ef95) + 1;
    atomic_store_explicit(&chance, state, memory_order_relaxed);
    return (unsigned)((state >> 32) * most >> 32);
}

/* The number of the word to take from next. */
static unsigned slab_next_word(uint64_t summary)
{
    if (HAK_SECURE)
        for (unsigned skip = slab_chance(CHANCE_WORDS); skip-- && (summary & (summary - 1));)
            summary &= summary - 1;
    return base_low_bit(summary);
}

/* Takes up to `position` blocks of a word, from a random one on. Returns the bits that are left. */
static uint64_t slab_take_by_chance(uint64_t word, char *base, size_t size, void **out, size_t *position)
{
    uint64_t part = word & ~base_low_mask(slab_chance(64));

    for (; word && *position; --*position) {
        unsigned bit = base_low_bit(part ? part : word);
        out[*position - 1] = base + bit * size;
        word &= ~(UINT64_C(1) << bit);
        part = (part ? part : word) & ~(UINT64_C(1) << bit);
    }
    return word;
}

size_t slab_take(struct slab *slab, void **out, size_t position)
{
    size_t size = class_size(slab->class), before = position;

    while (position && slab->summary) {
        unsigned index = slab_next_word(slab->summary);
        uint64_t word = atomic_load_explicit(&slab->local[index], memory_order_relaxed);
        char *base = slab->start + (size_t)index * 64 * size;
        if (word == UINT64_MAX && position >= 64) {
            for (unsigned i = 0; i < 64; i++, base += size)
                out[--position] = base;
            word = 0;
        } else if (HAK_SECURE) {
            word = slab_take_by_chance(word, base, size, out, &position);
        } else {
            do {
                out[--position] = base + base_low_bit(word) * size;
                word &= word - 1;
            } while (word && position);
        }
        atomic_store_explicit(&slab->local[index], word, memory_order_relaxed);
        if (word == 0)
            slab->summary &= HAK_SECURE ? ~(UINT64_C(1) << index) : slab->summary - 1;
    }
    slab->used += (uint32_t)(before - position);
    slab->scrubbed = slab->holes = false;
    if (HAK_DEBUG) {
        for (size_t i = position; i < before; i++)
            touched_note(out[i], size, true);
        slab_check(slab);
    }
    return position;
}

static void slab_store_word(struct slab *slab, size_t number, uint64_t word)
{
    atomic_store_explicit(&slab->local[number], word, memory_order_relaxed);
    slab->summary |= UINT64_C(1) << number;
}

void **slab_put_run(struct slab *slab, void **at, void *const *end, enum slab_put_result *result)
{
    const struct size_class *class = &size_classes[slab->class];
    const char *start = slab->start;
    size_t offset = (size_t)((const char *)*at - start), bytes = slab_bytes(slab), number = SIZE_MAX;
    uint64_t word = 0;
    struct slab_row row;

    slab->scrubbed = false;
    do {
        if (HAK_UNLIKELY(!slab_row_at(class, offset, at, end, &row))) {
            *result = SLAB_PUT_NO_BLOCK;
            break;
        }
        if (row.word != number) {
            if (number != SIZE_MAX)
                slab_store_word(slab, number, word);
            number = row.word;
            word = atomic_load_explicit(&slab->local[number], memory_order_relaxed);
        }
        if (HAK_UNLIKELY(word & row.bits)) {
            *result = SLAB_PUT_FREED;
            break;
        }
        word |= row.bits;
        at += row.count;
        if (at == end)
            break;
        offset = (size_t)((const char *)*at - start);
    } while (offset < bytes);
    if (HAK_LIKELY(word != 0))
        slab_store_word(slab, number, word);
    if (HAK_UNLIKELY(*result == SLAB_PUT_FREED)) /* puts back the row's blocks before the free one */
        while ((*result = slab_put_at(slab, class, (size_t)((const char *)*at - start))) == SLAB_PUT_DONE)
            at++;
    return at;
}

/* Sets the bits of the pages that blocks in use lie on. */
static void slab_mark_pages(const struct slab *slab, size_t page, uint64_t *in_use)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    size_t size = class_size(slab->class);

    for (unsigned i = 0; i < slab_words(slab); i++) {
        uint64_t used =
            ~atomic_load_explicit(&mutable->local[i], memory_order_relaxed) & base_low_mask(slab->blocks - i * 64);
        for (; used; used &= used - 1) {
            size_t start = ((size_t)i * 64 + base_low_bit(used)) * size;
            for (size_t at = start / page; at <= (start + size - 1) / page; at++)
                in_use[at / 64] |= UINT64_C(1) << (at % 64);
        }
    }
}

bool slab_scrub(struct slab *slab, struct slab_look *look, size_t *purged)
{
    size_t page = os_page_size(), pages = slab_bytes(slab) / page;
    uint64_t in_use[8 * UNIT_SIZE / 4096 / 64] = { 0 };
    bool done = true, split = false;

    if (slab->scrubbed || (size_t)slab->used * class_size(slab->class) > slab_bytes(slab) / 2)
        return true;
    if (HAK_UNLIKELY(look != NULL))
        look->at(look, slab);
    slab_mark_pages(slab, page, in_use);
    for (size_t at = 0; at < pages;) {
        size_t first = at;
        while (at < pages && !((in_use[at / 64] >> (at % 64)) & 1))
            at++;
        if (at == first) {
            at++;
            continue;
        }
        if (!split)
            shared_pool_split_at(slab); /* P7 */
        split = true;
        if (os_purge(slab->start + first * page, (at - first) * page)) {
            *purged += (at - first) * page;
            slab->holes = true;
            if (HAK_DEBUG)
                touched_note(slab->start + first * page, (at - first) * page, false);
        } else {
            done = false;
        }
    }
    slab->scrubbed = done;
    return done;
}

void slab_check(const struct slab *slab)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    unsigned words = slab_words(slab), free = slab_blocks_withheld(slab->class), i;

    for (i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&mutable->local[i], memory_order_relaxed);
        HAK_ASSERT(((slab->summary >> i) & 1) == (word != 0)); /* H2 */
        free += base_count_bits(word);
    }
    HAK_ASSERT(slab->used + free >= slab->blocks); /* H1: more while a remote free is collected and not counted */
    HAK_ASSERT(slab->used != 0 || free == slab->blocks); /* H5 */
}
