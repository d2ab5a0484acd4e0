#include "pool/heap.h"

#include "observe/counters.h"
#include "options/options.h"
#include "pool/misuse.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

/* A class that has filled this many slabs will likely fill the next: their memory is faulted in with one call, at most one for this
 * many slabs in use. */
#define POPULATE_PROOF 8u
#define POPULATE_SHARE 8u
/* Runs of warm slabs from this many units on are worth the call. */
#define POPULATE_MIN_UNITS 4u
/* Slabs of blocks up to this size are mostly empty at first; those of larger ones soon have memory behind most of them. */
#define SPARSE_MAX 4096u
/* Of the slabs that become empty, a stock keeps this many: the shared pool has a use for more. */
#define WARM_KEPT 2u
/* A stock is filled to at most one slab, and one for this many slabs in use: slabs in waiting hold memory that others touched. */
#define WARM_SHARE 8u

static void list_push(struct slab_list *list, struct slab *slab)
{
    slab->prev = NULL;
    slab->next = list->head;
    if (list->head)
        list->head->prev = slab;
    else
        list->tail = slab;
    list->head = slab;
}

static void list_remove(struct slab_list *list, struct slab *slab)
{
    if (slab->prev)
        slab->prev->next = slab->next;
    else
        list->head = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
    else
        list->tail = slab->prev;
}

/* H6 */
static struct slab_list *heap_list_of(struct heap *heap, const struct slab *slab)
{
    return slab->summary ? &heap->available[slab->class] : &heap->full;
}

/* ---- The warm pool ---- */

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
            /* A call that fails may have done a part. */
            os_populate(start, (size_t)(end - start));
            for (; first < i; first++)
                slabs[first]->populated = slabs[first]->dense = true;
        }
    }
}

/* The stock for slabs of the class: small blocks are few until they have filled a slab once. */
static unsigned warm_stock_of(const struct heap *heap, unsigned class)
{
    return class_size(class) <= SPARSE_MAX && heap->filled[class] == 0 ? WARM_SPARSE : size_classes[class].units;
}

/* Fills the stock from the shared pool under one lock, as much as its misses have proven to be wanted. */
static bool warm_refill(struct heap *heap, unsigned class, unsigned number)
{
    struct slab *slabs[16];
    struct warm_stock *stock = &heap->warm[number];
    unsigned units = size_classes[class].units;
    unsigned most = (unsigned)base_max(1, base_min(hak_options.warm_pool, units == 1 ? 16 : 8 / units));
    size_t count, i;

    most = (unsigned)base_min(most, 1 + heap->slabs / WARM_SHARE);
    stock->budget = (uint16_t)base_min(stock->budget ? stock->budget * 2u : 1, most);
    count = shared_pool_acquire(units, 1, stock->budget, number == WARM_SPARSE ? POOL_SPARSE : POOL_DENSE, slabs);
    if (hak_options.populate && heap->filled[class] >= POPULATE_PROOF)
        warm_populate(slabs, base_min(count, heap->slabs / POPULATE_SHARE / units));
    /* The stack's top is the lowest address. */
    for (i = count; i-- > 0;) {
        slabs[i]->next = stock->stack;
        stock->stack = slabs[i];
    }
    stock->count = (uint16_t)(stock->count + count);
    heap->counters.warm_prefilled += count;
    debug_count_of(COUNT_WARM_PREFILL, class, count);
    debug_count_of(COUNT_REFILL_POOL, class, 1);
    return count != 0;
}

static struct slab *warm_take(struct heap *heap, unsigned class)
{
    unsigned number = warm_stock_of(heap, class);
    struct warm_stock *stock = &heap->warm[number];
    struct slab *slab;

    if (stock->stack) {
        heap->counters.warm_hits++;
        debug_count_of(COUNT_WARM_HIT, class, 1);
        debug_count_of(COUNT_REFILL_WARM_HIT, class, 1);
    } else {
        heap->counters.warm_misses++;
        debug_count_of(COUNT_WARM_MISS, class, 1);
        if (!warm_refill(heap, class, number))
            return NULL;
    }
    slab = stock->stack;
    stock->stack = slab->next;
    stock->count--;
    return slab;
}

void heap_release_warm(struct heap *heap)
{
    for (unsigned number = 0; number < WARM_STOCKS; number++) {
        struct warm_stock *stock = &heap->warm[number];
        while (stock->stack) {
            struct slab *slab = stock->stack;
            stock->stack = slab->next;
            shared_pool_release(slab);
        }
        stock->count = 0;
        stock->budget = 0;
    }
}

