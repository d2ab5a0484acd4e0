#include "pool/heap.h"

#include <string.h>

#include "observe/counters.h"
#include "options/options.h"
#include "pool/misuse.h"
#include "pool/slab.h"
#include "superslab/footprint.h"

HAK_DATA_HERE struct heap_signals heap_signals = { .warm_share = WARM_TOTAL, .cache_share = UINT32_MAX };

/* The list that the slab is in (H6). */
static struct slab_list *heap_list_of(struct heap *heap, const struct slab *slab)
{
    return slab->summary ? &heap->body->available[slab->class] : &heap->full;
}

/* ---- The warm pool (O6) ---- */

/* The units that wait in the pool. A slab that no one has used yet has no memory. */
static void warm_count(struct heap *heap, const struct slab *slab, int sign)
{
    struct warm_bound *bound = &heap->body->warm_bound;
    int more = slab->zero ? 0 : sign * slab->units;

    if (more == 0)
        return;
    __atomic_store_n(&bound->units, bound->units + (uint32_t)more, __ATOMIC_RELAXED);
    shared_pool_warm(more);
}

void heap_push_warm(struct heap *heap, unsigned number, struct slab *slab)
{
    struct warm_stock *stock = &heap->body->warm[number];

    slab->next = stock->stack;
    stock->stack = slab;
    stock->count++;
    warm_count(heap, slab, 1);
}

struct slab *heap_pop_warm(struct heap *heap, unsigned number)
{
    struct warm_stock *stock = &heap->body->warm[number];
    struct slab *slab = stock->stack;

    stock->stack = slab->next;
    stock->count--;
    warm_count(heap, slab, -1);
    return slab;
}

void heap_release_warm(struct heap *heap)
{
    struct slab_list leaving = { 0 };

    for (unsigned number = 0; number < WARM_STOCKS; number++) {
        struct warm_stock *stock = &heap->body->warm[number];
        while (stock->stack)
            slab_list_append(&leaving, heap_pop_warm(heap, number));
        if (stock->budget) /* never write to a purged body */
            stock->budget = 0;
    }
    heap_let_leave(&leaving);
}

void heap_unlearn_warm(struct heap *heap)
{
    heap_release_warm(heap);
    heap->body->warm_bound.most = 0;
}

/* Units that may wait in the heap's pool when a slab of the class becomes empty. */
static uint32_t warm_most(const struct heap *heap, unsigned class)
{
    bool learns = warm_learns(class) && atomic_load_explicit(&heap_signals.several, memory_order_relaxed);

    return (uint32_t)base_min(learns ? base_max(heap->body->warm_bound.most, WARM_FIRST) : WARM_FIRST,
                              atomic_load_explicit(&heap_signals.warm_share, memory_order_relaxed));
}

/* Whether the empty slab waits with the heap: it may need the slab again, and nobody else needs the memory. */
static bool warm_keeps(struct heap *heap, const struct slab *slab)
{
    struct warm_bound *bound = &heap->body->warm_bound;
    bool fits;

    if (!heap_serves_threads(heap) || heap->state != HEAP_LIVE || !heap_may_keep())
        return false;
    if (bound->units + slab->units > WARM_FIRST) {
        uint32_t growths = shared_pool_growths();
        if (bound->units > WARM_FIRST && bound->growths != growths)
            heap_unlearn_warm(heap);
        bound->growths = growths;
    }
    fits = bound->units + slab->units <= warm_most(heap, slab->class);
    if (warm_learns(slab->class))
        bound->refused = !fits;
    return fits;
}

/* Gives an empty slab away: to the warm pool, or to those that leave if enough waits there. */
static void heap_release_slab(struct heap *heap, struct slab *slab, struct slab_list *leaving)
{
    slab_set_page_map(slab, CLASS_NONE);
    atomic_store_explicit(&slab->state, SLAB_WARM, memory_order_relaxed);
    slab->zero = false;
    heap_count_slab(heap, slab, -1);
    heap->body->counters.slabs_released++;
    heap->classes[slab->class].released++;
    if (warm_keeps(heap, slab)) {
        heap_push_warm(heap, slab->dense ? slab->units : WARM_SPARSE, slab);
        debug_count_of(COUNT_WARM_KEEP, slab->class, 1);
        shared_pool_want_purge();
    } else {
        debug_count_of(COUNT_WARM_RELEASE, slab->class, 1);
        slab_list_append(leaving, slab);
    }
}

/* ---- Returning ---- */

void heap_slab_freed(struct heap *heap, struct slab *slab, bool was_full, uint32_t freed, struct slab_list *leaving)
{
    slab->used -= freed;
    if (slab->used == 0) {
        slab_list_remove(was_full ? &heap->full : &heap->body->available[slab->class], slab);
        heap_release_slab(heap, slab, leaving);
    } else if (was_full && slab->summary) {
        slab_list_remove(&heap->full, slab);
        slab_list_push(&heap->body->available[slab->class], slab);
    }
}

void heap_adopt_slab(struct heap *heap, struct heap *from, struct slab *slab)
{
    slab_list_remove(heap_list_of(from, slab), slab);
    /* Release: a remote freer that reads the new owner finds that heap's fields set. */
    atomic_store_explicit(&slab->owner, heap, memory_order_release);
    slab_list_push(heap_list_of(heap, slab), slab);
    heap_count_slab(from, slab, -1);
    heap_count_slab(heap, slab, 1);
    heap->body->counters.slabs_adopted++;
}

