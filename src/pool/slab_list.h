/* A list of slabs, linked by slab.next and slab.prev. */
#ifndef HAK_POOL_SLAB_LIST_H
#define HAK_POOL_SLAB_LIST_H

#include "superslab/superslab.h"

struct slab_list {
    struct slab *head, *tail;
};

HAK_INLINE void slab_list_push(struct slab_list *list, struct slab *slab)
{
    slab->prev = NULL;
    slab->next = list->head;
    if (list->head)
        list->head->prev = slab;
    else
        list->tail = slab;
    list->head = slab;
}

HAK_INLINE void slab_list_append(struct slab_list *list, struct slab *slab)
{
    slab->next = NULL;
    slab->prev = list->tail;
    if (list->tail)
        list->tail->next = slab;
    else
        list->head = slab;
    list->tail = slab;
}

HAK_INLINE void slab_list_remove(struct slab_list *list, struct slab *slab)
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

#endif
