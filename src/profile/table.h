/*
 * What the profile knows: sites, which are stacks that samples were taken at, and records, which are samples in use. Two hash
 * tables in memory of their own from the system, under profile_lock.
 *
 * R1: a site's in-use sums are those of the records that point to it; without records they are 0, exactly.
 * R2: a record is inserted before its block is given to the program, and removed before the block can be given to anybody else: there
 *     is one record an address at most.
 * R3: a site is never removed or moved, and its frames never change: they may be read without the lock, also by
 *     another process.
 */
#ifndef HAK_PROFILE_TABLE_H
#define HAK_PROFILE_TABLE_H

#include "os/lock.h"
#include "profile/draw.h"

#define STACK_MOST 64u      /* frames of a stack */
#define LIFETIME_BUCKETS 32u /* bucket 0: below 1 ms; bucket b: from 2^(b - 1) to 2^b ms; the last: all above */

struct heap;

/* Sums of samples' weights, and of weight times bytes, in parts of WEIGHT_ONE. */
struct site_sums {
    uint64_t objects, bytes;
};

struct site {
    struct site *next; /* the next made */
    uint64_t hash;
    uint32_t frame_count;
    struct site_sums allocated, in_use;
    struct site_sums lifetimes[LIFETIME_BUCKETS]; /* of what was freed; for `bytes` read: milliseconds */
    uintptr_t frames[];                           /* return addresses, the innermost first */
};

/* All sites, in the order in which they were made. Under profile_lock. */
struct site_list {
    struct site *first, *last;
    size_t count;
};

struct record {
    uintptr_t address; /* 0: an unused place */
    struct site *site;
    struct heap *heap; /* the first-class heap it belongs to, or NULL */
    size_t size;       /* of the block */
    uint64_t weight;
    uint64_t born_ms;
    uint32_t generation; /* of the profile that drew it */
    uint8_t class;       /* of the entry of a thread cache it was drawn as, or CLASS_NONE */
    uint8_t shift;       /* that it was drawn with as such an entry */
    bool foreign;        /* not in the profile's own heap */
};

HAK_DATA struct lock profile_lock;
HAK_DATA struct site_list profile_sites;

/* A mapping from the system, of `bytes` bytes; what is stored in it follows. */
struct table_map {
    struct table_map *next;
    size_t bytes;
    _Alignas(HAK_LINE_PAIR) char memory[];
};

/* R4: `bytes` is the sum of the maps'. Changed under profile_lock; the sum may be read without it. */
struct table_memory {
    struct table_map *maps;
    _Atomic size_t bytes;
};
HAK_DATA struct table_memory table_memory;

/* Bytes that the tables have mapped. */
HAK_HIDDEN size_t table_bytes(void);

/* The site of a stack, made if it is new; NULL when memory is out. Takes the lock. */
HAK_HIDDEN struct site *table_site(const uintptr_t *frames, unsigned count);

/* Adds the record, and to its site's sums. False when memory is out. Takes the lock. */
HAK_HIDDEN bool table_insert(const struct record *record);

/* Removes the record of the address, and from its site's sums at `now_ms`; false if there is none. Takes the lock. */
HAK_HIDDEN bool table_remove(const void *address, uint64_t now_ms, struct record *removed);

/* Takes a record out, and puts it back, without a trace in the sums: its block is the same. */
HAK_HIDDEN bool table_take_out(const void *address, struct record *taken);
HAK_HIDDEN void table_put_back(const struct record *record);

/* The block of a record that was taken out is freed. Takes the lock. */
HAK_HIDDEN void table_end(const struct record *record, uint64_t now_ms);

/* Removes the records of a first-class heap's blocks. Takes the lock. */
HAK_HIDDEN void table_remove_heap(struct heap *heap, uint64_t now_ms);

/* Records that are in no heap of the profile's own: while there is none, other frees need not ask. */
HAK_HIDDEN size_t table_foreign(void);
HAK_HIDDEN size_t table_records(void);

/* The first site, linked by `next`, and their number, as of now. Takes the lock. */
HAK_HIDDEN struct site *table_sites(size_t *count);

#endif
