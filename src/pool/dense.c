#include "pool/dense.h"

/* Blocks in use, without those whose remote free is announced (H1). */
static uint32_t used(const struct slab *slab)
{
    uint32_t pending = atomic_load_explicit(&slab->remote_count, memory_order_relaxed);

    return slab->used - (uint32_t)base_min(slab->used, pending);
}

/* Slabs that were looked at and not chosen go to the end of the list, so that every slab has its turn. */
void heap_prefer_dense(struct heap *heap, unsigned class, const struct slab **chosen)
{
    struct slab_list *list = &heap->body->available[class];
    struct slab *best = list->head, *last = list->tail, *slab = list->head;
    bool more = true;

    if (best == NULL || best == *chosen)
        return;
    for (unsigned left = DENSE_LOOK; left && more; left--) {
        struct slab *next = slab->next;
        more = slab != last;
        if (used(slab) > used(best))
            best = slab;
        slab_list_remove(list, slab);
        slab_list_append(list, slab);
        slab = next;
    }
    slab_list_remove(list, best);
    slab_list_push(list, best);
    *chosen = best;
}

void heap_add_dense_usage(const struct heap *heap, unsigned class, struct dense_usage *usage)
{
    for (const struct slab *slab = heap->body->available[class].head; slab; slab = slab->next) {
        usage->slabs++;
        usage->used += used(slab);
    }
}
