/*
 * The calls by which the fast path of libhakmem-secure seals blocks. In the other libraries they are empty.
 *
 * malloc takes from a run and free puts into a bin (front/thread_cache.h), so that a freed block waits until the run is
 * used up. The calls work on the slot alone, whose class the page map tells.
 */
#ifndef HAK_FRONT_SEAL_H
#define HAK_FRONT_SEAL_H

#include "front/sealed.h"
#include "superslab/window.h"

/* Fetches the ends of a block of the class that the next malloc may give. Runs are shuffled, so no processor guesses
 * it, and malloc waits for the block to see that it is clear. It may be NULL. */
HAK_INLINE void seal_expect(const void *next, size_t class)
{
    if (!HAK_SECURE)
        return;
    __builtin_prefetch(next, 1);
    __builtin_prefetch((const void *)((uintptr_t)next + sealed_slots[class] - SEAL_BYTES), 1);
}

/* Gives a free block of the class to the program. */
HAK_INLINE void *seal_give(void *block, size_t class, size_t size, enum seal_kind kind)
{
    uint64_t mix;
    size_t slot;

    if (!HAK_SECURE)
        return block;
    slot = sealed_slots[class];
    mix = seal_mix(block);
    if (HAK_UNLIKELY(!seal_is_clear(block, slot, mix)))
        return sealed_give_written(block, class, size, kind); /* a tail call: the fast path needs no frame */
    seal_put_mixed(block, slot, size, kind, mix);
    return block;
}

/* Whether a block at the address is the program's and as it was given. told: the size that the caller gives, or
 * SIZE_MAX. *requested: its size. False: it is not, or the slow path must look closer, because it has more than
 * FAST_MAX bytes or is of another kind. */
HAK_INLINE bool seal_tells(const char *block, size_t class, size_t told, enum seal_kind kind, size_t *requested)
{
    size_t slot = sealed_fast_slots[class];

    return HAK_LIKELY(((uintptr_t)block & (UNIT_SIZE - 1)) + slot <= UNIT_SIZE) &&
           HAK_LIKELY(seal_is_live(seal_of(block, slot) ^ seal_mix(block), slot, kind, requested)) &&
           HAK_LIKELY(told == SIZE_MAX || told == *requested) &&
           HAK_LIKELY(seal_slack_is_whole(block, slot, *requested));
}

/* The same for a free. */
HAK_INLINE bool seal_is_whole(const char *block, size_t class, size_t told, enum seal_kind kind)
{
    size_t requested;

    return !HAK_SECURE || seal_tells(block, class, told, kind, &requested);
}

/* Takes such a block from the program. */
HAK_INLINE void seal_take(char *block, size_t class)
{
    if (HAK_SECURE)
        seal_clear(block, sealed_fast_slots[class]);
}

#endif
