#include "superslab/closed_units.h"

#include "os/os.h"

/* After this many closings of a span at one place, the guard units beside it get fences, at one system call each. */
#define FENCE_CLOSINGS 4u

/* The CLOSED_BY_ values that were used at least once. Order: relaxed; the slab's lock brings them with `closed`. */
static _Atomic unsigned ways_used;

static void note_way(unsigned closed)
{
    if (HAK_UNLIKELY(closed & ~atomic_load_explicit(&ways_used, memory_order_relaxed)))
        atomic_fetch_or_explicit(&ways_used, closed, memory_order_relaxed);
}

bool closed_units_any(unsigned closed)
{
    return (atomic_load_explicit(&ways_used, memory_order_relaxed) & closed) != 0;
}

static bool is_among_first(const struct slab *slab)
{
    return window_slot_of(slab) - window_slots_begin() < CLOSED_SLOTS;
}

bool closed_units_may_stay(const struct slab *slab, unsigned closed)
{
    return HAK_SECURE && (closed == CLOSED_BY_GUARD || is_among_first(slab));
}

bool closed_units_open(struct slab *slab)
{
    size_t bytes = (size_t)slab->units * UNIT_SIZE;

    if (HAK_LIKELY(slab->closed == 0))
        return true;
    if ((slab->closed & CLOSED_BY_GUARD) && !os_guard(slab->start, bytes, false))
        return false;
    if ((slab->closed & CLOSED_BY_PROTECT) && !os_protect(slab->start, bytes, true))
        return false;
    slab->closed = 0;
    return true;
}

bool closed_units_fence(const struct slab *slab)
{
    struct superslab *superslab = superslab_of(slab);
    unsigned first = slab_first_unit(slab);
    uint32_t beside = UINT32_C(1) << (first - 1) | UINT32_C(1) << (first + slab->units - 1) << 1;

    beside &= superslab->installed;
    if (HAK_LIKELY((beside & ~__atomic_load_n(&superslab->fences, __ATOMIC_RELAXED)) == 0))
        return beside != 0;
    if (!is_among_first(slab) || ++superslab->closings[first] < FENCE_CLOSINGS)
        return false;
    superslab->closings[first] = 0;
    beside &= ~__atomic_load_n(&superslab->fences, __ATOMIC_RELAXED);
    for (; beside; beside &= beside - 1) {
        unsigned unit = base_low_bit(beside);
        note_way(CLOSED_BY_PROTECT); /* the unit is not writable until os_protect makes it so */
        if (!os_fence((char *)superslab + unit * UNIT_SIZE, UNIT_SIZE))
            return false;
        __atomic_fetch_or(&superslab->fences, UINT32_C(1) << unit, __ATOMIC_RELAXED);
    }
    return true;
}

bool closed_units_enter(const struct slab *slab)
{
    struct superslab *superslab = superslab_of(slab);
    uint32_t mask = (uint32_t)base_low_mask(slab->units) << slab_first_unit(slab);

    if (HAK_LIKELY(slab->closed == 0))
        return false;
    note_way(slab->closed);
    superslab->protected |= slab->closed & CLOSED_BY_PROTECT ? mask : 0;
    superslab->guarded |= slab->closed & CLOSED_BY_GUARD ? mask : 0;
    return slab->closed == CLOSED_BY_GUARD;
}

uint32_t closed_units_leave(struct superslab *superslab, uint32_t mask, uint8_t *closed)
{
    uint32_t protected = superslab->protected & mask, guarded = superslab->guarded & mask;

    *closed = (uint8_t)((protected ? CLOSED_BY_PROTECT : 0) | (guarded ? CLOSED_BY_GUARD : 0));
    superslab->protected &= ~mask;
    superslab->guarded &= ~mask;
    return protected | guarded;
}

void closed_units_forget(struct superslab *superslab)
{
    superslab->protected = 0;
    superslab->guarded = 0;
    superslab->fences = 0;
    __builtin_memset(superslab->closings, 0, sizeof superslab->closings);
}
