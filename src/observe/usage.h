/* Where the memory is. Figures are exact while no other thread allocates; else all are of nearly the same moment. */
#ifndef HAK_OBSERVE_USAGE_H
#define HAK_OBSERVE_USAGE_H

#include "pool/heap.h"
#include "pool/huge.h"

/* All in bytes unless named otherwise.
 * U1: mapped = live + cached + free_in_slab + retained + metadata, at any time; no part is less than 0. */
struct usage {
    size_t mapped;       /* committed address space */
    size_t live;         /* blocks the program holds, rounded up to their size class */
    size_t cached;       /* blocks in thread caches */
    size_t free_in_slab; /* free blocks and tails of slabs in use */
    size_t retained;     /* free units, spans and huge ranges kept, purged or not */
    size_t metadata;     /* headers, page map, caches' own memory, the heap profile's tables */
    size_t heap_profile; /* of metadata: those tables */
    size_t purged;       /* of mapped: given back to the system and not touched since (no RSS) */
    size_t huge_live;    /* of live: blocks above 1 MiB */
    size_t huge_blocks;  /* their number */
    struct huge_usage huge; /* all of them, of the same moment */
    size_t footprint_peak; /* the most bytes of slabs, dirty free units and huge blocks at one time */
    size_t superslabs;   /* number made */
    size_t heaps;        /* number of live heaps, first-class ones too */
    size_t limit_hard;   /* 0: none */
};

/* All 0 if there is no memory for the count. */
HAK_HIDDEN void observe_usage(struct usage *usage);

/* One heap, or the sum over all of them. */
struct usage_count {
    size_t heaps, orphans, first_class; /* heaps in use */
    size_t slab_bytes, warm_slabs, pending;
    /* By class. `remote`: blocks that other threads freed and announced. `used`: blocks out of the slabs, without
     * those. `cached`: blocks in the heaps' caches. */
    size_t slabs[CLASS_COUNT], used[CLASS_COUNT], cached[CLASS_COUNT], remote[CLASS_COUNT];
    struct class_counters classes[CLASS_COUNT];
    struct heap_counters counters;
};

/* Blocks of the class in caches. While threads run, the caches' count may exceed what slabs have handed out. */
HAK_INLINE size_t usage_cached(const struct usage_count *count, unsigned class)
{
    return base_min(count->cached[class], count->used[class]);
}

/* Adds the heap, under its lock. Reads its thread's cache while the thread runs. */
HAK_HIDDEN void observe_count_heap(struct usage_count *count, struct heap *heap);

/* Every heap in turn. */
HAK_HIDDEN void observe_count_all(struct usage_count *count);

/* The totals for a count that was made just before. */
HAK_HIDDEN void observe_usage_of(struct usage *usage, const struct usage_count *count);

/* Usage by size class, for malloc_info: fills rows[0..capacity) and returns the number of classes in use. 0: there is
 * no memory for the count. */
struct usage_class {
    size_t block_size;  /* bytes */
    size_t slabs;       /* slabs or spans that hold this class */
    size_t live_blocks; /* number */
    size_t free_blocks; /* number, in slabs and caches */
};
HAK_HIDDEN size_t observe_usage_classes(struct usage_class *rows, size_t capacity);

#endif
