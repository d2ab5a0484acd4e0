/* The owner's work on one slab: carve it, take blocks, put them back. Under the owner's lock unless said otherwise. */
#ifndef HAK_POOL_SLAB_H
#define HAK_POOL_SLAB_H

#include "options/options.h"
#include "superslab/superslab.h"
#include "superslab/window.h"

enum slab_put_result {
    SLAB_PUT_DONE = 0,
    SLAB_PUT_NO_BLOCK, /* the address is inside a block, or beyond the last one */
    SLAB_PUT_FREED     /* the block is free already */
};

/* In libhakmem-secure the first block of a slab of small blocks is never handed out. Only an overflow from the units
 * before it, or a write before the second block, changes it, which patrols (harden/patrol.h) and scrubs
 * (harden/look.h) find. */
HAK_INLINE unsigned slab_blocks_withheld(unsigned class) { return HAK_SECURE && class < CLASS_1024; }

HAK_INLINE unsigned slab_words(const struct slab *slab) { return ((unsigned)slab->blocks + 63) / 64; }
HAK_INLINE size_t slab_bytes(const struct slab *slab) { return (size_t)slab->units * UNIT_SIZE; }

/* The slab in use that an arbitrary address lies in, or NULL. Any thread, no lock. */
HAK_HIDDEN struct slab *slab_in_use_at(const void *address);

/* Cuts a warm slab into free blocks of the class. Touches no block. */
HAK_HIDDEN void slab_carve(struct slab *slab, unsigned class, struct heap *owner);

/* Sets the page map's bytes for the carved slab's units; for a span, that of the first unit (W2). */
HAK_HIDDEN void slab_set_page_map(const struct slab *slab, unsigned class);

/* Takes free blocks, the lowest first (libhakmem-secure: from a random place on), into out[position - 1] downwards.
 * Returns the new position. */
HAK_HIDDEN size_t slab_take(struct slab *slab, void **out, size_t position);

/* Sets *index to the number of the block that starts at `block`. False: none starts there. */
HAK_INLINE bool slab_block_index(const struct slab *slab, const void *block, unsigned *index)
{
    return class_block_starts(slab->class, (size_t)((const char *)block - slab->start), index);
}

/* Puts back the block at `offset` of the slab. `row` describes the slab's class. */
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

/* Neighbouring blocks whose bits lie in one word of the slab's map. */
struct slab_row {
    size_t count, word;
    uint64_t bits;
};

/* Extends the row of block `index` by neighbours, up or down in memory, from at[1] on and before `end`. */
HAK_INLINE void slab_row_extend(const struct size_class *class, size_t index, void *const *at, void *const *end,
                                struct slab_row *row)
{
    size_t bit = index % 64, most = (size_t)(end - at), count = 1;
    const char *next = at[0];

    if ((const char *)at[1] > next) {
        most = base_min(most, base_min(64 - bit, class->blocks - index));
        while (count < most && at[count] == (next += class->size))
            count++;
    } else {
        most = base_min(most, bit + 1);
        while (count < most && at[count] == (next -= class->size))
            count++;
        bit -= count - 1;
    }
    row->count = count;
    row->bits = (UINT64_MAX >> (64 - count)) << bit;
}

/* The row of blocks that begins at *at, before `end`. Programs often free in the order of allocation, or in reverse.
 * *at lies at `offset` of a slab of the class. False: it is no block. */
HAK_INLINE bool slab_row_at(const struct size_class *class, size_t offset, void *const *at, void *const *end,
                            struct slab_row *row)
{
    size_t index = (offset * class->reciprocal) >> 40;

    if (HAK_UNLIKELY(index * class->size != offset || index >= class->blocks))
        return false;
    row->count = 1;
    row->word = index / 64;
    row->bits = UINT64_C(1) << (index % 64);
    if (at + 1 != end && (size_t)((const char *)at[1] - (const char *)at[0]) + class->size <= 2 * (size_t)class->size)
        slab_row_extend(class, index, at, end, row);
    return true;
}

/* Puts back the blocks from *at up to `end`, or to the first outside the slab. Stops at an address that is no block in
 * use, and sets *result. Returns where it stopped. Blocks in one word of the map share its change. */
HAK_HIDDEN void **slab_put_run(struct slab *slab, void **at, void *const *end, enum slab_put_result *result);

/* Whether block `index` is free in the slab's maps. A block in a thread's cache is not. Any thread, no lock. */
HAK_INLINE bool slab_block_is_free(const struct slab *slab, unsigned index)
{
    struct slab *mutable = (struct slab *)(uintptr_t)slab;
    uint64_t word = atomic_load_explicit(&mutable->local[index / 64], memory_order_relaxed) |
                    atomic_load_explicit(&mutable->remote[index / 64], memory_order_relaxed);
    return (word >> (index % 64)) & 1;
}

/* Looks at a slab that is about to be scrubbed (harden/look.h). It takes no lock. */
struct slab_look {
    void (*at)(struct slab_look *look, struct slab *slab);
};

/* If at most half of the slab is in use, purges its pages without a block in use, after a look unless that is NULL.
 * Adds the bytes to *purged. False: some were refused. */
HAK_HIDDEN bool slab_scrub(struct slab *slab, struct slab_look *look, size_t *purged);

/* Checks H1, H2 and H5. */
HAK_HIDDEN void slab_check(const struct slab *slab);

#endif
