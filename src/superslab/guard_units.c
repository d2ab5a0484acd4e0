#include "superslab/guard_units.h"

#include "base/format.h"
#include "superslab/closed_units.h"

#define GUARDS_BESIDE_HEADERS (UINT32_C(1) << 1 | UINT32_C(1) << (SUPERSLAB_UNITS - 1))
#define ROOM (SUPERSLAB_UNITS - 3) /* units between these */

/* In a SuperSlab for aligned runs, the two guard units that are not beside headers lie at a random one of
 * GUARD_..._PLACES units from GUARD_LOW and from GUARD_HIGH on. Runs of 16 units fit between them at a multiple of
 * 8. */
#define GUARD_LOW 3u
#define GUARD_LOW_PLACES 5u
#define GUARD_HIGH 24u
#define GUARD_HIGH_PLACES 6u
_Static_assert(GUARD_LOW + GUARD_LOW_PLACES <= SPAN_MAX_UNITS / 2 && GUARD_HIGH >= SPAN_MAX_UNITS * 3 / 2,
               "16 units are free between them, from the 8th on");

/* Where the kernel lacks os_guard, each closed unit costs up to two of the 65,530 mappings that a process has by
 * default. Then the first GUARD_SLOTS_WHOLE SuperSlabs get all their guard units, and those up to GUARD_SLOTS_EDGES
 * only the guard units beside headers. */
#define GUARD_SLOTS_WHOLE 512u
#define GUARD_SLOTS_EDGES 8192u

/* The kind for runs of so many units (V16): a SuperSlab has 15, 10, 7, 6, 5, 4, 3, 2 or 1 stretches so long. Runs
 * of up to 6 units fill their stretch, so that a guard unit lies directly before them, too. */
static unsigned kind_of(unsigned units, unsigned align_units)
{
    static const uint8_t kinds[] = { 1, 2, 3, 4, 5, 6, 9, 14, SPAN_MAX_UNITS };
    unsigned i = 0;

    if (align_units > 1)
        return GUARD_KIND_ALIGNED;
    while (kinds[i] < units)
        i++;
    return kinds[i];
}

/* The guard units of a slot of this kind. */
static uint32_t guards_of(uint32_t slot, unsigned kind)
{
    uint64_t mixed = (slot + window_secret) * UINT64_C(0x9e3779b97f4a7c15);
    unsigned count, at;
    uint32_t rest = 0;

    mixed = (mixed ^ mixed >> 29) * window_secret >> 32;
    if (kind == GUARD_KIND_ALIGNED)
        return GUARDS_BESIDE_HEADERS | UINT32_C(1) << (GUARD_LOW + mixed % GUARD_LOW_PLACES) |
               UINT32_C(1) << (GUARD_HIGH + (mixed >> 16) % GUARD_HIGH_PLACES);
    count = (ROOM + 1) / (kind + 1);
    at = 2 + (unsigned)(mixed % (ROOM + 2 - count * (kind + 1)));
    for (; count > 0; count--, at += kind + 1)
        rest |= (uint32_t)base_low_mask(kind) << at;
    return POOL_ALL_UNITS & ~rest;
}

static struct superslab *superslab_at(uint32_t slot) { return (struct superslab *)window_slot_address(slot); }

/* The first units of the slot's free stretches. */
static uint32_t free_stretches(uint32_t slot, uint32_t guards, unsigned kind)
{
    return pool_run_starts(window_slots[slot].free & ~guards, kind) & guards << 1;
}

uint32_t guard_units_starts(uint32_t slot, unsigned units, unsigned align_units)
{
    unsigned kind = kind_of(units, align_units);
    uint32_t guards = guards_of(slot, kind);

    if (kind == GUARD_KIND_ALIGNED)
        return pool_run_starts(window_slots[slot].free & ~guards, units) &
               UINT32_MAX / (uint32_t)base_low_mask(align_units);
    return free_stretches(slot, guards, kind) << (kind - units);
}

uint64_t guard_units_buckets(unsigned units, unsigned align_units)
{
    uint64_t empty = base_low_mask(2) << POOL_BUCKET_EMPTY, slabs = ~base_low_mask(POOL_BUCKET_SLABS + 1);
    unsigned kind = kind_of(units, align_units);

    return empty | (kind == 1 ? slabs : UINT64_C(1) << kind);
}

unsigned guard_units_bucket(uint32_t slot)
{
    uint32_t free = window_slots[slot].free;
    const struct superslab *superslab = superslab_at(slot);

    /* The header is read only while it is mapped and in use (V14). */
    if (free == POOL_ALL_UNITS)
        return POOL_BUCKET_EMPTY;
    if (free == 0)
        return 0;
    if (superslab->kind == GUARD_KIND_ALIGNED)
        return free & ~superslab->guards ? GUARD_KIND_ALIGNED : 0;
    free = free_stretches(slot, superslab->guards, superslab->kind);
    return free == 0 ? 0 : superslab->kind == 1 ? POOL_BUCKET_SLABS + base_count_bits(free) : superslab->kind;
}

