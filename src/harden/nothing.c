#include "harden/nothing.h"

#include "config/limits.h"
#include "harden/harden.h"
#include "os/os.h"
#include "superslab/metadata.h"

#define REGION_BYTES (4 * UNIT_SIZE)
#define REGION_BLOCKS (REGION_BYTES / BLOCK_ALIGN)
#define REGION_MOST 256u

struct nothing_region {
    char *start;
    _Atomic uint32_t hand, count; /* Order: relaxed; hints */
    _Atomic uint64_t live[REGION_BLOCKS / 64]; /* Order: release by a free, acquire by the next use (C17 7.22.3) */
};

/* Filled from the front. A region stays for ever. Order: release in region_new, acquire: `start`. */
static struct nothing_region *_Atomic regions[REGION_MOST];

/* The next free address from the hand on. */
static void *region_take(struct nothing_region *region)
{
    for (unsigned tries = 0;
         tries < REGION_BLOCKS && atomic_load_explicit(&region->count, memory_order_relaxed) < REGION_BLOCKS; tries++) {
        uint32_t index = atomic_fetch_add_explicit(&region->hand, 1, memory_order_relaxed) % REGION_BLOCKS;
        uint64_t bit = UINT64_C(1) << (index % 64);
        if (!(atomic_fetch_or_explicit(&region->live[index / 64], bit, memory_order_acq_rel) & bit)) {
            atomic_fetch_add_explicit(&region->count, 1, memory_order_relaxed);
            return region->start + index * BLOCK_ALIGN;
        }
    }
    return NULL;
}

/* The region in the place: a new one, or another thread's. NULL: memory is out, or cannot be made inaccessible. */
static struct nothing_region *region_new(struct nothing_region *_Atomic *place)
{
    struct nothing_region *region = metadata_allocate(sizeof *region, _Alignof(struct nothing_region)), *other = NULL;

    if (region == NULL)
        return NULL;
    region->start = os_map(REGION_BYTES, os_page_size());
    if (region->start == NULL)
        return NULL;
    if (!harden_close(region->start, REGION_BYTES) || !atomic_compare_exchange_strong(place, &other, region)) {
        os_unmap(region->start, REGION_BYTES);
        return other;
    }
    return region;
}

void *nothing_allocate(void)
{
    for (unsigned i = 0; i < REGION_MOST; i++) {
        struct nothing_region *region = atomic_load_explicit(&regions[i], memory_order_acquire);
        void *block;
        if (region == NULL)
            region = region_new(&regions[i]);
        if (region == NULL)
            return NULL;
        block = region_take(region);
        if (block)
            return block;
    }
    return NULL;
}

static struct nothing_region *region_find(const void *address)
{
    for (unsigned i = 0; i < REGION_MOST; i++) {
        struct nothing_region *region = atomic_load_explicit(&regions[i], memory_order_acquire);
        if (region == NULL)
            return NULL;
        if ((size_t)((const char *)address - region->start) < REGION_BYTES)
            return region;
    }
    return NULL;
}

enum nothing_state nothing_look(const void *address)
{
    struct nothing_region *region = region_find(address);
    size_t offset, index;

    if (region == NULL)
        return NOTHING_ELSEWHERE;
    offset = (size_t)((const char *)address - region->start);
    index = offset / BLOCK_ALIGN;
    if (offset % BLOCK_ALIGN)
        return NOTHING_NO_BLOCK;
    return (atomic_load_explicit(&region->live[index / 64], memory_order_relaxed) >> (index % 64)) & 1 ? NOTHING_LIVE
                                                                                                       : NOTHING_FREE;
}

bool nothing_free(const void *address)
{
    struct nothing_region *region = region_find(address);
    size_t index;
    uint64_t bit;

    if (region == NULL)
        return false;
    index = (size_t)((const char *)address - region->start) / BLOCK_ALIGN;
    bit = UINT64_C(1) << (index % 64);
    if (!(atomic_fetch_and_explicit(&region->live[index / 64], ~bit, memory_order_acq_rel) & bit))
        return false;
    atomic_fetch_sub_explicit(&region->count, 1, memory_order_relaxed);
    return true;
}
