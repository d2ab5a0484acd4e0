#include "observe/usage.h"

#include "front/thread_cache.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

/* What the caches of all threads hold of each class, read while they run. */
static void usage_count_cached(size_t *blocks)
{
    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
        const struct thread_cache *cache = heap->cache;
        if (!cache || heap->cache_purged || !cache->heap)
            continue;
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            blocks[class] += cache_count(cache, class);
    }
}

struct usage_slabs {
    size_t bytes, headers, warm_bytes;
    size_t slabs[CLASS_COUNT], used[CLASS_COUNT];
};

/* Every slab in use, by class. Under the pool's lock, which keeps slabs from coming and going. */
static void usage_count_slabs(struct usage_slabs *count)
{
    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++) {
        const struct slot *slot = &shared_pool.slots[number];
        const struct superslab *superslab = (const struct superslab *)window_slot_address(number);
        uint32_t taken = ~slot->free & ~(uint32_t)1;
        if (slot->kind != SLOT_SUPERSLAB)
            continue;
        count->headers++;
        while (taken) {
            unsigned unit = base_low_bit(taken), units;
            const struct slab *slab = &superslab->slabs[unit];
            enum slab_state state = (enum slab_state)atomic_load_explicit(&((struct slab *)(uintptr_t)slab)->state,
                                                                          memory_order_acquire);
            units = slab->units;
            if (state == SLAB_FREE || units == 0) { /* being purged */
                taken &= taken - 1;
                continue;
            }
            if (state == SLAB_ACTIVE) {
                count->bytes += units * UNIT_SIZE;
                count->slabs[slab->class]++;
                /* What is announced as freed by others is free (H1). */
                count->used[slab->class] += slab->used - base_min(slab->used, atomic_load(&((struct slab *)(uintptr_t)slab)->remote_count));
            } else {
                count->warm_bytes += units * UNIT_SIZE;
            }
            taken &= ~((uint32_t)base_low_mask(units) << unit);
        }
    }
}

void observe_usage(struct usage *usage)
{
    struct usage_slabs slabs = { .bytes = 0 };
    struct huge_usage huge;
    size_t cached[CLASS_COUNT] = { 0 }, used_bytes = 0, cached_bytes = 0, committed, free_units_bytes;

    __builtin_memset(usage, 0, sizeof *usage);
    if (window_slots_end() == 0)
        return;
    huge_usage(&huge);
    lock_acquire(&shared_pool.lock);
    usage_count_slabs(&slabs);
    usage_count_cached(cached);
    committed = (size_t)(window_slots_end() - window_slots_begin()) * SUPERSLAB_SIZE;
    usage->superslabs = shared_pool.superslabs;
    usage->footprint_peak = shared_pool.mapped_peak;
    usage->purged = committed - metadata_bytes() - (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE -
                    slabs.headers * UNIT_SIZE;
    lock_release(&shared_pool.lock);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        used_bytes += slabs.used[class] * class_size(class);
        cached_bytes += cached[class] * class_size(class);
    }
    /* Racing threads may make a cache seem to hold more than its slabs have handed out. */
    cached_bytes = base_min(cached_bytes, used_bytes);
    free_units_bytes = committed - metadata_bytes() - slabs.bytes - slabs.headers * UNIT_SIZE;
    usage->metadata = window_head_bytes() + metadata_bytes() + slabs.headers * UNIT_SIZE;
    usage->mapped = window_head_bytes() + committed + huge.live_bytes + huge.cached_bytes;
    usage->cached = cached_bytes;
    usage->live = used_bytes - cached_bytes + huge.live_bytes;
    usage->free_in_slab = slabs.bytes - base_min(used_bytes, slabs.bytes);
    usage->retained = free_units_bytes + huge.cached_bytes;
    usage->huge_live = huge.live_bytes;
    usage->huge_blocks = huge.live_blocks;
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        usage->heaps += atomic_load(&heap->state) == HEAP_LIVE;
    usage->limit_hard = hak_options.memory_limit;
}

size_t observe_usage_classes(struct usage_class *rows, size_t capacity)
{
    struct usage_slabs slabs = { .bytes = 0 };
    size_t cached[CLASS_COUNT] = { 0 }, filled = 0;

    if (window_slots_end() == 0)
        return 0;
    lock_acquire(&shared_pool.lock);
    usage_count_slabs(&slabs);
    usage_count_cached(cached);
    lock_release(&shared_pool.lock);
    for (unsigned class = 1; class < CLASS_COUNT && filled < capacity; class++) {
        size_t held = base_min(cached[class], slabs.used[class]);
        if (slabs.slabs[class] == 0)
            continue;
        rows[filled].block_size = class_size(class);
        rows[filled].slabs = slabs.slabs[class];
        rows[filled].live_blocks = slabs.used[class] - held;
        rows[filled++].free_blocks =
            slabs.slabs[class] * size_classes[class].blocks - base_min(slabs.used[class] - held, slabs.slabs[class] * size_classes[class].blocks);
    }
    return filled;
}
