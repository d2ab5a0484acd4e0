#include "pool/registry.h"

#include "observe/counters.h"
#include "options/options.h"
#include "pool/remote.h"
#include "superslab/metadata.h"

struct registry registry = { .lock = LOCK_INIT(LOCK_RANK_REGISTRY) };

/* Orphans one refill looks at: a long list of them without the class must not slow every new slab. */
#define ADOPT_MAX_ORPHANS 8u

static struct heap *registry_make(enum heap_kind kind)
{
    struct heap *heap = metadata_allocate(sizeof *heap, _Alignof(struct heap));

    if (!heap)
        return NULL;
    lock_init(&heap->lock, LOCK_RANK_HEAP);
    heap->kind = (uint8_t)kind;
    heap->id = ++registry.count;
    heap->next = registry.heaps;
    __atomic_store_n(&registry.heaps, heap, __ATOMIC_RELEASE);
    return heap;
}

bool registry_init(void)
{
    if (registry.house)
        return true;
    lock_acquire(&registry.lock);
    registry.house = registry_make(HEAP_HOUSE);
    if (registry.house)
        atomic_store(&registry.house->state, HEAP_ORPHAN);
    lock_release(&registry.lock);
    return registry.house != NULL;
}

struct heap *registry_take_heap(void)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = registry.orphans;
    if (heap) {
        registry.orphans = heap->next_orphan;
        atomic_fetch_sub_explicit(&registry.orphan_count, 1, memory_order_relaxed);
    } else {
        heap = registry_make(HEAP_THREAD);
    }
    lock_release(&registry.lock);
    if (heap) {
        lock_acquire(&heap->lock);
        __atomic_store_n(&heap->thread_id, os_thread_id(), __ATOMIC_RELAXED); /* read without the lock */
        atomic_store(&heap->state, HEAP_LIVE);
        lock_release(&heap->lock);
        atomic_fetch_add_explicit(&registry.live_threads, 1, memory_order_relaxed);
    }
    return heap;
}

void registry_abandon_heap(struct heap *heap)
{
    lock_acquire(&heap->lock);
    atomic_store(&heap->state, HEAP_ORPHAN); /* O4: before the drain */
    remote_drain(heap);
    heap_release_warm(heap);
    lock_release(&heap->lock);
    lock_acquire(&registry.lock);
    heap->next_orphan = registry.orphans;
    registry.orphans = heap;
    atomic_fetch_add_explicit(&registry.orphan_count, 1, memory_order_relaxed);
    lock_release(&registry.lock);
    atomic_fetch_sub_explicit(&registry.live_threads, 1, memory_order_relaxed);
}

struct heap *registry_new_profile(void)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = registry_make(HEAP_PROFILE);
    if (heap)
        atomic_store(&heap->state, HEAP_ORPHAN);
    lock_release(&registry.lock);
    return heap;
}

struct heap *registry_new_first_class(void)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = registry.unused_first_class;
    if (heap)
        registry.unused_first_class = heap->next_orphan;
    else
        heap = registry_make(HEAP_FIRST_CLASS);
    if (heap) {
        __atomic_store_n(&heap->thread_id, os_thread_id(), __ATOMIC_RELAXED); /* read without the lock */
        atomic_store(&heap->state, HEAP_LIVE);
    }
    lock_release(&registry.lock);
    return heap;
}

void registry_drop_first_class(struct heap *heap)
{
    lock_acquire(&registry.lock);
    atomic_store(&heap->state, HEAP_UNUSED);
    heap->next_orphan = registry.unused_first_class;
    registry.unused_first_class = heap;
    lock_release(&registry.lock);
}

/* Takes one slab with free blocks of the class from `from`, whose lock is held. */
static bool adopt_from(struct heap *heap, struct heap *from, unsigned class)
{
    remote_drain(from);
    if (!from->available[class].head)
        return false;
    heap_adopt_slab(heap, from, from->available[class].head);
    return true;
}

