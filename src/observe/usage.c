#include "observe/usage.h"

#include "front/thread_cache.h"
#include "observe/scratch.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "profile/guard.h"
#include "profile/table.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

static void usage_count_list(struct usage_count *count, const struct slab_list *list)
{
    for (struct slab *slab = list->head; slab; slab = slab->next) {
        /* Blocks whose remote free is announced are free (H1). */
        uint32_t pending = atomic_load_explicit(&slab->remote_count, memory_order_relaxed);
        count->slab_bytes += slab->units * UNIT_SIZE;
        count->slabs[slab->class]++;
        count->used[slab->class] += slab->used - base_min(slab->used, pending);
        count->remote[slab->class] += base_min(slab->used, pending);
    }
}

/* Some words change while nobody holds their heap's lock. */
static void usage_add_words(void *sum, const void *words, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
        ((uint64_t *)sum)[i] += __atomic_load_n((const uint64_t *)words + i, __ATOMIC_RELAXED);
}

void observe_count_heap(struct usage_count *count, struct heap *heap)
{
    const struct thread_cache *cache;
    enum heap_state state;
    bool counted;

    if (!heap_is_readable(heap))
        return;
    lock_acquire(&heap->lock);
    usage_count_list(count, &heap->full);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        usage_count_list(count, &heap->body->available[class]);
    for (unsigned number = 0; number < WARM_STOCKS; number++)
        count->warm_slabs += heap->body->warm[number].count;
    cache = cache_of(heap);
    counted = cache == NULL || cache_add_blocks(cache, heap, count->cached);
    if (cache && hak_options.front_stats)
        cache_add_hits(cache, count->classes);
    state = atomic_load(&heap->state);
    count->heaps += state == HEAP_LIVE;
    count->orphans += heap->kind == HEAP_THREAD && state == HEAP_ORPHAN;
    count->first_class += heap->kind == HEAP_FIRST_CLASS && state == HEAP_LIVE;
    count->pending += atomic_load_explicit(&heap->pending_count, memory_order_relaxed);
    usage_add_words(count->classes, heap->classes, sizeof count->classes);
    usage_add_words(&count->counters, &heap->body->counters, sizeof count->counters);
    lock_release(&heap->lock);
    if (!counted)
        cache_add_shared_blocks(cache, count->cached);
}

/* Under registry.lock, so that no heap's counters move to the account of departed heaps meanwhile. */

void observe_count_all(struct usage_count *count)
{
    __builtin_memset(count, 0, sizeof *count);
    lock_acquire(&registry.lock);
    usage_add_words(count->classes, registry.departed.classes, sizeof count->classes);
    usage_add_words(&count->counters, &registry.departed.counters, sizeof count->counters);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        observe_count_heap(count, heap);
    lock_release(&registry.lock);
}

_Static_assert(sizeof(struct usage_count) <= SCRATCH_BYTES, "a count fits into the scratch memory");

void observe_usage(struct usage *usage)
{
    struct usage_count *count = scratch_take();

    __builtin_memset(usage, 0, sizeof *usage);
    if (count == NULL)
        return;
    observe_count_all(count);
    observe_usage_of(usage, count);
    scratch_give(count);
}

void observe_usage_of(struct usage *usage, const struct usage_count *count)
{
    size_t used = 0, cached = 0, guarded_live, guarded = guard_bytes_in_use(&guarded_live), slab_bytes, committed,
           headers, metadata, pool_used;

    __builtin_memset(usage, 0, sizeof *usage);
    if (window_slots_end() == 0)
        return;
    usage->heaps = count->heaps;
    huge_usage(&usage->huge);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        used += count->used[class] * class_size(class);
        cached += usage_cached(count, class) * class_size(class);
    }
    usage->heap_profile = table_bytes();
    lock_acquire(&shared_pool.lock);
    metadata = metadata_bytes();
    committed = (size_t)(shared_pool.slots_committed - window_slots_begin() - shared_pool.slots_foreign -
                         shared_pool.decommitted) *
                SUPERSLAB_SIZE;
    headers = (size_t)(shared_pool.superslabs - shared_pool.decommitted) * UNIT_SIZE;
    pool_used = (shared_pool.units_used + shared_pool.units_dirty) * UNIT_SIZE;
    usage->superslabs = shared_pool.superslabs;
    usage->footprint_peak = shared_pool.footprint_peak;
    lock_release(&shared_pool.lock);
    /* The heaps were counted earlier. A slab that changed its heap may be in both counts, and memory may have been
     * decommitted since. */
    slab_bytes = base_min(count->slab_bytes, committed - metadata - headers);
    used = base_min(used, slab_bytes);
    cached = base_min(cached, used);
    usage->purged = committed - metadata - base_min(pool_used, committed - metadata - headers) - headers;
    usage->metadata = window_head_bytes() + metadata + headers + usage->heap_profile + (guarded - guarded_live);
    usage->mapped = window_head_bytes() + committed + usage->huge.live_bytes + usage->huge.cached_bytes +
                    usage->heap_profile + guarded;
    usage->cached = cached;
    usage->live = used - cached + usage->huge.live_bytes + guarded_live;
    usage->free_in_slab = slab_bytes - used;
    usage->retained = committed - metadata - headers - slab_bytes + usage->huge.cached_bytes;
    usage->huge_live = usage->huge.live_bytes;
    usage->huge_blocks = usage->huge.live_blocks;
    usage->limit_hard = hak_options.memory_limit;
}

size_t observe_usage_classes(struct usage_class *rows, size_t capacity)
{
    struct usage_count *count = scratch_take();
    size_t filled = 0;

    if (count == NULL)
        return 0;
    observe_count_all(count);
    for (unsigned class = 1; class < CLASS_COUNT && filled < capacity; class++) {
        size_t blocks = count->slabs[class] * size_classes[class].blocks;
        size_t live = count->used[class] - usage_cached(count, class);
        if (count->slabs[class] == 0)
            continue;
        rows[filled++] = (struct usage_class){ .block_size = class_size(class),
                                               .slabs = count->slabs[class],
                                               .live_blocks = live,
                                               .free_blocks = blocks - base_min(live, blocks) };
    }
    scratch_give(count);
    return filled;
}
