/*
 * A thread's free blocks: a ring for each class. Freed blocks wait in it, and malloc takes the ring's first block,
 * which waited longest. A freed block takes the place of a random one among the newest, which goes to the ring's end.
 * Blocks from slabs come before all others, in random order. So chance decides early which block malloc takes.
 *
 * V8: a class's ring lies in its part of the thread cache's slots, which holds nothing else (V4), or in
 *     libhakmem-secure behind all other slots (enum ring_slots). Its entries are numbers `tail` to `head` - 1, each in
 *     the place of its number modulo the ring's length. They count as used in their slabs and have no seal. The last
 *     `keep` are the quarantine: malloc takes none unless memory is out.
 * V9: an entry is written before `head` covers it, and `tail` leaves an entry before another takes its place. So a fork
 *     at any moment loses at most one block to the child. Batches change under the heap's lock.
 * V10: a freed block leaves a ring or the waiting spans for its slab only by bins_leave or span_leave (spans.c).
 */
#ifndef HAK_HARDEN_BINS_H
#define HAK_HARDEN_BINS_H

#include "harden/spans.h"
#include "os/os.h"

/* A thread's rings may hold an eighth of the bytes of its heap's slabs, and so may its waiting spans. */
#define BINS_SHARE 8u

struct ring {
    uint16_t head, tail; /* modulo 2^16. Order: release, for a fork, whose child has what came before (V9) */
    uint16_t keep;       /* entries of the quarantine */
    uint16_t limit;      /* most entries; 0: the class has no ring yet */
};

struct bins {
    struct ring rings[CLASS_COUNT];
    uint16_t seen[CLASS_COUNT]; /* entries of the ring after its last slow call, for the counters of hits */
    bool used;                  /* a ring may hold a block */
    uint32_t calls; /* of the thread, for housekeeping (front/hardened.c) */
    uint64_t chance; /* the generator's state: odd */
    size_t bytes;      /* limit * block size, summed over the rings */
    struct spans spans;
};

/* A ring's length is a power of two. A batch to or from slabs moves up to half of a ring; batches take an eighth of the
 * calls' time. In libhakmem-secure all calls use the rings, which are twice as long. */
#define RING_LENGTH(cached)                                                                                            \
    (((cached) >= 128  ? 128                                                                                           \
      : (cached) >= 64 ? 64                                                                                            \
      : (cached) >= 32 ? 32                                                                                            \
      : (cached) >= 16 ? 16                                                                                            \
                       : 8) *                                                                                          \
     (HAK_SECURE ? 2 : 1))

enum ring_slots {
    RING_SLOT_BEFORE = CACHE_SLOTS_COUNTED - 1,
#define RING_SLOTS(size, units, cached) CLASS_##size##_RING, CLASS_##size##_RING_LAST = CLASS_##size##_RING + \
    RING_LENGTH(cached) - 1,
    SLAB_CLASS_TABLE(RING_SLOTS)
#undef RING_SLOTS
    RING_SLOTS_END
};
_Static_assert((int)RING_SLOTS_END <= (int)CACHE_SLOTS_DEEP, "a cache's slots hold the rings");

/* The constants of a class's ring, in one word, which one load fetches. */
struct ring_row {
    uint16_t first, mask; /* the first slot; the length less one */
    uint16_t size;        /* of a block */
    uint16_t places;      /* of a class of small blocks: a block may start so many bytes behind its slab's second one */
};
HAK_DATA const struct ring_row ring_rows[CLASS_COUNT];

HAK_INLINE unsigned ring_count(const struct ring *ring) { return (uint16_t)(ring->head - ring->tail); }

/* A random number below `most` (at most 2^16): upper bits of a multiplicative generator; fast, not cryptographic. */
HAK_INLINE unsigned bins_chance(struct bins *bins, unsigned most)
{
    uint64_t x = bins->chance * UINT64_C(0x59071d65);

    bins->chance = x;
    return (unsigned)(((x >> 40) * most) >> 24);
}

