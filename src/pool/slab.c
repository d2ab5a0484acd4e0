#include "pool/slab.h"

void slab_set_page_map(const struct slab *slab, unsigned class)
{
    uint8_t *byte = window_page_map() + window_unit(slab->start);

    for (unsigned i = 0; i < slab->units; i++)
        __atomic_store_n(&byte[i], (uint8_t)class, __ATOMIC_RELAXED);
}

void slab_carve(struct slab *slab, unsigned class, struct heap *owner)
{
    unsigned blocks = size_classes[class].blocks, words = (blocks + 63) / 64, i;

    HAK_ASSERT(atomic_load(&slab->state) == SLAB_WARM && slab->units == size_classes[class].units);
    for (i = 0; i < words; i++) {
        atomic_store_explicit(&slab->local[i], base_low_mask(blocks - i * 64), memory_order_relaxed);
        atomic_store_explicit(&slab->remote[i], 0, memory_order_relaxed);
    }
    slab->summary = base_low_mask(words);
    slab->used = 0;
    slab->blocks = (uint16_t)blocks;
    slab->class = (uint8_t)class;
    slab->next = NULL;
    slab->prev = NULL;
    atomic_store_explicit(&slab->remote_count, 0, memory_order_relaxed);
    atomic_store_explicit(&slab->owner, owner, memory_order_release);
    atomic_store_explicit(&slab->state, SLAB_ACTIVE, memory_order_release);
}

size_t slab_take(struct slab *slab, void **out, size_t position)
{
    size_t size = class_size(slab->class), before = position;

    while (position && slab->summary) {
        unsigned index = base_low_bit(slab->summary);
        uint64_t word = atomic_load_explicit(&slab->local[index], memory_order_relaxed);
        char *base = slab->start + (size_t)index * 64 * size;
        do {
            out[--position] = base + base_low_bit(word) * size;
            word &= word - 1;
        } while (word && position);
        atomic_store_explicit(&slab->local[index], word, memory_order_relaxed);
        if (word == 0)
            slab->summary &= slab->summary - 1;
    }
    slab->used += (uint32_t)(before - position);
    if (HAK_DEBUG)
        slab_check(slab);
    return position;
}

void slab_check(const struct slab *slab)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    unsigned words = slab_words(slab), free = 0, i;

    for (i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&mutable->local[i], memory_order_relaxed);
        HAK_ASSERT(((slab->summary >> i) & 1) == (word != 0)); /* H2 */
        free += base_count_bits(word);
    }
    HAK_ASSERT(slab->used + free >= slab->blocks); /* H1: more while a remote free is collected and not counted */
    HAK_ASSERT(slab->used != 0 || free == slab->blocks); /* H5 */
}
