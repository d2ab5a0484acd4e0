/*
 * Huge blocks, above 1 MiB. Each has a mapping of its own, which mremap grows. Freed blocks stay for a while in a
 * bounded cache of ranges, where they are split and joined by address.
 *
 * B1: a huge block begins where its mapping begins; sizes of mappings are multiples of UNIT_SIZE.
 * B2: a freed block's mapping is a cached range (superslab/ranges.h) until it serves a block again or is unmapped.
 * B3: shared_pool.huge_bytes is the bytes of all blocks and ranges.
 * B4: before a block is mapped or grows, ranges and other waiting memory leave as N2 (superslab/footprint.h) says.
 */
#ifndef HAK_POOL_HUGE_H
#define HAK_POOL_HUGE_H

#include "pool/heap.h"
#include "superslab/ranges.h"

/* A block of at least `size` bytes at a multiple of `alignment` (a power of two). *zero: it reads as zero. NULL:
 * ENOMEM. heap: the block's first-class heap, or NULL. Any thread that holds no lock, like all functions below. */
HAK_HIDDEN void *huge_allocate(size_t size, size_t alignment, bool *zero, struct heap *heap);

/* Bytes of the huge block that starts at the address; 0 if none does. *heap (may be NULL) gets its first-class heap. */
HAK_HIDDEN size_t huge_size(const void *block, struct heap **heap);

/* What src/harden keeps about a block; zeros without hardening. */
struct huge_request {
    size_t size;  /* bytes that the program asked for */
    size_t guard; /* offset of the inaccessible pages at the mapping's end; 0: none */
    uint8_t kind; /* enum seal_kind */
};
/* False: no huge block starts there. *size gets the mapping's bytes. */
HAK_HIDDEN bool huge_get_request(const void *block, struct huge_request *request, size_t *size);
HAK_HIDDEN void huge_set_request(const void *block, const struct huge_request *request);

/* Usable bytes of a huge block for a request of `size` bytes. 0: there can be none. */
HAK_INLINE size_t huge_size_for(size_t size)
{
    return size > REQUEST_MAX - UNIT_SIZE ? 0 : base_align_up(base_max(size, 1), UNIT_SIZE);
}

/* Frees the block. Returns as huge_size. */
HAK_HIDDEN size_t huge_free(void *block, struct heap **heap);

/* Resizes the huge block, and moves it only if may_move. NULL: it is unchanged. */
HAK_HIDDEN void *huge_resize(void *block, size_t size, bool may_move);

/* Frees every huge block of the first-class heap. */
HAK_HIDDEN void huge_free_heap(struct heap *heap);

/* Unmaps cached ranges that have waited out the purge delay, or all. Returns the bytes. */
HAK_INLINE size_t huge_purge(bool all) { return ranges_purge(all); }

/* Whether the address lies in a huge block (live) or a cached range (not live). For messages: takes no lock. */
HAK_HIDDEN bool huge_covers(const void *address, bool live);

struct huge_usage {
    size_t live_bytes, live_blocks, cached_bytes;
    uint64_t allocated, freed; /* blocks, since the start */
    uint64_t reused;           /* of allocated: taken from freed ranges */
};
HAK_HIDDEN void huge_usage(struct huge_usage *usage);

/* ---- The records, for readers outside the process (observe/descriptor.h) ---- */

#define HUGE_BUCKETS 1024u

struct huge {
    struct huge *next; /* in its bucket, or among the unused records */
    char *address;
    size_t size; /* bytes of the mapping */
    struct heap *heap;
    /* The request. request_spare: bytes of the mapping beyond what the program asked for. request_guard: bytes of the
     * inaccessible pages, with the kind in the low bits. Both are small because records are never given back. */
    uint32_t request_spare, request_guard;
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
