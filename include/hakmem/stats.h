/*
 * HAKMEM's statistics: as structs for programs, and as text, JSON or Prometheus text.
 *
 * Programs and libraries of different versions work together, because a struct grows only at its end. A caller passes
 * the size that it was compiled with and gets that many bytes. Members that the library does not know are 0.
 *
 * Bytes of blocks are rounded up to the size class. Figures are exact while no other thread allocates or frees, else
 * all of nearly the same moment. Counters begin with the process and include threads that ended. docs/statistics.md
 * says which figures are exact and which are derived.
 *
 * Any thread may call every function. Each needs at most 8 KiB of stack and allocates no block. While another thread is
 * in one, a call works in a mapping of its own, and fails with ENOMEM if the system refuses that. The functions take
 * the heaps' locks one by one, and hold none while they call the program's write function.
 */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include <hakmem/hakmem.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAK_STATS_VERSION 1u

/* The blocks in one kind of memory. */
struct hak_stats_pool {
    uint64_t slabs;        /* number: slabs, spans, or mappings of huge blocks */
    uint64_t slab_bytes;   /* their memory */
    uint64_t live_blocks, live_bytes;     /* held by the program */
    uint64_t cached_blocks, cached_bytes; /* free, in threads' caches */
    uint64_t free_blocks, free_bytes;     /* free, in slabs; the bytes include slabs' tails. Huge: freed ranges kept */
};

struct hak_stats {
    uint64_t size;    /* bytes of this struct that were filled */
    uint64_t version; /* HAK_STATS_VERSION of the library */

    /* Memory in bytes: mapped = live + cached + free_in_slab + retained + metadata */
    uint64_t mapped, live, cached, free_in_slab, retained, metadata;
    uint64_t purged;         /* of mapped: given back to the system and not touched since */
    uint64_t footprint_peak; /* the most bytes of slabs, free units with memory and huge blocks at one time */
    uint64_t limit;          /* HAKMEM_MEMORY_LIMIT; 0: none */
    uint64_t superslabs, superslabs_full, superslabs_hot, superslabs_draining, superslabs_empty; /* numbers */
    uint64_t heaps_live, heaps_orphan, heaps_first_class;                       /* numbers */

    /* small: blocks up to 1 KiB; medium: the other slabs; spans: 64 KiB to 1 MiB; huge: above */
    struct hak_stats_pool small, medium, spans, huge;

    /* Counters. Exact: */
    uint64_t refills, refilled_blocks; /* batches taken out of slabs, and the blocks */
    uint64_t flushes, flushed_blocks;  /* batches given back by threads, and the blocks */
    uint64_t returned_blocks;          /* blocks back in slabs; refilled - returned are live, cached or remote_blocks */
    uint64_t malloc_misses, free_overflows; /* calls for pooled blocks that the fast path could not serve */
    uint64_t slabs_carved, slabs_released, slabs_adopted;
    uint64_t warm_hits, warm_misses, warm_prefilled;
    uint64_t remote_out, remote_in, remote_locked; /* remote frees: sent, collected, freed under the owner's lock */
    uint64_t pending_enqueued, pending_drained, pending_requeued, pending; /* slabs with remote frees; the last: now */
    uint64_t lru_entered, lru_reused, lru_purged, prewarmed;               /* SuperSlabs */
    uint64_t purged_bytes;                                                 /* of slabs' units, in all */
    uint64_t huge_allocated, huge_freed, huge_reused;                      /* blocks */
    uint64_t remote_blocks; /* free, but not collected yet by their owner after others freed them */
    /* With HAKMEM_FRONT_STATS=1, else 0: the calls that thread caches served. The shares of them are in 1/10,000. */
    uint64_t malloc_hits, free_hits;
    uint64_t malloc_coverage, free_coverage;

    /* Of the whole process, by the kernel. */
    uint64_t faults_soft, faults_hard;
    uint64_t resident;                              /* bytes */
    int64_t resident_change;                        /* since HAKMEM's first look: at start if options want statistics */
    uint64_t faults_soft_recent, faults_hard_recent; /* since the last report that was printed */
    int64_t resident_change_recent;
    uint64_t touched_pages; /* debug builds, else 0: slabs' pages with a block handed out since they were given back */

    /* Of the heap profile. */
    uint64_t heap_profile;         /* bytes of its tables; they are in metadata */
    uint64_t heap_profile_samples; /* blocks in use that are samples */

