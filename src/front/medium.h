/*
 * malloc and free of blocks of 1 to 56 KiB in the hardened library, as nearly every call runs them; quick.h has smaller
 * ones. All checks of the slow path are here. If something is unusual or wrong, the functions change nothing, and
 * hardened.c finds it again and reports it.
 *
 * A block's size lies in its slab's ledger, out of the program's reach. The slab's own line, which the owner's calls
 * write, is not read: the class comes from the page map, and a slab begins at its first unit (S2).
 */
#ifndef HAK_FRONT_MEDIUM_H
#define HAK_FRONT_MEDIUM_H

#include "front/quick.h"

/* The largest request that a block of a slab holds with its canary. */
enum { MEDIUM_MOST = 57344 - SEAL_BYTES };
_Static_assert((int)CLASS_57344 + 1 == (int)CLASS_SPAN_1, "the largest class that is no span");

/* The place of a block's size. */
struct medium_place {
    struct ledger *ledger;
    unsigned index;
};

/* False: no block of the class starts at the address, which lies in one of its slabs. */
HAK_INLINE bool medium_find(const char *block, size_t class, struct medium_place *place)
{
    struct superslab *superslab = superslab_of(block);
    size_t inside = (uintptr_t)block & (SUPERSLAB_SIZE - 1), first = superslab->first_unit[inside >> UNIT_SHIFT],
           offset = inside - first * UNIT_SIZE;

    place->ledger = ledger_of(&superslab->slabs[first]);
    place->index = class_block_index((unsigned)class, offset);
    return place->index < size_classes[class].blocks && place->index * class_size((unsigned)class) == offset;
}

/* NULL: take the slow path. */
HAK_INLINE void *medium_malloc(size_t size)
{
    struct thread_cache *cache = cache_current();
    const struct ring_row *row;
    struct medium_place place;
    struct ring *ring;
    unsigned class;
    char *block;

    if (HAK_UNLIKELY(size - QUICK_MOST - 1 >= MEDIUM_MOST - QUICK_MOST) || quick_is_off())
        return NULL;
    class = class_of_size(size + SEAL_BYTES);
    ring = &cache->hardened.rings[class];
    row = &ring_rows[class];
    block = ring_first(ring, row, cache->slots);
    if (HAK_UNLIKELY(block == NULL) || HAK_UNLIKELY(seal_first_written(block, row->size) != row->size) ||
        HAK_UNLIKELY(!medium_find(block, class, &place)))
        return NULL;
    ring_prefetch(ring, row, cache->slots);
    ring_taken(ring);
    seal_put(block, class, place.ledger, place.index, size, SEAL_MALLOC);
    return block;
}

/* False: take the slow path. */
HAK_INLINE bool medium_free(char *block, struct hardened_claim claim)
{
    struct thread_cache *cache = cache_current();
    char *window = window_base();
    size_t unit = window_block_unit(window, block), class;
    struct medium_place place;
    struct ring *ring;
    struct seal seal;

    if (HAK_UNLIKELY(window_is_beyond(unit)))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(class - CLASS_1024 >= CLASS_SPAN_1 - CLASS_1024) || quick_is_off() ||
        HAK_UNLIKELY(!medium_find(block, class, &place)))
        return false;
    ring = &cache->hardened.rings[class];
    if (HAK_UNLIKELY(ring_is_full(ring)) || HAK_UNLIKELY(claim.alignment != 1) ||
        HAK_UNLIKELY(seal_read(block, (unsigned)class, place.ledger, place.index, &seal) != SEAL_WHOLE) ||
        HAK_UNLIKELY(claim.kind != seal.kind) ||
        HAK_UNLIKELY(claim.size != SIZE_MAX && claim.size != seal.requested) ||
        HAK_UNLIKELY(!seal_take(block, (unsigned)class, place.ledger, place.index))) /* V5 */
        return false;
    seal_erase(block, (unsigned)class, seal.requested, true);
    ring_put(&cache->hardened, ring, &ring_rows[class], cache->slots, block);
    return true;
}

#endif
