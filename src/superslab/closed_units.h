/*
 * Spans that stay closed after they were freed, until their units are used again. Only where SuperSlabs have guard
 * units, and while freed memory is zeroed: a closed unit reads as zero once it is open.
 *
 * V21: slab.closed tells how the units of an empty slab were closed. While they belong to no slab, superslab.protected
 *     and superslab.guarded have their bits. They are opened as they are taken. The bits are lost with the header's
 *     memory; the SuperSlab is then EMPTY, and guard_units_lay opens all of it. A guarded unit has no memory.
 * V22: superslab.fences has a bit for each guard unit that has mappings of its own. Closing and opening a span between
 *     two such units splits and joins no mapping. Only the first CLOSED_SLOTS SuperSlabs have any, and only they keep
 *     spans closed by os_protect: the number of mappings is bounded. In the others a span that leaves its quarantine is
 *     closed by os_guard instead, where the kernel can.
 */
#ifndef HAK_SUPERSLAB_CLOSED_UNITS_H
#define HAK_SUPERSLAB_CLOSED_UNITS_H

#include "superslab/guard_units.h"

/* Each of these SuperSlabs takes at most 32 mappings: all take a quarter of the 65,530 that a process may have. */
#define CLOSED_SLOTS 512u

/* How a slab's units are closed: bits of slab.closed. */
enum { CLOSED_BY_PROTECT = 1, CLOSED_BY_GUARD = 2 };

/* Whether a span that was closed in that way, and holds zeros, may stay closed when it goes back to its heap. The
 * caller holds the span. */
HAK_HIDDEN bool closed_units_may_stay(const struct slab *slab, unsigned closed);

/* Opens the slab's units. False: the kernel refused, and they stay as they are. The caller holds the slab. Any lock may
 * be held. */
HAK_HIDDEN bool closed_units_open(struct slab *slab);

/* Call before a span may be closed by os_protect. If spans are often closed at this place, gives the guard units
 * beside it mappings of their own. Returns whether they have such mappings. The caller holds the span. Any lock may
 * be held. */
HAK_HIDDEN bool closed_units_fence(const struct slab *slab);

/* Notes the closed units of a slab that goes back to the pool; under pool.lock. Returns whether all of them have no
 * memory. */
HAK_HIDDEN bool closed_units_enter(const struct slab *slab);

/* Returns which of the slot's units in `mask` are closed, and sets *closed to the ways. Under pool.lock. */
HAK_HIDDEN uint32_t closed_units_leave(struct superslab *superslab, uint32_t mask, uint8_t *closed);

/* Forgets all closed units and fences: the units are open now. Under pool.lock. */
HAK_HIDDEN void closed_units_forget(struct superslab *superslab);

/* Whether any unit of any SuperSlab was ever closed by os_guard, and by os_protect. Under pool.lock. */
HAK_HIDDEN bool closed_units_any(unsigned closed);

#endif
