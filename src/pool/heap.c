#include "pool/heap.h"

#include "observe/counters.h"
#include "options/options.h"
#include "pool/misuse.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

/* Of the slabs that become empty, a stock keeps this many: the shared pool has a use for more. */
#define WARM_KEPT 2u

HAK_DATA_HERE struct heap_signals heap_signals;

/* H6 */
static struct slab_list *heap_list_of(struct heap *heap, const struct slab *slab)
{
    return slab->summary ? &heap->body->available[slab->class] : &heap->full;
}

/* ---- The warm pool ---- */

void heap_release_warm(struct heap *heap)
{
    for (unsigned number = 0; number < WARM_STOCKS; number++) {
        struct warm_stock *stock = &heap->body->warm[number];
        while (stock->stack) {
            struct slab *slab = stock->stack;
            stock->stack = slab->next;
            shared_pool_release(slab);
        }
        if (stock->count || stock->budget) { /* a purged body is not written to */
            stock->count = 0;
            stock->budget = 0;
        }
    }
}

/* An empty slab leaves at once: into the warm pool, or to the shared pool when that has enough. */
static void heap_release_slab(struct heap *heap, struct slab *slab)
{
    bool span = class_is_span(slab->class);
    struct warm_stock *stock = &heap->body->warm[slab->dense ? slab->units % WARM_STOCKS : WARM_SPARSE];

    slab_set_page_map(slab, CLASS_NONE);
    atomic_store_explicit(&slab->state, SLAB_WARM, memory_order_relaxed);
    slab->zero = false;
    heap_count_slabs(heap, -1);
    heap->body->counters.slabs_released++;
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

/* ---- Returning ---- */

void heap_slab_freed(struct heap *heap, struct slab *slab, bool was_full, uint32_t freed)
{
    slab->used -= freed;
    if (slab->used == 0) {
        slab_list_remove(was_full ? &heap->full : &heap->body->available[slab->class], slab);
        heap_release_slab(heap, slab);
    } else if (was_full && slab->summary) {
        slab_list_remove(&heap->full, slab);
        slab_list_push(&heap->body->available[slab->class], slab);
    }
}

void heap_adopt_slab(struct heap *heap, struct heap *from, struct slab *slab)
{
    slab_list_remove(heap_list_of(from, slab), slab);
    atomic_store_explicit(&slab->owner, heap, memory_order_release);
    slab_list_push(heap_list_of(heap, slab), slab);
    heap_count_slabs(from, -1);
    heap_count_slabs(heap, 1);
    heap->body->counters.slabs_adopted++;
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

    heap_note_slow_path(heap);
    heap->body->counters.flushes++;
    heap->body->counters.flushed_blocks += count;
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
    heap->body->counters.remote_blocks += remote;
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
        for (struct slab *slab = heap->body->available[class].head; slab; slab = slab->next)
            done &= slab_scrub(slab, purged);
    return done;
}

static void heap_release_list(struct heap *heap, struct slab_list *list)
{
    while (list->head) {
        struct slab *slab = list->head;
        slab_list_remove(list, slab);
        heap->classes[slab->class].returned_blocks += slab->used;
        slab->used = 0;
        heap_release_slab(heap, slab);
    }
}

void heap_release_all(struct heap *heap)
{
    heap_release_list(heap, &heap->full);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        heap_release_list(heap, &heap->body->available[class]);
    heap_release_warm(heap);
}