/* Whether the block lies in the slab. */
static bool lies_in(const struct slab *slab, const struct size_class *row, const void *block)
{
    return (size_t)((const char *)block - slab->start) < row->units * UNIT_SIZE;
}

/* Programs often free neighbours in a row, so blocks of one slab share the look at its header. */
size_t heap_return_blocks(struct heap *heap, unsigned class, void **blocks, size_t count, const char *function)
{
    struct class_counters *counters = &heap->classes[class];
    const struct size_class *row = &size_classes[class];
    void **at = blocks, **end = blocks + count, **others = blocks;
    struct slab_list leaving = { 0 };
    size_t remote, none = 0;

    heap_note_slow_path(heap);
    while (at != end) {
        struct slab *slab = slab_of(*at);
        enum slab_put_result result = SLAB_PUT_DONE;
        if (HAK_UNLIKELY(slab->class != class ||
                         atomic_load_explicit(&slab->state, memory_order_relaxed) != SLAB_ACTIVE)) {
            result = SLAB_PUT_FREED;
        } else if (atomic_load_explicit(&slab->owner, memory_order_relaxed) != heap) {
            const char *start = slab->start;
            size_t bytes = slab_bytes(slab);
            if (others == at) { /* no gap before: nothing to move */
                do
                    at++;
                while (at != end && (size_t)((const char *)*at - start) < bytes);
                others = at;
            } else {
                do
                    *others++ = *at++;
                while (at != end && (size_t)((const char *)*at - start) < bytes);
            }
        } else {
            bool was_full = slab->summary == 0;
            void **first = at;
            if (at + 1 != end && lies_in(slab, row, at[1])) {
                at = slab_put_run(slab, at, end, &result);
            } else {
                result = slab_put_at(slab, row, (size_t)((char *)*at - slab->start));
                slab->scrubbed = false;
                at += result == SLAB_PUT_DONE;
            }
            if (HAK_LIKELY(at != first))
                heap_slab_freed(heap, slab, was_full, (uint32_t)(at - first), &leaving);
        }
        if (HAK_UNLIKELY(result != SLAB_PUT_DONE)) {
            misuse_report(function, *at++, result == SLAB_PUT_FREED ? MISUSE_FREED : MISUSE_NO_BLOCK);
            none++;
        }
    }
    heap_let_leave(&leaving);
    remote = (size_t)(others - blocks);
    heap->body->counters.flushes++;
    heap->body->counters.flushed_blocks += count;
    heap->body->counters.remote_blocks += remote;
    counters->flushes++;
    counters->flushed_blocks += count;
    heap_count_returned(heap, class, count - remote - none);
    debug_count_of(COUNT_MAP_LOCAL, class, count - remote - none);
    return remote;
}

bool heap_scrub(struct heap *heap, struct slab_look *look, size_t *purged)
{
    bool done = true;

    for (unsigned class = 1; class < CLASS_SPAN_1; class++)
        for (struct slab *slab = heap->body->available[class].head; slab; slab = slab->next)
            done &= slab_scrub(slab, look, purged);
    return done;
}

/* Units that a search looks at, at most: in a large window few may be the heap's. */
#define SCRUB_UNITS 16384u

/* Fills slabs[] with up to SCRUB_SLABS of the heap's, from *unit on. A unit that the page map says is in use keeps its
 * SuperSlab's header mapped under pool.lock. */
static unsigned find_slabs(const struct heap *heap, size_t *unit, struct slab **slabs)
{
    const uint8_t *classes = window_page_map();
    size_t end = base_min(*unit + SCRUB_UNITS, window_units());
    unsigned count = 0;

    lock_acquire(&shared_pool.lock);
    for (; *unit < end && count < SCRUB_SLABS; ++*unit) {
        unsigned class = __atomic_load_n(&classes[*unit], __ATOMIC_RELAXED);
        char *start = window_base() + *unit * UNIT_SIZE;
        struct slab *slab;
        if (class == CLASS_NONE || class_is_span(class))
            continue;
        slab = slab_of(start);
        if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap && slab->start == start)
            slabs[count++] = slab;
    }
    lock_release(&shared_pool.lock);
    return count;
}

size_t heap_scrub_some(struct heap *heap, size_t unit)
{
    struct slab *slabs[SCRUB_SLABS];
    unsigned count = find_slabs(heap, &unit, slabs);
    size_t purged = 0;

    for (unsigned i = 0; i < count; i++)
        slab_scrub(slabs[i], NULL, &purged);
    return unit < window_units() ? unit : 0;
}

static void heap_release_list(struct heap *heap, struct slab_list *list, struct slab_list *leaving)
{
    while (list->head) {
        struct slab *slab = list->head;
        slab_list_remove(list, slab);
        heap_count_returned(heap, slab->class, slab->used);
        slab->used = 0;
        heap_release_slab(heap, slab, leaving);
    }
}

void heap_release_all(struct heap *heap)
{
    struct slab_list leaving = { 0 };

    heap_release_list(heap, &heap->full, &leaving);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        heap_release_list(heap, &heap->body->available[class], &leaving);
    heap_let_leave(&leaving);
    heap_release_warm(heap);
}
