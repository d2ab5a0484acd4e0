/*
 * Strict SuperSlabs of libhakmem-secure: their units that belong to no slab are guard units, which nobody can access,
 * and one lies on both sides of each slab. So a write that runs on from a block faults before it comes to another slab
 * or to the allocator's own records, and so does one that goes far astray. Their slabs lie at random places.
 *
 * The first STRICT_FIRST SuperSlabs are strict, and of the others one in STRICT_SHARE, by a secret. They have no huge
 * pages, which the others keep.
 *
 * V14: superslab.guards has a bit for each guard unit of a strict SuperSlab in use. A guard unit belongs to no slab and
 *     has no memory, so it is free (P1) and not touched (P2), or is being purged.
 * V15: the units before and behind a slab of a strict SuperSlab belong to no slab. They are guard units unless the
 *     kernel refused, or it cost too many mappings. So no slab begins at unit 1 or ends with unit 31.
 * V16: a unit of a strict SuperSlab in use without memory is a guard unit, with the same exceptions.
 * V17: a strict SuperSlab is in the bucket of the longest run that it has room for, or EMPTY.
 *
 * Except where they say otherwise, the functions are called under pool.lock. `units` is a run's length, `align_units`
 * the number of which its first unit is a multiple.
 */
#ifndef HAK_SUPERSLAB_STRICT_H
#define HAK_SUPERSLAB_STRICT_H

#include "superslab/superslab.h"
#include "superslab/window.h"

#define STRICT_FIRST 4u
#define STRICT_SHARE 8u

/* Whether the slot's SuperSlab is strict. Any thread. */
HAK_HIDDEN bool strict_by_chance(uint32_t slot);
HAK_INLINE bool strict_is(uint32_t slot) { return HAK_SECURE && strict_by_chance(slot); }

/* Whether each SuperSlab has room for such a run while it is EMPTY. Any thread. */
HAK_INLINE bool strict_fits(unsigned units, unsigned align_units)
{
    return !HAK_SECURE || align_units < SPAN_MAX_UNITS || units <= SPAN_MAX_UNITS / 2;
}

/* One of the units `starts` of a strict SuperSlab at which such a run may lie (V15), by chance. Runs of one unit are an
 * even number of units apart, so that 15 have room; longer ones lie at an end of a stretch of free units, so that what
 * is left stays long. 0: there is none. */
HAK_HIDDEN unsigned strict_choose(uint32_t slot, uint32_t starts, unsigned units, unsigned align_units);

/* The slot's bucket (V17). */
HAK_HIDDEN unsigned strict_bucket(uint32_t slot);

/* Opens the units of a run that is about to be taken, and makes guard units of others (V15, V16). *dirty: how many of
 * these had memory. False: the system refused to open the run; nothing changed. */
HAK_HIDDEN bool strict_open(uint32_t slot, unsigned start, unsigned units, unsigned *dirty);

/* Purges free units of a strict SuperSlab, and makes guard units of them. *closed: the latter succeeded. False: they
 * may still have memory. Any thread that keeps others from taking the units. */
HAK_HIDDEN bool strict_purge(char *units, size_t size, bool *closed);

/* Prints one line in a process if the kernel refused to make a guard unit. Call now and then, holding no lock. */
HAK_HIDDEN void strict_say_refused(void);

#endif
