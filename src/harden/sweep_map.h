/* What the files of the sweep share: which blocks wait, and which of them a scan found no pointer to. */
#ifndef HAK_HARDEN_SWEEP_MAP_H
#define HAK_HARDEN_SWEEP_MAP_H

#include "harden/sweep.h"
#include "os/reader.h"
#include "os/stop.h"
#include "superslab/superslab.h"

/* One bit for each block of a slab. */
typedef uint64_t sweep_bits[SLAB_MAP_WORDS];

/* For a SuperSlab's blocks, by their slab's first unit. Never given back. Order of `firsts` and `closed`: seq_cst;
 * `closed` before `waiting`. */
struct sweep_slot {
    _Atomic uint32_t firsts; /* first units of slabs with waiting blocks */
    _Atomic uint32_t closed; /* first units of waiting spans that are inaccessible */
    uint32_t units;          /* all units of slabs with candidates; for the sweeping thread */
    _Atomic uint64_t waiting[SUPERSLAB_UNITS][SLAB_MAP_WORDS]; /* Order: seq_cst, then `firsts`; acquire in
                                                                  sweep_choose: the block is erased */
    /* For the sweeping thread alone. candidate: blocks that waited when the sweep began and to which it found no
     * pointer. passed: those to which the sweep before, a deaf one, found none. */
    sweep_bits candidate[SUPERSLAB_UNITS], passed[SUPERSLAB_UNITS];
};

/* A table of two levels, by the number of the window's slot. Order: release in sweep_make_slot, acquire: the zeros. */
#define SWEEP_LEAF_SHIFT 10
#define SWEEP_LEAVES 4096u
struct sweep_leaf {
    struct sweep_slot *_Atomic slots[1u << SWEEP_LEAF_SHIFT];
};
HAK_DATA struct sweep_leaf *_Atomic sweep_leaves[SWEEP_LEAVES]; /* Order: release, acquire, as of `slots` */

/* NULL: no block of the slot has waited yet. */
HAK_INLINE struct sweep_slot *sweep_find_slot(uint32_t slot)
{
    struct sweep_leaf *leaf =
        atomic_load_explicit(&sweep_leaves[(slot >> SWEEP_LEAF_SHIFT) & (SWEEP_LEAVES - 1)], memory_order_acquire);

    return leaf ? atomic_load_explicit(&leaf->slots[slot & ((1u << SWEEP_LEAF_SHIFT) - 1)], memory_order_acquire)
                : NULL;
}

/* How much so many bytes without memory count in sweep.waiting. */
HAK_INLINE size_t sweep_cost_of_addresses(size_t bytes) { return bytes / 16; }

/* What a scan needs to find the block at an address, for a unit of the window. */
struct sweep_unit {
    uintptr_t number;     /* the address / UNIT_SIZE; 0: none */
    uintptr_t start;      /* of the slab */
    uint64_t *candidate;  /* the slab's; NULL: it has none */
    uint64_t reciprocal;  /* of its class */
};
#define SWEEP_UNITS 1024u

/* The sweeping thread's memory: metadata, which is no root. */
struct sweep_scratch {
    _Alignas(16) char stop[OS_STOP_BYTES];
    uint64_t entries[OS_READER_ENTRIES];
    _Alignas(16) char maps[16 * HAK_KIB];
    _Alignas(16) uint64_t copy[8192];
    struct sweep_unit units[SWEEP_UNITS]; /* by number modulo SWEEP_UNITS, for one scan */
};

/* ---- sweep_scan.c ---- */

struct sweep_scan {
    struct sweep_scratch *scratch;
    bool still;         /* no other thread of the program runs: HAKMEM's memory is read in place */
    bool alone;         /* no other thread at all runs: other memory is, too */
    uintptr_t boundary; /* the stack below is the sweep's own */
};

/* Clears the bits of candidates that a root points to. *bytes: how many were read. False: the system does not list the
 * process's memory. Takes no lock (V13), and is called under none. */
HAK_HIDDEN bool sweep_scan_roots(const struct sweep_scan *scan, size_t *bytes);

/* ---- sweep_large.c: huge blocks that wait ---- */

/* So many wait that a sweep is due. */
HAK_HIDDEN bool sweep_large_is_full(void);
/* How much waiting huge blocks count in sweep.waiting. Any thread that may take huge_lock. */
HAK_HIDDEN size_t sweep_large_waiting(void);
/* Makes the waiting huge blocks the candidates of a sweep. */
HAK_HIDDEN void sweep_large_begin(void);
/* Every candidate is in [*low, *low + *span). */
HAK_HIDDEN void sweep_large_bounds(uintptr_t *low, uintptr_t *span);
/* A root holds the address, which is between the bounds. */
HAK_HIDDEN void sweep_large_mark(uintptr_t address);
/* Gives back the candidates that no root pointed to, as sweep_leave does; with `all` every one. Returns how many. */
HAK_HIDDEN size_t sweep_large_end(bool deaf, bool all);

#endif
