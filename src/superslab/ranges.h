/*
 * Freed ranges of huge blocks: address space with memory behind it, mapped outside the window, kept by address for a
 * purge delay to serve huge blocks again.
 *
 * J1: ranges don't touch each other: neighbours are joined.
 * J2: ranges and their number change under huge_lock only.
 */
#ifndef HAK_SUPERSLAB_RANGES_H
#define HAK_SUPERSLAB_RANGES_H

#include "os/lock.h"

#define HUGE_MAX_RANGES 256u

struct huge_range {
    char *start;
    size_t size; /* a multiple of UNIT_SIZE */
    uint32_t freed_ms;
};

struct range_cache {
    struct huge_range ranges[HUGE_MAX_RANGES]; /* by address (J1) */
    unsigned count;
    size_t bytes;
};
HAK_DATA struct range_cache range_cache;

/* Of the range cache, and of the records of huge blocks (pool/huge.h). */
HAK_DATA struct lock huge_lock;

/* The best fit at a multiple of `alignment`, cut to size; NULL if none fits. Under huge_lock. */
HAK_HIDDEN char *ranges_take(size_t size, size_t alignment);

/* The first `size` bytes of the range that starts at `start`; false if there are not so many. Under huge_lock. */
HAK_HIDDEN bool ranges_take_at(char *start, size_t size);

/* Gives a mapping that is no block any more to the cache, and unmaps what that pushes out. Any thread that holds no
 * lock of rank LOCK_RANK_HUGE or above; so are all below. */
HAK_HIDDEN void ranges_put(char *start, size_t size);

/* Unmaps ranges that have waited out the purge delay, or all. Returns the bytes. */
HAK_HIDDEN size_t ranges_purge(bool all);

/* Unmaps the oldest ranges, `wanted` bytes or a little more, or all there are. Returns the bytes. */
HAK_HIDDEN size_t ranges_give_back(size_t wanted);

/* For how many ms the oldest range has waited; false if there is none. */
HAK_HIDDEN bool ranges_oldest(uint32_t now_ms, uint32_t *waited_ms);

#endif
