#include "observe/usage.h"

#include "front/thread_cache.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

/* Slabs in use and blocks in caches, by class. */
struct usage_count {
    size_t slab_bytes;
    size_t slabs[CLASS_COUNT], used[CLASS_COUNT], cached[CLASS_COUNT];
};

static void usage_count_list(struct usage_count *count, const struct slab_list *list)
{
    for (struct slab *slab = list->head; slab; slab = slab->next) {
        /* What is announced as freed by others is free (H1). */
        uint32_t pending = atomic_load_explicit(&slab->remote_count, memory_order_relaxed);
        count->slab_bytes += slab->units * UNIT_SIZE;
        count->slabs[slab->class]++;
        count->used[slab->class] += slab->used - base_min(slab->used, pending);
    }
}

/* Every heap in turn, under its lock; what caches hold is read while their threads run. */
static void usage_count_all(struct usage_count *count, size_t *live_heaps)
{
    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
        const struct thread_cache *cache;
        lock_acquire(&heap->lock);
        usage_count_list(count, &heap->full);
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            usage_count_list(count, &heap->available[class]);
        cache = heap->cache;
        if (cache && !heap->cache_purged && cache->heap)
            for (unsigned class = 1; class < CLASS_COUNT; class++)
                count->cached[class] += cache_blocks(cache, class);
        *live_heaps += atomic_load(&heap->state) == HEAP_LIVE;
        lock_release(&heap->lock);
    }
}

void observe_usage(struct usage *usage)
{
    struct usage_count count = { .slab_bytes = 0 };
    struct huge_usage huge;
    size_t used = 0, cached = 0, committed, headers;

    __builtin_memset(usage, 0, sizeof *usage);
    if (window_slots_end() == 0)
        return;
    usage_count_all(&count, &usage->heaps);
    huge_usage(&huge);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        used += count.used[class] * class_size(class);
        cached += count.cached[class] * class_size(class);
    }
    /* While threads run, caches may seem to hold more than slabs have handed out. */
    cached = base_min(cached, used);
    lock_acquire(&shared_pool.lock);
    committed = (size_t)(window_slots_end() - window_slots_begin() - shared_pool.decommitted) * SUPERSLAB_SIZE;
    headers = (size_t)(shared_pool.superslabs - shared_pool.decommitted) * UNIT_SIZE;
    usage->superslabs = shared_pool.superslabs;
    usage->footprint_peak = shared_pool.footprint_peak;
    usage->purged = committed - metadata_bytes() - (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE - headers;
    lock_release(&shared_pool.lock);
    usage->metadata = window_head_bytes() + metadata_bytes() + headers;
    usage->mapped = window_head_bytes() + committed + huge.live_bytes + huge.cached_bytes;
    usage->cached = cached;
    usage->live = used - cached + huge.live_bytes;
    usage->free_in_slab = count.slab_bytes - base_min(used, count.slab_bytes);
    usage->retained = committed - metadata_bytes() - headers - count.slab_bytes + huge.cached_bytes;
    usage->huge_live = huge.live_bytes;
    usage->huge_blocks = huge.live_blocks;
    usage->limit_hard = hak_options.memory_limit;
}

size_t observe_usage_classes(struct usage_class *rows, size_t capacity)
{
    struct usage_count count = { .slab_bytes = 0 };
    size_t filled = 0, heaps = 0;

    if (window_slots_end() == 0)
        return 0;
    usage_count_all(&count, &heaps);
    for (unsigned class = 1; class < CLASS_COUNT && filled < capacity; class++) {
        size_t blocks = count.slabs[class] * size_classes[class].blocks;
        size_t live = count.used[class] - base_min(count.cached[class], count.used[class]);
        if (count.slabs[class] == 0)
            continue;
        rows[filled++] = (struct usage_class){ .block_size = class_size(class),
                                               .slabs = count.slabs[class],
                                               .live_blocks = live,
                                               .free_blocks = blocks - base_min(live, blocks) };
    }
    return filled;
}