/* An empty slab leaves at once: into the warm pool, or to the shared pool when that has enough. */
static void heap_release_slab(struct heap *heap, struct slab *slab)
{
    bool span = class_is_span(slab->class);
    struct warm_stock *stock = &heap->warm[slab->dense ? slab->units % WARM_STOCKS : WARM_SPARSE];

    slab_set_page_map(slab, CLASS_NONE);
    atomic_store_explicit(&slab->state, SLAB_WARM, memory_order_relaxed);
    slab->zero = false;
    heap->slabs--;
    heap->counters.slabs_released++;
    heap->classes[slab->class].released++;
    if (!span && stock->count < base_min(stock->budget, WARM_KEPT)) {
        slab->next = stock->stack;
        stock->stack = slab;
        stock->count++;
        debug_count_of(COUNT_WARM_KEEP, slab->class, 1);
        shared_pool_want_purge();
    } else {
        debug_count_of(COUNT_WARM_RELEASE, slab->class, 1);
        shared_pool_release(slab);
    }
}

/* ---- Taking ---- */

/* W2: blocks that never enter a thread cache. */
static unsigned heap_page_map_class(const struct heap *heap, unsigned class)
{
    return heap->kind == HEAP_FIRST_CLASS || heap->kind == HEAP_PROFILE ? CLASS_NONE : class;
}

static void heap_carve(struct heap *heap, struct slab *slab, unsigned class)
{
    slab_carve(slab, class, heap);
    slab->dense |= class_size(class) > SPARSE_MAX;
    slab_set_page_map(slab, heap_page_map_class(heap, class));
    list_push(&heap->available[class], slab);
    heap->slabs++;
    heap->counters.slabs_carved++;
    heap->classes[class].carved++;
    debug_count_of(COUNT_MF2_NEW_PAGE, class, 1);
}

/* A slab with free blocks of the class: an abandoned or idle heap's, else a warm one. */
static bool heap_get_slab(struct heap *heap, unsigned class)
{
    struct slab *slab;

    if (class_is_span(class)) {
        if (shared_pool_acquire(size_classes[class].units, 1, 1, POOL_DENSE, &slab) == 0)
            return false;
        debug_count_of(COUNT_REFILL_POOL, class, 1);
    } else {
        if (heap->kind == HEAP_THREAD && registry_adopt(heap, class)) {
            debug_count_of(COUNT_REFILL_ADOPTED, class, 1);
            return true;
        }
        slab = warm_take(heap, class);
        if (!slab)
            return false;
    }
    heap_carve(heap, slab, class);
    return true;
}

static void heap_count_taken(struct heap *heap, unsigned class, size_t blocks)
{
    struct class_counters *counters = &heap->classes[class];

    heap->counters.refills++;
    heap->counters.refilled_blocks += blocks;
    counters->refills++;
    counters->refilled_blocks += blocks;
}

