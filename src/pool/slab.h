/* The owner's side of one slab: carve it, take blocks from its local map, put them back. All under the owner heap's lock. */
#ifndef HAK_POOL_SLAB_H
#define HAK_POOL_SLAB_H

#include "superslab/superslab.h"
#include "superslab/window.h"

enum slab_put_result {
    SLAB_PUT_DONE = 0,
    SLAB_PUT_NO_BLOCK, /* inside a block, or beyond the last */
    SLAB_PUT_FREED     /* free already */
};

HAK_INLINE unsigned slab_words(const struct slab *slab) { return ((unsigned)slab->blocks + 63) / 64; }
HAK_INLINE size_t slab_bytes(const struct slab *slab) { return (size_t)slab->units * UNIT_SIZE; }

/* The slab in use that the address, any address, lies in, or NULL. Any thread, no lock. */
HAK_HIDDEN struct slab *slab_in_use_at(const void *address);

/* Cuts a warm slab into free blocks of the class. No block's memory is touched. */
HAK_HIDDEN void slab_carve(struct slab *slab, unsigned class, struct heap *owner);

/* Sets the page map's bytes of the slab's units. */
HAK_HIDDEN void slab_set_page_map(const struct slab *slab, unsigned class);

/* Takes free blocks, the lowest first, into out[position - 1] downwards; returns the new position. */
HAK_HIDDEN size_t slab_take(struct slab *slab, void **out, size_t position);

/* The index of the block that starts at `block`; false if none does. */
HAK_INLINE bool slab_block_index(const struct slab *slab, const void *block, unsigned *index)
{
    size_t offset = (size_t)((const char *)block - slab->start);
    *index = class_block_index(slab->class, offset);
    return *index < slab->blocks && (size_t)*index * class_size(slab->class) == offset;
}

/* Puts the block at `offset` of the slab back; row is its class's. */
HAK_INLINE enum slab_put_result slab_put_at(struct slab *slab, const struct size_class *row, size_t offset)
{
    size_t index = (offset * row->reciprocal) >> 40;
    uint64_t word, bit;

    if (HAK_UNLIKELY(index * row->size != offset || index >= row->blocks))
        return SLAB_PUT_NO_BLOCK;
    bit = UINT64_C(1) << (index % 64);
    word = atomic_load_explicit(&slab->local[index / 64], memory_order_relaxed);
    if (HAK_UNLIKELY(word & bit))
        return SLAB_PUT_FREED;
    atomic_store_explicit(&slab->local[index / 64], word | bit, memory_order_relaxed);
    slab->summary |= UINT64_C(1) << (index / 64);
    return SLAB_PUT_DONE;
}

HAK_INLINE enum slab_put_result slab_put(struct slab *slab, const void *block)
{
    slab->scrubbed = false;
    return slab_put_at(slab, &size_classes[slab->class], (size_t)((const char *)block - slab->start));
}

/* Whether the block at `index` is free in the slab as far as anybody can tell from outside: a block in some thread's cache is
 * not. Any thread. */
HAK_INLINE bool slab_block_is_free(const struct slab *slab, unsigned index)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    uint64_t word = atomic_load_explicit(&mutable->local[index / 64], memory_order_relaxed) |
                    atomic_load_explicit(&mutable->remote[index / 64], memory_order_relaxed);
    return (word >> (index % 64)) & 1;
}

/* Gives back the pages of the slab on which no block is in use, if at most half of it is. Adds the bytes to *purged. False if the
 * system refused some. */
HAK_HIDDEN bool slab_scrub(struct slab *slab, size_t *purged);

/* Checks H2 and the counts of a slab whose owner's lock is held. */
HAK_HIDDEN void slab_check(const struct slab *slab);

#endif