static bool adopt_orphaned(struct heap *heap, unsigned class)
{
    struct heap *orphan;
    unsigned looks = 0;
    bool adopted = false;

    if (atomic_load_explicit(&registry.orphan_count, memory_order_relaxed) == 0 || !lock_try(&registry.lock))
        return false;
    for (orphan = registry.orphans; orphan && looks < ADOPT_MAX_ORPHANS && !adopted; orphan = orphan->next_orphan) {
        looks++;
        if (lock_try(&orphan->lock)) {
            adopted = adopt_from(heap, orphan, class);
            lock_release(&orphan->lock);
        }
    }
    lock_release(&registry.lock);
    return adopted;
}

/* Whether the heap was silent since somebody last looked, at least the threshold ago. */
static bool heap_is_idle(struct heap *heap, uint64_t now)
{
    uint32_t epoch = atomic_load_explicit(&heap->epoch, memory_order_relaxed);

    if (atomic_load_explicit(&heap->seen_epoch, memory_order_relaxed) != epoch) {
        atomic_store_explicit(&heap->seen_epoch, epoch, memory_order_relaxed);
        atomic_store_explicit(&heap->seen_time, now, memory_order_relaxed);
        return false;
    }
    return now - atomic_load_explicit(&heap->seen_time, memory_order_relaxed) >=
           hak_options.mf2_idle_threshold_us * 1000;
}

static bool adopt_idle(struct heap *heap, unsigned class)
{
    struct heap *other;
    unsigned looks = 0;
    uint64_t now = 0;

    for (other = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); other && looks < hak_options.mf2_max_queues;
         other = other->next) {
        bool adopted = false;
        if (other == heap || atomic_load_explicit(&other->pending_count, memory_order_relaxed) <
                                 hak_options.mf2_enqueue_threshold)
            continue;
        looks++;
        if (now == 0)
            now = os_now();
        if (heap_is_idle(other, now) && lock_try(&other->lock)) {
            adopted = other->kind == HEAP_THREAD && adopt_from(heap, other, class);
            lock_release(&other->lock);
        }
        if (adopted)
            return true;
    }
    return false;
}

bool registry_adopt(struct heap *heap, unsigned class)
{
    if (adopt_orphaned(heap, class)) {
        debug_count_of(COUNT_MF2_ADOPTED_ORPHAN, class, 1);
        return true;
    }
    if (hak_options.mf2_enable && adopt_idle(heap, class)) {
        debug_count_of(COUNT_MF2_ADOPTED_IDLE, class, 1);
        return true;
    }
    return false;
}

/* One heap, whose lock is held. True if it may have more to give later. */
static bool heap_trim(struct heap *heap, bool all, size_t *purged)
{
    uint32_t epoch = atomic_load_explicit(&heap->epoch, memory_order_relaxed);
    bool quiet = epoch == heap->tick_epoch;
    size_t drained;

    heap->tick_epoch = epoch;
    drained = remote_drain(heap);
    heap_release_warm(heap);
    if (!quiet && !all)
        return true;
    if (heap->scrubbed_epoch != epoch || drained) {
        if (!heap_scrub(heap, purged))
            return true;
        heap->scrubbed_epoch = epoch;
    }
    return false;
}

bool registry_trim_idle(bool all, size_t *purged)
{
    struct heap *heap;
    uint64_t now = os_now();
    bool left = false;

    for (heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
        bool idle = heap_is_idle(heap, now) || atomic_load(&heap->state) == HEAP_ORPHAN;
        if (heap->kind == HEAP_FIRST_CLASS)
            continue;
        if ((all || idle) && lock_try(&heap->lock)) {
            left |= heap_trim(heap, all, purged);
            lock_release(&heap->lock);
        } else {
            left = true;
        }
    }
    return left;
}

uint32_t registry_activity(void)
{
    uint32_t sum = 0;

    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next)
        sum += atomic_load_explicit(&heap->epoch, memory_order_relaxed);
    return sum;
}
