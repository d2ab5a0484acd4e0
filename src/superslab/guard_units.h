/*
 * Guard units: units of a SuperSlab that nobody can access, in libhakmem-secure. They lie between slabs, and on both
 * sides of each SuperSlab's header. So a write that runs on from a block faults before it comes to another slab or to
 * the allocator's own records. Slabs are taken at random places among the rest.
 *
 * V14: while units of a SuperSlab are in use, superslab.guards has a bit for each guard unit, and superslab.kind tells
 *     what runs it has (V16). An EMPTY SuperSlab keeps its guard units, but loses `guards` and `kind` with its header.
 * V15: a guard unit belongs to no slab, so its `free` bit is set (P1). It has no memory, and no run contains it.
 * V16: the guard units of a SuperSlab leave stretches of one length, its kind. A stretch holds one run, at its end, so
 *     that a guard unit lies directly behind the run. Runs that differ little in length share a kind, so that memory of
 *     freed ones serves the others. Units 1 and 31 are guard units. Runs at a multiple of several units share
 *     SuperSlabs of their own (GUARD_KIND_ALIGNED), with four guard units at places that depend on the SuperSlab's
 *     number and a secret.
 * V17: a SuperSlab in use with a free stretch is in the bucket of its kind. One with stretches of one unit is in bucket
 *     POOL_BUCKET_SLABS plus the number of free ones, the fullest first. Others are in none, unless they are EMPTY.
 *
 * V19: superslab.closed has a bit for each guard unit that nobody can access, superslab.installed for each of those
 *     that os_guard closed. `closed` lacks those that the kernel refused to close or that cost too many mappings. No
 *     bit changes while units of the SuperSlab are in use.
 *
 * Except where they say otherwise, the functions are called under pool.lock. `units` is a run's length, `align_units`
 * the number of which its first unit is a multiple.
 */
#ifndef HAK_SUPERSLAB_GUARD_UNITS_H
#define HAK_SUPERSLAB_GUARD_UNITS_H

#include "superslab/shared_pool.h"

#define GUARD_KIND_ALIGNED (SPAN_MAX_UNITS + 1)

/* Whether every guard unit so far is closed. Any thread. */
HAK_HIDDEN bool guard_units_are_whole(void);

/* Whether the byte directly behind the slab belongs to a unit that nobody can access (V19). The caller holds the slab,
 * or a block of it. */
HAK_INLINE bool guard_units_lie_behind(const struct slab *slab)
{
    unsigned end = slab_first_unit(slab) + slab->units;

    return end < SUPERSLAB_UNITS && (superslab_of(slab)->closed >> end) & 1;
}

/* Whether a SuperSlab has room for such a run. Any thread. */
HAK_INLINE bool guard_units_fit(unsigned units, unsigned align_units)
{
    return !HAK_SECURE || align_units < SPAN_MAX_UNITS || units <= SPAN_MAX_UNITS / 2;
}

/* A bit for each unit of a slot at which such a run may start. The slot is EMPTY, or of the run's kind. */
HAK_HIDDEN uint32_t guard_units_starts(uint32_t slot, unsigned units, unsigned align_units);

/* Whether the slot has the guard units that such a run needs, so that guard_units_lay has nothing to do. */
HAK_HIDDEN bool guard_units_are_laid(uint32_t slot, unsigned units, unsigned align_units);

/* A bit for each bucket of SuperSlabs that are EMPTY or may have such runs; and the slot's bucket (V17). */
HAK_HIDDEN uint64_t guard_units_buckets(unsigned units, unsigned align_units);
HAK_HIDDEN unsigned guard_units_bucket(uint32_t slot);

/* One of the bits of the mask, by chance; 0 if there is none. Bit 0 is not set. */
HAK_HIDDEN unsigned guard_units_choose(uint32_t mask);

/* Closes the guard units of an EMPTY SuperSlab that is mapped and is about to get such a run. *dirty: how many of them
 * had memory, which is gone. False: the system refused to open earlier ones, so the SuperSlab cannot be used now. */
HAK_HIDDEN bool guard_units_lay(uint32_t slot, unsigned units, unsigned align_units, unsigned *dirty);

/* Prints one line in a process if the kernel refused to close a unit. Call now and then, holding no lock. */
HAK_HIDDEN void guard_units_say_refused(void);

#endif
