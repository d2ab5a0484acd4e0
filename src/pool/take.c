/* Taking blocks out of a heap: from its slabs, else from a slab of another heap, the warm pool or the shared pool. */
#include "observe/counters.h"
#include "options/options.h"
#include "pool/heap.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/arrival.h"

/* A class that has filled POPULATE_PROOF slabs will likely fill the next ones. One call faults in their memory, for at
 * most one slab for each POPULATE_SHARE in use. Blocks above a page have no part in this (N9). */
#define POPULATE_PROOF 8u
#define POPULATE_SHARE 8u
/* The shortest run of warm slabs, in units, that is worth the call. */
#define POPULATE_MIN_UNITS 4u
/* Slabs of blocks up to this size are mostly empty at first. Slabs of larger blocks soon have memory behind most. */
#define SPARSE_MAX 4096u
/* A stock gets at most one slab, and one more for each WARM_SHARE in use: waiting slabs hold touched memory. */
#define WARM_SHARE 24u

/* ---- Filling the warm pool ---- */

/* Faults in the memory of slabs that were never touched, neighbours in one call. */
static void warm_populate(struct slab *const *slabs, size_t count)
{
    for (size_t i = 0; i < count;) {
        char *start = slabs[i]->start, *end = start;
        size_t first = i;
        for (; i < count && slabs[i]->zero && slabs[i]->start == end; i++)
            end += slab_bytes(slabs[i]);
        if (i == first) {
            i++;
        } else if ((size_t)(end - start) >= POPULATE_MIN_UNITS * UNIT_SIZE) {
            /* A failed call may have faulted in a part. */
            os_populate(start, (size_t)(end - start));
            for (; first < i; first++)
                slabs[first]->populated = slabs[first]->dense = true;
        }
    }
}

/* If slabs of other lengths wait with the heap, takes units that have memory already. If there are none, gives those
 * slabs to the shared pool, which the caller asks next (O6). */
static size_t heap_acquire_touched(struct heap *heap, unsigned class, unsigned align_units, size_t count,
                                   struct slab **slabs)
{
    size_t taken;

    if (heap->body->warm_bound.units == 0)
        return 0;
    taken = shared_pool_acquire_touched(size_classes[class].units, align_units, count, slabs);
    if (taken == 0)
        heap_unlearn_warm(heap);
    return taken;
}

/* The stock for slabs of the class. Small blocks count as few until they have filled a slab. */
static unsigned warm_stock_of(const struct heap *heap, unsigned class)
{
    return class_size(class) <= SPARSE_MAX && heap->body->filled[class] == 0 ? WARM_SPARSE : size_classes[class].units;
}

/* Slabs of so few blocks serve a part of a batch, if they are warm and have memory: each batch costs a slow call. */
#define WARM_BATCH_BLOCKS 4u

/* Whether a batch that has blocks already gets those of one slab more. */
static bool warm_continues(const struct heap *heap, unsigned class)
{
    const struct slab *slab = heap->body->warm[warm_stock_of(heap, class)].stack;

    return size_classes[class].blocks <= WARM_BATCH_BLOCKS && slab && !slab->zero;
}

/* A slab is missing: if the last that became empty was one too many, twice as many may wait from now on (O6). */
static void warm_learn(struct heap *heap, unsigned class)
{
    struct warm_bound *bound = &heap->body->warm_bound;

    if (HAK_LIKELY(!bound->refused) || !warm_learns(class))
        return;
    bound->refused = false;
    bound->most = (uint32_t)base_min(base_max(bound->most, WARM_FIRST) * 2, WARM_TOTAL);
}

/* Fills the stock from the shared pool under one lock: with one span, or with as many slabs as its misses have shown to
 * be needed. */
static bool warm_refill(struct heap *heap, unsigned class, unsigned number)
{
    struct slab *slabs[16];
    struct warm_stock *stock = &heap->body->warm[number];
    unsigned units = size_classes[class].units;
    unsigned most = (unsigned)base_max(1, base_min(hak_options.warm_pool, units == 1 ? 16 : 8 / units));
    size_t budget, count, i;

    warm_learn(heap, class);
    most = class_is_span(class) ? 1 : (unsigned)base_min(most, 1 + heap->slabs / WARM_SHARE);
    budget = base_min(stock->budget ? stock->budget * 2u : 1, most);
    count = heap_acquire_touched(heap, class, 1, budget, slabs);
    if (count == 0)
        count = shared_pool_acquire(units, 1, budget, number == WARM_SPARSE ? POOL_SPARSE : POOL_DENSE, slabs);
    stock->budget = (uint16_t)budget;
    if (hak_options.populate && heap->body->filled[class] >= POPULATE_PROOF &&
        class_size(class) <= ARRIVAL_SMALL_BLOCK)
        warm_populate(slabs, base_min(count, heap->slabs / POPULATE_SHARE / units));
    /* The stack's top is the lowest address. */
    for (i = count; i-- > 0;)
        heap_push_warm(heap, number, slabs[i]);
    if (!class_is_span(class))
        heap->body->counters.warm_prefilled += count;
    debug_count_of(COUNT_WARM_PREFILL, class, count);
    debug_count_of(COUNT_REFILL_POOL, class, 1);
    return count != 0;
}

