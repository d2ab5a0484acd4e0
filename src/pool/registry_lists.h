/* The registry's lists of heaps (O5). Call all but list_length under registry.lock. */
#ifndef HAK_POOL_REGISTRY_LISTS_H
#define HAK_POOL_REGISTRY_LISTS_H

#include "pool/registry.h"

HAK_INLINE void list_add(struct heap *heap, enum registry_list number, bool first)
{
    struct heap_list *list = &registry.lists[number];

    HAK_ASSERT(heap->list == LIST_NONE);
    heap->list = (uint8_t)number;
    heap->before = first ? NULL : list->last;
    heap->after = first ? list->first : NULL;
    *(heap->before ? &heap->before->after : &list->first) = heap;
    *(heap->after ? &heap->after->before : &list->last) = heap;
    atomic_store_explicit(&list->count, list->count + 1, memory_order_relaxed);
}

HAK_INLINE struct heap *list_remove(struct heap *heap)
{
    struct heap_list *list = &registry.lists[heap->list];

    HAK_ASSERT(heap->list != LIST_NONE);
    *(heap->before ? &heap->before->after : &list->first) = heap->after;
    *(heap->after ? &heap->after->before : &list->last) = heap->before;
    if (list->trim_hand == heap)
        list->trim_hand = heap->after;
    if (list->adopt_hand == heap)
        list->adopt_hand = heap->after;
    if (list->warm_hand == heap)
        list->warm_hand = heap->after;
    heap->list = LIST_NONE;
    atomic_store_explicit(&list->count, list->count - 1, memory_order_relaxed);
    return heap;
}

HAK_INLINE struct heap *list_take_first(enum registry_list number)
{
    struct heap *heap = registry.lists[number].first;

    return heap ? list_remove(heap) : NULL;
}

/* Returns the heap at the hand, and moves the hand on. NULL: the list is empty. */
HAK_INLINE struct heap *list_turn(struct heap_list *list, struct heap **hand)
{
    struct heap *heap = *hand ? *hand : list->first;

    *hand = heap ? heap->after : NULL;
    return heap;
}

HAK_INLINE uint32_t list_length(enum registry_list number)
{
    return atomic_load_explicit(&registry.lists[number].count, memory_order_relaxed);
}

#endif
