#include "superslab/metadata.h"

#include "os/lock.h"
#include "superslab/footprint.h"

HAK_DATA_HERE _Alignas(HAK_CACHE_LINE) struct lock metadata_lock = LOCK_INIT(LOCK_RANK_META);

static char *metadata_next, *metadata_end;
static _Atomic size_t metadata_slots; /* Order: relaxed; a statistic */

void *metadata_allocate(size_t size, size_t alignment)
{
    char *record;

    lock_acquire(&metadata_lock);
    record = (char *)base_align_up((uintptr_t)metadata_next, alignment);
    if (metadata_next == NULL || record + size > metadata_end) {
        char *slot = shared_pool_take_metadata_slot();
        if (!slot) {
            lock_release(&metadata_lock);
            return NULL;
        }
        atomic_fetch_add_explicit(&metadata_slots, 1, memory_order_relaxed);
        metadata_end = slot + SUPERSLAB_SIZE;
        record = slot;
    }
    metadata_next = record + size;
    footprint_metadata_touched(size);
    lock_release(&metadata_lock);
    return record;
}

size_t metadata_bytes(void) { return atomic_load_explicit(&metadata_slots, memory_order_relaxed) * SUPERSLAB_SIZE; }
