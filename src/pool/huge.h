/*
 * Huge blocks, above 1 MiB: each a mapping of its own, grown with mremap; freed ones stay for a while in a bounded cache of
 * ranges, split and joined by address.
 *
 * B1: a huge block's address is its mapping's; sizes of mappings are multiples of UNIT_SIZE.
 * B2: a freed block's mapping is a range of the cache (superslab/ranges.h) until it serves a block again or is unmapped.
 * B3: shared_pool.huge_bytes is the bytes of all blocks and ranges.
 * B4: before a block is mapped or grows, ranges and all else that waits leave as far as N2 (superslab/footprint.h) says.
 */
#ifndef HAK_POOL_HUGE_H
#define HAK_POOL_HUGE_H

#include "pool/heap.h"
#include "superslab/ranges.h"

/* A block of at least `size` bytes at a multiple of `alignment` (a power of two). *zero: it reads as zero. NULL: ENOMEM. heap: the first-class
 * heap it belongs to, or NULL. Any thread, holding no lock; so are all of these. */
HAK_HIDDEN void *huge_allocate(size_t size, size_t alignment, bool *zero, struct heap *heap);

/* Bytes of the huge block that starts at the address; 0 if none does. *heap (may be NULL) gets its first-class heap. */
HAK_HIDDEN size_t huge_size(const void *block, struct heap **heap);

/* False if no huge block starts there. */
HAK_HIDDEN bool huge_free(void *block);

/* Resizes the huge block, moving it only if may_move; NULL: unchanged. */
HAK_HIDDEN void *huge_resize(void *block, size_t size, bool may_move);

/* Frees every huge block of the first-class heap. */
HAK_HIDDEN void huge_free_heap(struct heap *heap);

/* Gives cached ranges back that have waited out the purge delay, or all. Returns the bytes. */
HAK_INLINE size_t huge_purge(bool all) { return ranges_purge(all); }

/* Whether the address lies in a huge block (live) or in a cached range (not live). For messages: looks without the lock. */
HAK_HIDDEN bool huge_covers(const void *address, bool live);

struct huge_usage {
    size_t live_bytes, live_blocks, cached_bytes;
    uint64_t allocated, freed; /* blocks, since the start */
    uint64_t reused;           /* of allocated: out of the freed ranges */
};
HAK_HIDDEN void huge_usage(struct huge_usage *usage);

/* ---- How they are kept, for those who read from outside (observe/descriptor.h) ---- */

#define HUGE_BUCKETS 1024u

struct huge {
    struct huge *next; /* in its bucket, or among the unused records */
    char *address;
    size_t size; /* bytes of the mapping */
    struct heap *heap;
};

/* Where the records are. */
struct huge_inside {
    struct huge **buckets;     /* HUGE_BUCKETS, by address */
    struct huge_range *ranges; /* the cache of freed ranges */
    const unsigned *range_count;
    const size_t *range_bytes, *live_bytes, *live_blocks;
};
HAK_DATA const struct huge_inside huge_inside;

#endif