    /* Of guarded blocks (hakmem/guard.h). Those in use are in `live`, the rest of their pages in `metadata`. */
    uint64_t guard_live, guard_allocated; /* blocks in use, and in all */
    uint64_t guard_reports;               /* errors that were reported */
};

struct hak_stats_class {
    uint64_t block_size; /* bytes */
    uint64_t slabs, live_blocks, cached_blocks, free_blocks;
    uint64_t refills, refilled_blocks, flushes, flushed_blocks, returned_blocks;
    uint64_t malloc_misses, free_overflows, malloc_hits, free_hits;
    uint64_t slabs_carved, slabs_released;
    uint64_t remote_blocks; /* of free_blocks: freed by other threads, and not collected by their owner yet */
};

enum hak_stats_heap_kind {
    HAK_STATS_THREAD = 0,   /* a thread's */
    HAK_STATS_HOUSE,        /* serves threads that are past their end */
    HAK_STATS_FIRST_CLASS,  /* hak_heap_new's */
    HAK_STATS_PROFILE,      /* of the heap profile's sampled blocks */
    HAK_STATS_SHARED,       /* serves many threads, whose own heaps have no slabs then */
    HAK_STATS_LONG,         /* of long-lived blocks of hak_alloc_at */
};

/* A heap: each thread that allocated has one, which the next thread takes over when it ends. */
struct hak_stats_heap {
    uint64_t number; /* from 1, as messages have it */
    uint64_t thread; /* the kernel's id of the thread that it serves or served last */
    uint64_t kind;   /* enum hak_stats_heap_kind */
    uint64_t live;   /* 1: its thread is there; 0: the thread has ended */
    uint64_t slabs, slab_bytes, warm_slabs;
    uint64_t used_bytes;   /* blocks out of its slabs: live ones, and those in any thread's cache */
    uint64_t cached_bytes; /* blocks of any heap in its thread's cache */
    uint64_t refills, refilled_blocks, flushes, flushed_blocks, returned_blocks, malloc_misses, free_overflows;
    uint64_t malloc_hits, free_hits;
    uint64_t remote_out, remote_in, remote_locked, pending, pending_drained, pending_requeued;
    uint64_t slabs_adopted;
};

/* By free units of 31: 0; 1 to 26; 27 to 30; 31. */
enum hak_stats_tier { HAK_STATS_FULL = 0, HAK_STATS_HOT, HAK_STATS_DRAINING, HAK_STATS_EMPTY };

struct hak_stats_superslab {
    uint64_t number;  /* of its place in the window */
    uint64_t address;
    uint64_t tier;    /* enum hak_stats_tier */
    uint64_t used_units, free_units, dirty_units; /* of 64 KiB; dirty: free, with memory behind them */
    uint64_t classes; /* bit c is set if a slab of class c is in it, in the order of docs/classes.md, from 1 */
    uint64_t huge_pages; /* 1: huge pages are requested; 0: not, or refused since a part was given back */
};

/* Fills *stats up to `size` bytes. Returns the bytes filled; 0 with EINVAL if `size` does not hold the first two
 * members or stats is NULL. */
HAK_API size_t hak_stats_get(struct hak_stats *stats, size_t size) HAK_NOEXCEPT;

/* Fill rows[0..capacity), each of row_size bytes, with all size classes ever used, all heaps, or all SuperSlabs. Return
 * their number, which may exceed the capacity. 0 with EINVAL: row_size is less than 8. */
HAK_API size_t hak_stats_classes(struct hak_stats_class *rows, size_t row_size, size_t capacity) HAK_NOEXCEPT;
HAK_API size_t hak_stats_heaps(struct hak_stats_heap *rows, size_t row_size, size_t capacity) HAK_NOEXCEPT;
HAK_API size_t hak_stats_superslabs(struct hak_stats_superslab *rows, size_t row_size, size_t capacity) HAK_NOEXCEPT;

enum hak_stats_format { HAK_STATS_TEXT = 1, HAK_STATS_JSON, HAK_STATS_PROMETHEUS };

/* Receives the next piece of the text, without a NUL. Returns 0 to go on; any other value ends it. May allocate. */
typedef int (*hak_stats_write)(void *argument, const char *text, size_t length);

/* Prints everything through `write`, or to standard error if that is NULL. Returns 0, EINVAL for an unknown format,
 * ENOMEM, or what `write` returned. */
HAK_API int hak_stats_print(enum hak_stats_format format, hak_stats_write write, void *argument) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