/* ---- Taking ---- */

/* The page map's byte for slabs of the class: 0 if their blocks never enter a thread cache (W2). */
static unsigned heap_page_map_class(const struct heap *heap, unsigned class)
{
    return heap_is_cached(heap) ? class : CLASS_NONE;
}

static void heap_carve(struct heap *heap, struct slab *slab, unsigned class)
{
    slab_carve(slab, class, heap);
    slab->dense |= class_size(class) > SPARSE_MAX;
    slab_set_page_map(slab, heap_page_map_class(heap, class));
    slab_list_push(&heap->body->available[class], slab);
    heap_count_slab(heap, slab, 1);
    heap->body->counters.slabs_carved++;
    heap->classes[class].carved++;
    debug_count_of(COUNT_MF2_NEW_PAGE, class, 1);
}

/* Gets the heap a slab of the class with free blocks: an orphan's or an idle heap's, else a warm or a new one. */
static bool heap_get_slab(struct heap *heap, unsigned class)
{
    unsigned number = warm_stock_of(heap, class);
    struct warm_stock *stock = &heap->body->warm[number];

    if (!class_is_span(class) && heap_serves_threads(heap) && registry_adopt(heap, class)) {
        debug_count_of(COUNT_REFILL_ADOPTED, class, 1);
        return true;
    }
    debug_count_of(stock->stack ? COUNT_WARM_HIT : COUNT_WARM_MISS, class, 1);
    debug_count_of(COUNT_REFILL_WARM_HIT, class, stock->stack != NULL);
    if (stock->stack)
        heap->body->counters.warm_hits++;
    else
        heap->body->counters.warm_misses++;
    if (!stock->stack && !warm_refill(heap, class, number))
        return false;
    heap_carve(heap, heap_pop_warm(heap, number), class);
    return true;
}

static void heap_count_taken(struct heap *heap, unsigned class, size_t blocks)
{
    struct class_counters *counters = &heap->classes[class];

    heap->body->counters.refills++;
    heap->body->counters.refilled_blocks += blocks;
    counters->refills++;
    counters->refilled_blocks += blocks;
    heap_count_used(heap, blocks * class_size(class));
}

size_t heap_take_blocks(struct heap *heap, unsigned class, void **out, size_t want, bool *zero)
{
    struct slab_list *available = &heap->body->available[class];
    size_t position = want;

    heap_note_slow_path(heap);
    if (atomic_load_explicit(&heap->pending, memory_order_relaxed)) {
        debug_count_of(COUNT_REFILL_REMOTE_DRAIN, class, 1);
        remote_drain(heap);
    }
    debug_count_of(COUNT_REFILL_AVAILABLE, class, available->head != NULL);
    *zero = false;
    while (position) {
        struct slab *slab = available->head;
        if (!slab) {
            /* A slab that costs memory is taken for an empty batch only. */
            heap->body->counters.slab_misses += position == want;
            if ((position < want && !warm_continues(heap, class)) || !heap_get_slab(heap, class))
                break;
            slab = available->head;
            *zero = slab->zero && class_is_span(class);
        }
        if (HAK_UNLIKELY(slab->holes))
            footprint_holes_wanted();
        position = slab_take(slab, out, position);
        if (slab->summary == 0) {
            slab_list_remove(available, slab);
            slab_list_push(&heap->full, slab);
            slab->dense = true;
            heap->body->filled[class] += heap->body->filled[class] != UINT16_MAX;
        }
    }
    if (position && position < want)
        __builtin_memmove(out, out + position, (want - position) * sizeof *out);
    debug_count_of(COUNT_REFILL_FAILED, class, position == want);
    heap_count_taken(heap, class, want - position);
    return want - position;
}

void *heap_take_aligned_span(struct heap *heap, unsigned class, unsigned align_units, bool *zero)
{
    struct slab *slab;
    void *block;

    if (heap_acquire_touched(heap, class, align_units, 1, &slab) == 0 &&
        shared_pool_acquire(size_classes[class].units, align_units, 1, POOL_DENSE, &slab) == 0)
        return NULL;
    *zero = slab->zero;
    slab_carve(slab, class, heap);
    slab->dense = true;
    slab_set_page_map(slab, heap_page_map_class(heap, class));
    heap_count_slab(heap, slab, 1);
    slab_take(slab, &block, 1);
    slab_list_push(&heap->full, slab);
    heap->body->counters.slabs_carved++;
    heap->body->counters.slab_misses++;
    heap->classes[class].carved++;
    heap_count_taken(heap, class, 1);
    heap->classes[class].direct++;
    return block;
}
