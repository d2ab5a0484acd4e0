#include "front/live.h"

#include "front/thread_cache.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "profile/guard.h"
#include "profile/profile.h"

#define LIVE_SHARE 64u
#define LIVE_STEP 2048u /* for each thread: a look at many heaps costs more */

static _Atomic int64_t noted;    /* bytes since the last look. Order: relaxed; a sum, as `may_note` */
static _Atomic int64_t may_note; /* before the next look. Order: relaxed */

/* The bytes of blocks out of slabs. A heap's own difference may be below 0: its slabs may have come from another heap.
 * The sums over all heaps wrap in the same way. */
static size_t out_bytes(const struct class_counters *classes)
{
    size_t bytes = 0;

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        bytes += (size_t)(classes[class].refilled_blocks - classes[class].returned_blocks) * class_size(class);
    return bytes;
}

/* The bytes of blocks that other threads freed and the heap has not collected (C1). Under heap->lock, so that no queued
 * slab leaves the queue. */
static size_t pending_bytes(struct heap *heap)
{
    /* Acquire: the fields of a slab are set before it is queued. */
    struct slab *slab = atomic_load_explicit(&heap->pending, memory_order_acquire);
    size_t bytes = 0;

    for (; slab; slab = slab->pending_next)
        bytes += base_min(slab->used, atomic_load_explicit(&slab->remote_count, memory_order_relaxed)) *
                 class_size(slab->class);
    return bytes;
}

static size_t heap_bytes(struct heap *heap)
{
    size_t cached[CLASS_COUNT] = { 0 }, bytes;
    const struct thread_cache *cache;
    bool added;

    lock_acquire(&heap->lock);
    bytes = out_bytes(heap->classes) - pending_bytes(heap);
    cache = cache_of(heap);
    added = cache == NULL || cache_add_blocks(cache, heap, cached);
    lock_release(&heap->lock);
    if (HAK_UNLIKELY(!added))
        cache_add_shared_blocks(cache, cached);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        bytes -= cached[class] * class_size(class);
    return bytes;
}

size_t live_total(void)
{
    size_t bytes, guarded = 0;
    struct huge_usage huge;

    lock_acquire(&registry.lock);
    bytes = out_bytes(registry.departed.classes);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        if (heap_is_readable(heap))
            bytes += heap_bytes(heap);
    lock_release(&registry.lock);
    huge_usage(&huge);
    if (guard_on())
        guard_bytes_in_use(&guarded);
    return bytes + huge.live_bytes + guarded;
}

void live_look(void)
{
    size_t total, peak, threads = atomic_load_explicit(&registry.live_threads, memory_order_relaxed);

    if (profile.mean == 1) /* the table knows every block */
        return;
    total = live_total();
    peak = table_peak_bytes();

    /* What was on its way in another thread's cache is hardly so again. */
    if (total > peak && threads > 1)
        total = base_min(total, live_total());
    table_note_live(total, profile_now_ms());
    peak = base_max(peak, total);
    atomic_store_explicit(&noted, 0, memory_order_relaxed);
    atomic_store_explicit(&may_note, (int64_t)(peak - total + base_max(peak / LIVE_SHARE, (threads + 1) * LIVE_STEP)),
                          memory_order_relaxed);
}

void live_note_all(struct thread_cache *cache)
{
    int64_t more = 0;

    for (uint64_t open = cache->open; open; open &= open - 1)
        more += live_change(cache, base_low_bit(open));
    live_note(more);
}

void live_note_some(int64_t bytes)
{
    if (profile.mean != 1 && atomic_fetch_add_explicit(&noted, bytes, memory_order_relaxed) + bytes >=
        atomic_load_explicit(&may_note, memory_order_relaxed) && !profile_busy())
        live_look();
}