unsigned guard_units_choose(uint32_t mask)
{
    static uint64_t chance;
    uint64_t state = chance + window_secret;
    unsigned skip;

    if (mask == 0)
        return 0;
    /* xorshift64*: quick, not cryptographic. */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    chance = state;
    skip = (unsigned)((state * UINT64_C(0x2545f4914f6cdd1d) >> 32) * base_count_bits(mask) >> 32);
    while (skip--)
        mask &= mask - 1;
    return base_low_bit(mask);
}

/* ---- Closing and opening ---- */

/* Whether a guard unit was ever closed by os_guard, and by os_protect. */
static bool guards_are_installed, guards_are_protected;
static _Atomic bool guards_lack; /* a guard unit was not closed. Order: relaxed; a statistic */
static uint32_t slots_end; /* from here on no slot ever had guard units */

/* The first unit that the kernel refused to close, until a line has named it. The line is printed later, under no lock,
 * because printing may wait for a reader. */
static char *_Atomic refused_unit; /* Order: relaxed; only the address is printed */

bool guard_units_are_whole(void)
{
    return HAK_SECURE && !atomic_load_explicit(&guards_lack, memory_order_relaxed);
}

/* Closes a guard unit by os_protect, where os_guard cannot. `edge`: a header lies beside the unit. `before`: how many
 * SuperSlabs were made before the unit's own. False: the unit stays open. */
static bool guard_protect(char *unit, bool edge, uint32_t before)
{
    static bool noted;

    if (before < (edge ? GUARD_SLOTS_EDGES : GUARD_SLOTS_WHOLE)) {
        guards_are_protected = true;
        if (os_purge(unit, UNIT_SIZE) && os_protect(unit, UNIT_SIZE, false))
            return true;
        if (!noted)
            atomic_store_explicit(&refused_unit, unit, memory_order_relaxed);
        noted = true;
    }
    atomic_store_explicit(&guards_lack, true, memory_order_relaxed);
    return false;
}

void guard_units_say_refused(void)
{
    char *unit = atomic_load_explicit(&refused_unit, memory_order_relaxed);

    if (HAK_UNLIKELY(unit != NULL) && atomic_exchange_explicit(&refused_unit, NULL, memory_order_relaxed))
        base_message("the kernel refused to make %zu bytes at %p inaccessible: from here on some slabs have no guard "
                     "beside them; raise vm.max_map_count, or let the sandbox allow mprotect (docs/hardening.md)",
                     UNIT_SIZE, (void *)unit);
}

/* Closes a guard unit if the kernel allows it (V19). `before`: as for guard_protect. */
static void guard_close(struct superslab *superslab, unsigned unit, uint32_t before)
{
    char *address = (char *)superslab + unit * UNIT_SIZE;
    bool installed = os_guard(address, UNIT_SIZE, true);

    if (HAK_LIKELY(installed)) {
        guards_are_installed = true;
        superslab->installed |= UINT32_C(1) << unit;
    }
    if (installed || guard_protect(address, unit == 1 || unit == SUPERSLAB_UNITS - 1, before))
        superslab->closed |= UINT32_C(1) << unit;
}

/* Opens all units of a SuperSlab. All of them must be free (V21). */
static bool units_open(char *units, size_t size)
{
    return (!(guards_are_protected || closed_units_any(CLOSED_BY_PROTECT)) || os_protect(units, size, true)) &&
           (!(guards_are_installed || closed_units_any(CLOSED_BY_GUARD)) || os_guard(units, size, false));
}

/* The guard units that the slot is known to have; 0 if its header has no memory. */
static uint32_t known_guards(uint32_t slot)
{
    return window_slots[slot].touched & 1 ? superslab_at(slot)->guards : 0;
}

bool guard_units_are_laid(uint32_t slot, unsigned units, unsigned align_units)
{
    return known_guards(slot) == guards_of(slot, kind_of(units, align_units));
}

bool guard_units_lay(uint32_t number, unsigned units, unsigned align_units, unsigned *dirty)
{
    struct slot *slot = &window_slots[number];
    struct superslab *superslab = superslab_at(number);
    unsigned kind = kind_of(units, align_units);
    uint32_t wanted = guards_of(number, kind), known = known_guards(number);

    *dirty = 0;
    if (known == wanted)
        return true;
    if (number >= slots_end)
        slots_end = number + 1;
    else if ((known || !(slot->touched & 1)) &&
             !units_open((char *)superslab + UNIT_SIZE, SUPERSLAB_SIZE - UNIT_SIZE))
        return false;
    *dirty = base_count_bits(slot->touched & wanted);
    slot->touched &= ~wanted;
    superslab->closed = superslab->installed = 0;
    closed_units_forget(superslab);
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
        unsigned unit = base_low_bit(rest);
        guard_close(superslab, unit, number - window_slots_begin());
        /* From here on no address in the unit counts as one of a slab that lay there. */
        superslab->first_unit[unit] = (uint8_t)unit;
        atomic_store_explicit(&superslab->slabs[unit].state, SLAB_FREE, memory_order_relaxed);
        if (HAK_DEBUG)
            atomic_store_explicit(&superslab->touched[unit], 0, memory_order_relaxed);
    }
    superslab->guards = wanted;
    superslab->kind = (uint8_t)kind;
    return true;
}