/* The block that is taken next. It stays in the ring until ring_taken. NULL: refill. `slots` are the thread cache's. */
HAK_INLINE char *ring_first(const struct ring *ring, const struct ring_row *row, void *const *slots)
{
    size_t tail = ring->tail;

    return HAK_LIKELY((uint16_t)(ring->head - tail) > ring->keep) ? slots[row->first + (tail & row->mask)] : NULL;
}

/* Fetches the block that is taken after the first: it waited so long that it left the processor's first cache. */
HAK_INLINE void ring_prefetch(const struct ring *ring, const struct ring_row *row, void *const *slots)
{
    __builtin_prefetch(slots[row->first + ((ring->tail + 1u) & (size_t)row->mask)], 1);
}

HAK_INLINE void ring_taken(struct ring *ring)
{
    __atomic_store_n(&ring->tail, (uint16_t)(ring->tail + 1), __ATOMIC_RELEASE);
}

HAK_INLINE bool ring_is_full(const struct ring *ring) { return ring_count(ring) >= ring->limit; }

/* Puts a freed block into the ring, which is not full and holds `count` entries up to `head`. */
HAK_INLINE void ring_put_at(struct bins *bins, struct ring *ring, const struct ring_row *row, void **slots, void *block,
                            size_t head, size_t count)
{
    size_t back = bins_chance(bins, ring->keep / 2u + 1), mask = row->mask;
    void **entries = slots + row->first, **place;

    back = back <= count ? back : 0;
    place = &entries[(head - back) & mask];
    entries[head & mask] = *place;
    *place = block;
    __atomic_store_n(&ring->head, (uint16_t)(head + 1), __ATOMIC_RELEASE);
}

HAK_INLINE void ring_put(struct bins *bins, struct ring *ring, const struct ring_row *row, void **slots, void *block)
{
    ring_put_at(bins, ring, row, slots, block, ring->head, ring_count(ring));
}

HAK_INLINE size_t bins_share(const struct heap *heap)
{
    return atomic_load_explicit(&heap->slabs, memory_order_relaxed) * UNIT_SIZE / BINS_SHARE;
}

HAK_INLINE void bins_begin(struct bins *bins)
{
    if (HAK_UNLIKELY(!bins->used)) {
        bins->used = true;
        bins->chance = os_random() | 1;
    }
}

/* A free block of a class of slabs; refills the ring if it must. The block is zero (V7). NULL when memory
 * is out. For the heap's thread, holding no lock, as the next functions are. */
HAK_HIDDEN void *bins_take(struct bins *bins, void **slots, struct heap *heap, unsigned class);

/* Puts a freed block into the quarantine. */
HAK_HIDDEN void bins_put(struct bins *bins, void **slots, struct heap *heap, unsigned class, void *block);

/* ---- Spans: spans.c ---- */

/* Erases what the program wrote to a span that was just freed: it reads as zero up to `requested` bytes and the seal.
 * `waits`: bins_put_span comes next, and may do the erasing. */
HAK_HIDDEN void bins_erase_span(struct bins *bins, char *block, unsigned class, size_t requested, bool waits);

HAK_HIDDEN void bins_put_span(struct bins *bins, struct heap *heap, void *block);

/* Takes a span of the class out of the quarantine and opens it. `exact`: only one with a closed guard unit behind it
 * (V20). NULL: none waits, or too few spans do. *zero: nobody could write to it meanwhile. */
HAK_HIDDEN void *bins_take_span(struct bins *bins, unsigned class, bool exact, bool *zero);

/* Whether the first bytes of a free span, or all if it has fewer, are zero. Reads no page without memory. Looks only in
 * classes whose spans may have little; else false. */
HAK_HIDDEN bool bins_span_is_zero(const struct bins *bins, const char *block, size_t bytes);

/* Blocks of the class. For another thread's bins: as of some moment, under its heap's lock. */
HAK_HIDDEN unsigned bins_count(const struct bins *bins, unsigned class);

/* A block in the class's ring that is not zero, or NULL. */
HAK_HIDDEN const char *bins_find_written(const struct bins *bins, void *const *slots, unsigned class);

/* Returns the blocks that malloc may take to their slabs, and with `all` those in the quarantine, too. */
HAK_HIDDEN void bins_flush(struct bins *bins, void **slots, struct heap *heap, bool all);

#endif
