#include "superslab/strict.h"

#include "base/format.h"
#include "superslab/shared_pool.h"

/* Where the kernel lacks os_guard, each stretch of guard units costs up to two of the 65,530 mappings that a process
 * has by default. Then SuperSlabs from this one on have no guard units. */
#define STRICT_PROTECTED_SLOTS 8192u

/* Whether guard units were ever made by os_guard, and by os_protect. Order: relaxed; the pool's lock, or the units that
 * a thread keeps from others, order what they tell. */
static _Atomic bool strict_installed, strict_protected;

/* The first units of which the kernel refused to make guard units, until a line has named them. The line is printed
 * later, under no lock, because printing may wait for a reader. */
static char *_Atomic refused_units; /* Order: relaxed; only the address is printed */

bool strict_by_chance(uint32_t slot)
{
    uint64_t mixed = (slot + window_secret) * UINT64_C(0x9e3779b97f4a7c15);

    return slot - window_slots_begin() < STRICT_FIRST || (mixed ^ mixed >> 29) * window_secret >> 61 == 0;
}
_Static_assert(STRICT_SHARE == 1 << (64 - 61), "as many cases as the upper bits have values");

/* ---- Choosing ---- */

#define EVEN_UNITS UINT32_C(0x55555554)

/* A random number below `most`. xorshift64*: quick, not cryptographic. */
static unsigned strict_chance(unsigned most)
{
    static uint64_t chance;
    uint64_t state = chance + window_secret;

    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    chance = state;
    return (unsigned)((state * UINT64_C(0x2545f4914f6cdd1d) >> 32) * most >> 32);
}

unsigned strict_choose(uint32_t slot, uint32_t starts, unsigned units, unsigned align_units)
{
    uint32_t inner = pool_run_starts(window_slots[slot].free, units + 2) << 1, best;
    unsigned skip;

    starts &= inner & UINT32_MAX / (uint32_t)base_low_mask(align_units);
    best = starts & (units == 1 ? EVEN_UNITS : ~(inner << 1 & inner >> 1));
    starts = best ? best : starts;
    if (starts == 0)
        return 0;
    for (skip = strict_chance(base_count_bits(starts)); skip > 0; skip--)
        starts &= starts - 1;
    return base_low_bit(starts);
}

unsigned strict_bucket(uint32_t slot)
{
    uint32_t free = window_slots[slot].free;
    unsigned longest = 0;

    if (free == POOL_ALL_UNITS)
        return POOL_BUCKET_EMPTY;
    for (; free; free &= free >> 1)
        longest++;
    return longest > 2 ? longest - 2 : 0;
}

/* ---- Closing and opening ---- */

static bool strict_close(char *units, size_t size)
{
    if (HAK_LIKELY(os_guard(units, size, true))) {
        atomic_store_explicit(&strict_installed, true, memory_order_relaxed);
        return true;
    }
    if (window_slot_of(units) - window_slots_begin() >= STRICT_PROTECTED_SLOTS)
        return false;
    atomic_store_explicit(&strict_protected, true, memory_order_relaxed);
    if (os_purge(units, size) && os_protect(units, size, false))
        return true;
    atomic_store_explicit(&refused_units, units, memory_order_relaxed);
    return false;
}

static bool open_units(char *units, size_t size)
{
    return (!atomic_load_explicit(&strict_protected, memory_order_relaxed) || os_protect(units, size, true)) &&
           (!atomic_load_explicit(&strict_installed, memory_order_relaxed) || os_guard(units, size, false));
}

void strict_say_refused(void)
{
    static _Atomic bool said; /* Order: relaxed; one thread says it */
    char *units = atomic_load_explicit(&refused_units, memory_order_relaxed);

    if (HAK_UNLIKELY(units != NULL) && !atomic_load_explicit(&said, memory_order_relaxed) &&
        !atomic_exchange_explicit(&said, true, memory_order_relaxed))
        base_message("the kernel refused to make memory at %p inaccessible: from here on some slabs have none beside "
                     "them; raise vm.max_map_count, or let the sandbox allow mprotect (docs/hardening.md)",
                     (void *)units);
}

/* Closes the units, a call for each stretch. Returns those that are closed now. */
static uint32_t close_units(uint32_t slot, uint32_t units)
{
    uint32_t closed = 0;

    while (units) {
        unsigned low = base_low_bit(units), count = base_low_bit(~((uint64_t)units >> low));
        uint32_t stretch = (uint32_t)base_low_mask(count) << low;
        units &= ~stretch;
        if (strict_close(window_slot_address(slot) + low * UNIT_SIZE, count * UNIT_SIZE))
            closed |= stretch;
    }
    return closed;
}

bool strict_open(uint32_t number, unsigned start, unsigned units, unsigned *dirty)
{
    struct slot *slot = &window_slots[number];
    struct superslab *superslab = (struct superslab *)window_slot_address(number);
    uint32_t run = (uint32_t)base_low_mask(units) << start;
    /* The header of one that begins anew is gone. Then nobody knows which units are closed. */
    bool begins = slot->touched == 0;
    uint32_t closed = begins ? POOL_ALL_UNITS : superslab->guards,
             wanted = begins ? POOL_ALL_UNITS & ~run : (run << 1 | run >> 1) & ~run & ~closed;

    *dirty = 0;
    if (closed & run && !open_units(window_slot_address(number) + start * UNIT_SIZE, units * UNIT_SIZE)) {
        /* At the limit of mappings. A whole SuperSlab needs no more than it has. */
        if (!open_units((char *)superslab + UNIT_SIZE, SUPERSLAB_SIZE - UNIT_SIZE))
            return false;
        atomic_store_explicit(&refused_units, (char *)superslab, memory_order_relaxed);
        superslab->guards = 0;
        return true;
    }
    wanted = close_units(number, wanted);
    *dirty = base_count_bits(slot->touched & wanted);
    slot->touched &= ~wanted;
    for (uint32_t rest = begins ? 0 : wanted; rest; rest &= rest - 1) {
        unsigned unit = base_low_bit(rest);
        /* From here on no address in the unit counts as one of a slab that lay there. */
        superslab->first_unit[unit] = (uint8_t)unit;
        atomic_store_explicit(&superslab->slabs[unit].state, SLAB_FREE, memory_order_relaxed);
        if (HAK_DEBUG)
            atomic_store_explicit(&superslab->touched[unit], 0, memory_order_relaxed);
    }
    superslab->guards = begins ? wanted : (closed & ~run) | wanted;
    return true;
}

bool strict_purge(char *units, size_t size, bool *closed)
{
    *closed = strict_close(units, size);
    return *closed || os_purge(units, size);
}
