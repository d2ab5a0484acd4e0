/*
 * malloc, free and realloc of small blocks in the hardened library, as nearly every call runs them: all checks, and
 * nothing unusual. If something is unusual or wrong, they change nothing, and hardened.c finds it again and reports it.
 *
 * A block's class comes from the page map. Its slab does not matter: a seal is made from the block's address, so only
 * the start of a block that the program holds has one (V6).
 */
#ifndef HAK_FRONT_QUICK_H
#define HAK_FRONT_QUICK_H

#include "front/hardened.h"
#include "front/thread_cache.h"

/* The largest request whose seal lies in its block. */
enum { QUICK_MOST = 896 - SEAL_BYTES };
_Static_assert((int)CLASS_896 + 1 == (int)CLASS_1024, "the largest class with the seal in the block");

HAK_INLINE bool quick_is_off(void)
{
    return HAK_UNLIKELY(atomic_load_explicit(&harden_detours, memory_order_relaxed) != 0);
}

/* NULL: take the slow path. */
HAK_INLINE void *quick_malloc(const uintptr_t *offset, size_t size, enum seal_kind kind)
{
    struct thread_cache *cache = (struct thread_cache *)(window_base() + *offset);
    const struct ring_row *row;
    struct ring *ring;
    unsigned class;
    char *block;

    if (HAK_UNLIKELY(size - 1 >= QUICK_MOST) || quick_is_off())
        return NULL;
    class = cache->class_of[(size + SEAL_BYTES + BLOCK_ALIGN - 1) / BLOCK_ALIGN];
    ring = &cache->hardened.rings[class];
    row = &ring_rows[class];
    block = ring_first(ring, row, cache->slots);
    if (HAK_UNLIKELY(block == NULL) || HAK_UNLIKELY(!seal_is_zero(block, row->size)))
        return NULL;
    ring_prefetch(ring, row, cache->slots);
    ring_taken(ring);
    seal_put_small(block, row->size, size, kind);
    return block;
}

/* A whole block that the program holds. */
struct quick_block {
    const struct ring_row *row;
    size_t class, room; /* between the requested size and the block's end */
};

/* False: take the slow path. `told`: the size that the caller gives, or SIZE_MAX. */
HAK_INLINE bool quick_look(char *window, char *block, size_t told, enum seal_kind kind, struct quick_block *found)
{
    size_t unit = window_block_unit(window, block), class, size, room;
    uint64_t tail, canary, wrong;

    if (HAK_UNLIKELY(window_is_beyond(unit)))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(class - 1 >= CLASS_1024 - 1) || quick_is_off())
        return false;
    size = ring_rows[class].size;
    /* The block lies in its slab and is not the slab's first. */
    if (HAK_UNLIKELY(((uintptr_t)block & (UNIT_SIZE - 1)) - size > ring_rows[class].places))
        return false;
    /* There is a block before each block (slab_blocks_withheld). */
    wrong = seal_neighbour_wrong(block - size, seal_load(block - SEAL_BYTES));
    tail = seal_load(block + size - SEAL_BYTES);
    canary = seal_canary(block);
    wrong |= seal_tail_wrong(tail ^ canary);
    room = ((tail ^ canary) >> SEAL_TAIL_SHIFT) - ((uint64_t)kind << SEAL_KIND_SHIFT);
    if (HAK_UNLIKELY(room - SEAL_BYTES > size - SEAL_BYTES) || HAK_UNLIKELY(told != SIZE_MAX && told != size - room) ||
        HAK_UNLIKELY((wrong | seal_gap_wrong(block, size, room, canary, tail)) != 0))
        return false;
    *found = (struct quick_block){ &ring_rows[class], class, room };
    return true;
}

/* Frees a block that quick_look found. False: nothing changed, because the ring has no room. */
HAK_INLINE bool quick_put(struct thread_cache *cache, char *block, const struct quick_block *found)
{
    struct ring *ring = &cache->hardened.rings[found->class];
    size_t head = ring->head, count = (uint16_t)(head - ring->tail);

    if (HAK_UNLIKELY(count >= ring->limit))
        return false;
    seal_set_tail(block, found->row->size, 0);
    seal_zero(block, found->row->size);
    ring_put_at(&cache->hardened, ring, found->row, cache->slots, block, head, count);
    return true;
}

/* False: take the slow path. */
HAK_INLINE bool quick_free(const uintptr_t *offset, char *block, size_t told, enum seal_kind kind)
{
    char *window = window_base();
    struct quick_block found;

    return quick_look(window, block, told, kind, &found) &&
           quick_put((struct thread_cache *)(window + *offset), block, &found);
}

#endif
