/* What hardening does to first-class heaps. */
#include <string.h>

#include "front/sealed.h"
#include "harden/ledger.h"
#include "os/os.h"
#include "pool/heap.h"
#include "pool/slab.h"

static void sealed_clear_list(struct slab_list *list)
{
    for (struct slab *slab = list->head; slab; slab = slab->next) {
        if (slab->used == 0)
            continue;
        /* Seals of small blocks lie in this memory. */
        if (!os_purge(slab->start, slab_bytes(slab)))
            memset(slab->start, 0, slab_bytes(slab));
        ledger_clear(slab);
    }
}

void sealed_clear_heap(struct heap *heap)
{
    sealed_clear_list(&heap->full);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        sealed_clear_list(&heap->body->available[class]);
}