size_t heap_take_blocks(struct heap *heap, unsigned class, void **out, size_t want, bool *zero)
{
    struct slab_list *available = &heap->available[class];
    size_t position = want;

    atomic_fetch_add_explicit(&heap->epoch, 1, memory_order_relaxed);
    if (atomic_load_explicit(&heap->pending, memory_order_relaxed)) {
        debug_count_of(COUNT_REFILL_REMOTE_DRAIN, class, 1);
        remote_drain(heap);
    }
    debug_count_of(COUNT_REFILL_AVAILABLE, class, available->head != NULL);
    *zero = false;
    while (position) {
        struct slab *slab = available->head;
        if (!slab) {
            /* A new slab is taken for nothing at all, not for the rest of a batch. */
            if (position < want || !heap_get_slab(heap, class))
                break;
            slab = available->head;
            *zero = slab->zero && class_is_span(class);
        }
        position = slab_take(slab, out, position);
        if (slab->summary == 0) {
            list_remove(available, slab);
            list_push(&heap->full, slab);
            slab->dense = true;
            heap->filled[class] += heap->filled[class] != UINT16_MAX;
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

    if (shared_pool_acquire(size_classes[class].units, align_units, 1, POOL_DENSE, &slab) == 0)
        return NULL;
    *zero = slab->zero;
    slab_carve(slab, class, heap);
    slab->dense = true;
    slab_set_page_map(slab, heap_page_map_class(heap, class));
    slab_take(slab, &block, 1);
    list_push(&heap->full, slab);
    heap->slabs++;
    heap->counters.slabs_carved++;
    heap->classes[class].carved++;
    heap_count_taken(heap, class, 1);
    heap->classes[class].direct++;
    return block;
}

/* ---- Returning ---- */

void heap_slab_freed(struct heap *heap, struct slab *slab, bool was_full, uint32_t freed)
{
    slab->used -= freed;
    if (slab->used == 0) {
        list_remove(was_full ? &heap->full : &heap->available[slab->class], slab);
        heap_release_slab(heap, slab);
    } else if (was_full && slab->summary) {
        list_remove(&heap->full, slab);
        list_push(&heap->available[slab->class], slab);
    }
}

void heap_adopt_slab(struct heap *heap, struct heap *from, struct slab *slab)
{
    list_remove(heap_list_of(from, slab), slab);
    atomic_store_explicit(&slab->owner, heap, memory_order_release);
    list_push(heap_list_of(heap, slab), slab);
    from->slabs--;
    heap->slabs++;
    heap->counters.slabs_adopted++;
}

static void heap_report_put(const char *function, const void *block, enum slab_put_result result)
{
    misuse_report(function, block, result == SLAB_PUT_FREED ? MISUSE_FREED : MISUSE_NO_BLOCK);
}

/* Blocks of one slab in a row, as programs often free them, share the look at the slab. */
size_t heap_return_blocks(struct heap *heap, unsigned class, void **blocks, size_t count, const char *function)
{
    const struct size_class *row = &size_classes[class];
    struct class_counters *counters = &heap->classes[class];
    struct slab *slab = NULL;
    char *start = NULL;
    size_t remote = 0, bytes = 0, i;
    uint32_t freed = 0, none = 0;
    bool mine = false, was_full = false;

    atomic_fetch_add_explicit(&heap->epoch, 1, memory_order_relaxed);
    heap->counters.flushes++;
    heap->counters.flushed_blocks += count;
    for (i = 0; i < count; i++) {
        void *block = blocks[i];
        enum slab_put_result result;

        if ((size_t)((char *)block - start) >= bytes) {
            if (freed)
                heap_slab_freed(heap, slab, was_full, freed);
            freed = 0;
            bytes = 0;
            slab = slab_of(block);
            if (HAK_UNLIKELY(slab->class != class || atomic_load_explicit(&slab->state, memory_order_relaxed) != SLAB_ACTIVE)) {
                misuse_report(function, block, MISUSE_FREED);
                none++;
                continue;
            }
            start = slab->start;
            bytes = row->units * UNIT_SIZE;
            mine = atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap;
            if (mine) {
                was_full = slab->summary == 0;
                slab->scrubbed = false;
            }
        }
        if (!mine) {
            blocks[remote++] = block;
            continue;
        }
        result = slab_put_at(slab, row, (size_t)((char *)block - start));
        if (HAK_UNLIKELY(result != SLAB_PUT_DONE)) {
            heap_report_put(function, block, result);
            none++;
        } else {
            freed++;
        }
    }
    if (freed)
        heap_slab_freed(heap, slab, was_full, freed);
    heap->counters.remote_blocks += remote;
    counters->flushes++;
    counters->flushed_blocks += count;
    counters->returned_blocks += count - remote - none;
    debug_count_of(COUNT_FREE_SS_LOCAL, class, count - remote - none);
    debug_count_of(COUNT_MF2_OWNER_FREE, class, count - remote - none);
    debug_count_of(COUNT_MF2_REMOTE_FREE, class, remote);
    return remote;
}

bool heap_scrub(struct heap *heap, size_t *purged)
{
    bool done = true;

    for (unsigned class = 1; class < CLASS_SPAN_1; class++)
        for (struct slab *slab = heap->available[class].head; slab; slab = slab->next)
            done &= slab_scrub(slab, purged);
    return done;
}

static void heap_release_list(struct heap *heap, struct slab_list *list)
{
    while (list->head) {
        struct slab *slab = list->head;
        list_remove(list, slab);
        heap->classes[slab->class].returned_blocks += slab->used;
        slab->used = 0;
        heap_release_slab(heap, slab);
    }
}

void heap_release_all(struct heap *heap)
{
    heap_release_list(heap, &heap->full);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        heap_release_list(heap, &heap->available[class]);
    heap_release_warm(heap);
}
