/*
 * malloc and free of small blocks in the hardened library, as nearly every call runs them: all checks, and nothing
 * unusual. If something is unusual or wrong, they change nothing, and hardened.c finds it again and reports it.
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

/* Whether the block before is whole, by its tail word alone. Each block has one before it (slab_blocks_withheld). */
HAK_INLINE bool quick_before_is_whole(const char *block, size_t size)
{
    uint64_t tail = seal_load(block - SEAL_BYTES);
    unsigned live = seal_is_tail(block - size, tail);

    __asm__("" : "+r"(live)); /* live or free at random, so a branch on it would be guessed wrong */
    return HAK_LIKELY((live | (tail == 0)) != 0);
}

/* False: take the slow path. `told`: the size that the caller gives, or SIZE_MAX. */
HAK_INLINE bool quick_free(const uintptr_t *offset, char *block, size_t told, enum seal_kind kind)
{
    char *window = window_base();
    size_t unit = window_block_unit(window, block), class, size, room;
    const struct ring_row *row;
    struct thread_cache *cache;
    uint64_t tail, canary, code;
    struct ring *ring;

    if (HAK_UNLIKELY(window_is_beyond(unit)))
        return false;
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(class - 1 >= CLASS_1024 - 1) || quick_is_off())
        return false;
    row = &ring_rows[class];
    size = row->size;
    /* The block lies in its slab and is not the slab's first. */
    if (HAK_UNLIKELY(((uintptr_t)block & (UNIT_SIZE - 1)) - 1 > UNIT_SIZE - size - 1))
        return false;
    /* This test comes first because the later ones need all that it needs. */
    if (HAK_UNLIKELY(!quick_before_is_whole(block, size)))
        return false;
    tail = seal_load(block + size - SEAL_BYTES);
    canary = seal_canary(block);
    code = (tail ^ canary) >> SEAL_TAIL_SHIFT;
    room = code - ((uint64_t)kind << SEAL_KIND_SHIFT);
    if (HAK_UNLIKELY(tail != seal_tail(canary, code)) || HAK_UNLIKELY(room - SEAL_BYTES > size - SEAL_BYTES) ||
        HAK_UNLIKELY(told != SIZE_MAX && told != size - room) ||
        HAK_UNLIKELY(!seal_gap_is_whole(block, size, room, canary, tail)))
        return false;
    cache = (struct thread_cache *)(window + *offset);
    ring = &cache->hardened.rings[class];
    if (HAK_UNLIKELY(ring_is_full(ring))) {
        hardened_free_checked(block, kind); /* few arguments: each would take a register of all frees */
        return true;
    }
    seal_set_tail(block, size, 0);
    seal_zero(block, size);
    ring_put(&cache->hardened, ring, row, cache->slots, block);
    return true;
}

#endif
