#include "superslab/arrival.h"

#include <string.h>

#include "superslab/ranges.h"
#include "superslab/shared_pool.h"

/* The SuperSlabs that are looked at: the last that began with small pages. */
#define ARRIVAL_PROBES 2u
/* The most of a huge block that is looked at, from its start on. */
#define ARRIVAL_HUGE_LOOK (2 * HAK_MIB)
/* Blocks that are cleared are looked at in parts. */
#define ARRIVAL_CLEAR_PART (2 * HAK_MIB)

/* Order: relaxed; a look sees what it sees. */
static _Atomic bool arrival_blind; /* no more looks */
static _Atomic bool arrival_dense; /* the last look at SuperSlabs found density */

/* Under pool.lock. */
static uint32_t arrival_probes[ARRIVAL_PROBES]; /* the last one first; 0: none */
static uint32_t superslabs_begun;
static bool arrival_looked; /* no other has begun with small pages since a look that saw enough */

/* Under huge_lock. */
static struct {
    const char *block; /* the last that began with small pages, if it is in use; else NULL */
    size_t size;
    uint32_t begun;
    bool dense;
} arrival_huge;

bool arrival_superslabs_dense(void) { return atomic_load_explicit(&arrival_dense, memory_order_relaxed); }

bool arrival_may_look(void) { return !atomic_load_explicit(&arrival_blind, memory_order_relaxed); }

void arrival_before_sandbox(void) { atomic_store_explicit(&arrival_blind, true, memory_order_relaxed); }

void arrival_note_small(uint32_t number)
{
    for (unsigned i = ARRIVAL_PROBES - 1; i > 0; i--)
        arrival_probes[i] = arrival_probes[i - 1];
    arrival_probes[0] = number;
    arrival_looked = false;
}

/* Whether all blocks of the slab are in use. */
static bool slab_is_full(const struct slab *slab, unsigned class)
{
    for (unsigned i = 0; i < (size_classes[class].blocks + 63u) / 64; i++)
        if (atomic_load_explicit(&slab->local[i], memory_order_relaxed) != 0)
            return false;
    return true;
}

/* Adds what a slab of the SuperSlab tells. resident[]: of the SuperSlab's pages. */
static void look_at_slab(const struct slab *slab, const unsigned char *resident, struct arrival_evidence *evidence)
{
    size_t page = os_page_size(), first = ((uintptr_t)slab->start & (SUPERSLAB_SIZE - 1)) / page;
    unsigned class = __atomic_load_n(&slab->class, __ATOMIC_RELAXED);

    evidence->used += slab->units * UNIT_SIZE;
    if (class_size(class) <= ARRIVAL_SMALL_BLOCK || (!class_is_span(class) && !slab_is_full(slab, class)))
        return;
    for (size_t i = first; i < first + slab->units * UNIT_SIZE / page; i++)
        evidence->missing += (resident[i] & 1) ? 0 : page;
}

/* Adds what a SuperSlab tells. Units of an older one that are still free count, too: nothing fitted them. */
static void look_at_superslab(uint32_t number, bool older, struct arrival_evidence *evidence)
{
    const struct slot *slot = &shared_pool.slots[number];
    const struct superslab *superslab = (const struct superslab *)window_slot_address(number);
    unsigned char resident[SUPERSLAB_SIZE / 4096];

    if (slot->kind != SLOT_SUPERSLAB || slot->decommitted || !(slot->touched & 1) || slot->huge_pages == PAGES_HUGE ||
        !os_resident_pages(superslab, SUPERSLAB_SIZE, resident))
        return;
    for (unsigned unit = 1; unit < SUPERSLAB_UNITS; unit++) {
        const struct slab *slab = &superslab->slabs[unit];
        if (slot->free >> unit & 1) {
            evidence->used += older ? UNIT_SIZE : 0;
            evidence->missing += older && !(slot->touched >> unit & 1) ? UNIT_SIZE : 0;
        } else if (superslab->first_unit[unit] == unit &&
                   atomic_load_explicit(&slab->state, memory_order_acquire) == SLAB_ACTIVE) {
            look_at_slab(slab, resident, evidence);
        }
    }
}

bool arrival_superslab_begins(void)
{
    struct arrival_evidence evidence = { 0, 0 };
    bool before = arrival_superslabs_dense(); /* what the caller reckoned the footprint with */

    if (arrival_is_probe(++superslabs_begun))
        return false;
    if (arrival_looked || !arrival_may_look())
        return before;
    for (unsigned i = 0; i < ARRIVAL_PROBES; i++)
        if (arrival_probes[i])
            look_at_superslab(arrival_probes[i], i > 0, &evidence);
    if (evidence.used)
        atomic_store_explicit(&arrival_dense, arrival_is_dense(evidence), memory_order_relaxed);
    arrival_looked = evidence.used >= SUPERSLAB_SIZE;
    return before && arrival_superslabs_dense();
}

/* Under huge_lock. */
static void look_at_huge(void)
{
    unsigned char resident[ARRIVAL_HUGE_LOOK / 4096];
    size_t page = os_page_size(), size = base_min(arrival_huge.size, ARRIVAL_HUGE_LOOK) & ~(page - 1);
    struct arrival_evidence evidence = { size, 0 };

    if (arrival_huge.block == NULL || !arrival_may_look() ||
        !os_resident_pages(arrival_huge.block, size, resident))
        return;
    for (size_t i = 0; i < size / page; i++)
        evidence.missing += (resident[i] & 1) ? 0 : page;
    arrival_huge.dense = arrival_is_dense(evidence);
}

bool arrival_huge_begins(void *block, size_t size)
{
    bool wanted;

    lock_acquire(&huge_lock);
    look_at_huge();
    wanted = !arrival_is_probe(arrival_huge.begun++) && arrival_huge.dense;
    if (!wanted) {
        arrival_huge.block = block;
        arrival_huge.size = size;
    }
    lock_release(&huge_lock);
    return wanted;
}

void arrival_huge_ends(const void *block)
{
    if (HAK_LIKELY(arrival_huge.block != block))
        return;
    look_at_huge();
    arrival_huge.block = NULL;
}

/* Clears whole pages. resident[]: of these. */
static void clear_pages(char *pages, size_t count, const unsigned char *resident)
{
    size_t page = os_page_size(), end;

    for (size_t i = 0; i < count; i = end) {
        bool written = resident[i] & 1;
        for (end = i + 1; end < count && (resident[end] & 1) == written;)
            end++;
        if (written || !os_purge(pages + i * page, (end - i) * page))
            memset(pages + i * page, 0, (end - i) * page);
    }
}

void arrival_clear_pages(void *block, size_t size)
{
    unsigned char resident[ARRIVAL_CLEAR_PART / 4096];
    size_t page = os_page_size(), part = -(uintptr_t)block & (page - 1);
    char *at = block, *end = at + size;

    if (!arrival_may_look()) {
        memset(block, 0, size);
        return;
    }
    memset(at, 0, part);
    for (at += part; (size_t)(end - at) >= page; at += part) {
        part = base_min((size_t)(end - at) & ~(page - 1), ARRIVAL_CLEAR_PART);
        if (os_resident_pages(at, part, resident))
            clear_pages(at, part / page, resident);
        else
            memset(at, 0, part);
    }
    memset(at, 0, (size_t)(end - at));
}
