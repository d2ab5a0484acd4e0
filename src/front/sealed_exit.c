/* The look at a thread's blocks as the hardened process ends: for writes that no later call would find. */
#include "front/sealed.h"
#include "front/thread_cache.h"
#include "harden/patrol.h"
#include "pool/misuse.h"

/* So many of the heap's slabs, mostly of 64 KiB, are checked: that takes a millisecond or two. */
#define EXIT_SLABS 32u

#define FOUND "found at the process's end"

static char *heap_find_written(struct heap *heap, bool *in_use)
{
    unsigned slabs = 0;
    char *written = NULL;

    for (unsigned class = 1; class < CLASS_SPAN_1; class++)
        for (struct slab *slab = heap->body->available[class].head; slab && slabs < EXIT_SLABS && written == NULL;
             slab = slab->next, slabs++)
            written = patrol_slab(slab, in_use);
    return written;
}

void sealed_look_at_exit(void)
{
    struct thread_cache *cache = cache_current();
    char *written;
    bool in_use;

    if (cache->heap == NULL || lock_in_fork())
        return;
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        patrol_exit(&cache->slots[cache->base[class] + 1], cache_count(cache, class), class, FOUND);
        patrol_exit(&cache->slots[size_classes[class].run_base + 1], cache_run_left(cache, class), class, FOUND);
    }
    lock_acquire(&cache->heap->lock);
    written = heap_find_written(cache->heap, &in_use);
    lock_release(&cache->heap->lock);
    if (written && in_use)
        patrol_report_end(written, "exit", FOUND);
    else if (written)
        patrol_report_written(written, class_size(slab_of(written)->class), "exit", FOUND);
    misuse_settle();
}
