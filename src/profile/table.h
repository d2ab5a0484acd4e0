/*
 * The heap profile's two hash tables. A site is a stack with labels at which samples were taken. A record is a sample
 * in use. The tables lie in memory of their own from the system. profile_lock guards them.
 *
 * R1: a site's in-use sums are the sums of the records that point to it. Without records they are exactly 0. The same
 *     holds for each of the site's sizes and the records of blocks of that size.
 * R2: a record is inserted before its block is given to the program, and removed before the block can be given out
 *     again. So there is at most one record for an address.
 * R3: a site is never removed or moved, and its frames never change. Any process may read them without the lock. The
 *     same holds for a size of a site.
 * R6: a site that has changed since the peak (when the program had most in use) has the peak's epoch in peak_epoch and
 *     its sums of that moment in `peak`. Any other site still has the same sums in use. So a new peak costs one step,
 *     however many sites there are. The same holds for a size of a site.
 * R8: a site has at most SIZES_MOST sizes. A block of another size then counts as of SIZE_ANY, the last of them. So the
 *     sums of a site's sizes add up to those of the site, and a block's size is the same when it is freed.
 */
#ifndef HAK_PROFILE_TABLE_H
#define HAK_PROFILE_TABLE_H

#include "os/lock.h"
#include "profile/draw.h"
#include "profile/labels.h"

#define NATIVE_MOST 64u     /* return addresses of a stack */
#define STACK_MOST 128u     /* frames of a site: return addresses, and Python functions between them (python.h) */
#define LABELLED_SITES_MOST 16384u
#define LIFETIME_BUCKETS 32u /* bucket 0: below 1 ms; bucket b: from 2^(b - 1) to 2^b ms; the last: all above */
#define OWN_BUCKETS 16u      /* bucket 0: none; bucket b: from 2^(b - 1) to 2^b; the last: all above, and unknown */
#define SIZES_MOST 32u       /* of a site */
#define SIZE_ANY 0u          /* stands for all sizes that a site has no place for (R8) */

struct heap;

/* The sum of samples' weights, and the sum of weight times bytes, in units of 1 / WEIGHT_ONE. */
struct site_sums {
    uint64_t objects, bytes;
};

/* The sums of one size's blocks at a site. */
struct site_size {
    struct site_size *next;  /* the one made after this one, of any site */
    struct site_size *other; /* of the same site */
    struct site *site;
    uint64_t size; /* table_size_of(a block's size), or SIZE_ANY */
    struct site_sums allocated, in_use;
    struct site_sums peak; /* R6 */
    uint64_t peak_epoch;
};

struct site {
    struct site *next; /* the one made after this one */
    uint64_t hash;
    const struct label_set *labels; /* or NULL */
    uint32_t frame_count;
    uint32_t size_count;
    struct site_size *sizes; /* the newest first */
    struct site_sums allocated, in_use;
    struct site_sums peak; /* R6 */
    uint64_t peak_epoch;
    struct site_sums lifetimes[LIFETIME_BUCKETS]; /* of freed blocks; `bytes` holds milliseconds here */
    /* Blocks freed by the thread that allocated them, by the calls for blocks that it made in between. */
    uint64_t own_freed[OWN_BUCKETS];
    uintptr_t frames[];                           /* return addresses and Python functions, the innermost first */
};

/* All sites, in the order in which they were made. Under profile_lock. */
struct site_list {
    struct site *first, *last;
    size_t count, labelled; /* labelled: sites with labels other than label_sets.lost */
};

/* The sizes of all sites, in the order in which they were made. Under profile_lock. */
struct site_size_list {
    struct site_size *first, *last;
    size_t count;
};

/* The peak: when the program had most in use. The moment and `bytes` are exact, the sites' parts are of samples.
 * Changed under profile_lock. */
struct table_peak {
    uint64_t live;    /* bytes in use now by samples, in units of 1 / WEIGHT_ONE */
    uint64_t sampled; /* `live` at the peak */
    uint64_t bytes;   /* in use at the peak */
    uint64_t least;   /* of them, bytes that certainly were allocated while the profile was on */
    uint64_t epoch;   /* how often the peak has risen */
    uint64_t at_ms;   /* when it last did, by profile_now_ms */
    uint64_t unseen;  /* bytes that were in use when the profile began */
    bool by_samples;  /* each block is a sample: `live` is exact, and no table_note_live comes */
};

/* A sum of weights as a number of blocks or bytes. */
HAK_INLINE uint64_t weight_round(uint64_t sum) { return (sum + WEIGHT_ONE / 2) / WEIGHT_ONE; }

