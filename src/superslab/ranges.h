/*
 * The cache of freed ranges: the mappings of freed huge blocks. A range stays mapped, outside the window, for a purge
 * delay, and serves new huge blocks.
 *
 * J1: ranges do not touch each other: neighbours are joined. They are sorted by address.
 * J2: ranges and their number change under huge_lock only.
 */
#ifndef HAK_SUPERSLAB_RANGES_H
#define HAK_SUPERSLAB_RANGES_H

#include "os/lock.h"

#define HUGE_MAX_RANGES 256u

/* In libhakmem-secure one freed range in RANGES_CLOSED_SHARE, by chance, cannot be accessed. */
#define RANGES_CLOSED_SHARE 16u

struct huge_range {
    char *start;
    size_t size; /* a multiple of UNIT_SIZE */
    uint32_t freed_ms;
    bool closed; /* libhakmem-secure: a part of it is inaccessible */
};

struct range_cache {
    struct huge_range ranges[HUGE_MAX_RANGES]; /* J1 */
    unsigned count;
    size_t bytes;
};
HAK_DATA struct range_cache range_cache;

/* Guards the range cache, and the records of huge blocks (pool/huge.h). */
HAK_DATA struct lock huge_lock;

/* Whether there is a range of at least `size` bytes. Takes huge_lock. */
HAK_HIDDEN bool ranges_fit(size_t size);

/* Takes `size` bytes of the best fit that starts at a multiple of `alignment`. NULL: none fits. *closed: some of them
 * are inaccessible. Under huge_lock. */
HAK_HIDDEN char *ranges_take(size_t size, size_t alignment, bool *closed);

/* Takes the first `size` bytes of the range that starts at `start`. False: there are not so many. *closed as above.
 * Under huge_lock. */
HAK_HIDDEN bool ranges_take_at(char *start, size_t size, bool *closed);

/* Puts the mapping of a freed block into the cache, and unmaps ranges that have no room there. Any thread that holds no
 * lock of rank LOCK_RANK_HUGE or above, like all functions below. */
HAK_HIDDEN void ranges_put(char *start, size_t size);

/* Unmaps ranges that have waited out the purge delay, or all. Returns the bytes. */
HAK_HIDDEN size_t ranges_purge(bool all);

/* Unmaps ranges, the oldest first, until `wanted` bytes have left or none are there. Returns the bytes. */
HAK_HIDDEN size_t ranges_give_back(size_t wanted);

/* How many ms the oldest range has waited. False: there is none. */
HAK_HIDDEN bool ranges_oldest(uint32_t now_ms, uint32_t *waited_ms);

#endif