/* A thread at one moment: its number, or 0 (unknown), and how many calls for blocks it has made (struct draw). */
struct caller {
    uint32_t calls;
    uint16_t thread;
};

struct record {
    uintptr_t address; /* 0: an unused place */
    struct site *site;
    struct heap *heap; /* the first-class heap it belongs to, or NULL */
    size_t size;       /* of the block */
    uint64_t weight;
    uint64_t born_ms;
    uint8_t class; /* whose countdown drew the sample, or CLASS_NONE */
    bool foreign;  /* not in the profile's own heap */
    uint16_t thread; /* the caller that allocated it, with `calls` */
    uint32_t slack;  /* bytes of the block beyond those that the call wanted; 0 if unknown */
    uint32_t beside; /* for a block of the profile's own heap: front/neighbour.h */
    uint32_t calls;
};

/* Where the records are, for readers outside: places with address 0 are unused. Changed under profile_lock. */
struct record_table {
    struct record *places;
    size_t capacity;
};
HAK_DATA struct record_table profile_records;

HAK_DATA struct lock profile_lock;
HAK_DATA struct site_list profile_sites;
HAK_DATA struct site_size_list profile_sizes;
HAK_DATA struct table_peak table_peak;

/* The profile begins while `unseen` bytes are in use. every: each block is a sample. */
HAK_HIDDEN void table_begin_peak(uint64_t unseen, bool every);

/* `bytes` bytes are in use, exactly: the peak, if there never were more. */
HAK_HIDDEN void table_note_live(uint64_t bytes, uint64_t now_ms);
HAK_HIDDEN uint64_t table_peak_bytes(void);

/* The sums in use at the peak, of a site or of one of its sizes (R6). Under profile_lock. */
#define table_at_peak(whose) ((whose)->peak_epoch == table_peak.epoch ? (whose)->peak : (whose)->in_use)

/* The size that a block counts as: its own, or beyond the size classes the next quarter of a power of two below. */
HAK_INLINE uint64_t table_size_of(size_t size)
{
    unsigned shift = size > POOLED_MAX ? base_high_bit(size) - 2 : 0;

    return (uint64_t)(size >> shift) << shift;
}

/* A mapping from the system of `bytes` bytes, this header included. */
struct table_map {
    struct table_map *next;
    size_t bytes;
    _Alignas(HAK_LINE_PAIR) char memory[];
};

/* R4: `bytes` is the sum over `maps`. Both change under profile_lock; `bytes` may be read without it. */
struct table_memory {
    struct table_map *maps;
    _Atomic size_t bytes; /* Order: relaxed; a statistic */
};
HAK_DATA struct table_memory table_memory;

/* Bytes that the tables have mapped. */
HAK_HIDDEN size_t table_bytes(void);

/* Finds or makes the site of a stack with the labels (or NULL). Beyond LABELLED_SITES_MOST a new site's labels are
 * label_sets.lost. NULL: memory is out. Takes the lock. */
HAK_HIDDEN struct site *table_site(const uintptr_t *frames, unsigned count, const struct label_set *labels);

/* Inserts the record and adds its weight to its site's sums. False: memory is out. Takes the lock. */
HAK_HIDDEN bool table_insert(const struct record *record);

/* Removes the address's record and takes it off its site's sums at `now_ms`; `by` frees the block. False: there is
 * none. Takes the lock. */
HAK_HIDDEN bool table_remove(const void *address, uint64_t now_ms, struct caller by, struct record *removed);

/* Take a record out and put it back, for a block that stays in use. The sums do not change. Both take the lock. */
HAK_HIDDEN bool table_take_out(const void *address, struct record *taken);
HAK_HIDDEN void table_put_back(const struct record *record);

/* Accounts for the free of a block whose record was taken out. Takes the lock. */
HAK_HIDDEN void table_end(const struct record *record, uint64_t now_ms, struct caller by);

/* Removes the records of a first-class heap's blocks. Takes the lock. */
HAK_HIDDEN void table_remove_heap(struct heap *heap, uint64_t now_ms);

/* The number of records with `foreign` set. While it is 0, frees of other heaps' blocks look up no record. */
HAK_DATA _Atomic size_t table_elsewhere; /* Order: relaxed; the free of a block comes after its record was made */
HAK_INLINE size_t table_foreign(void) { return atomic_load_explicit(&table_elsewhere, memory_order_relaxed); }
HAK_HIDDEN size_t table_records(void);

/* Zeroed memory that is never freed, at most 128 KiB, aligned to 8; NULL: memory is out. Under profile_lock. */
HAK_HIDDEN void *table_store(size_t size);

#endif
