/* The look at a thread's free blocks as the hardened process ends: a write after free that no later call would find. */
#include "front/hardened.h"
#include "front/thread_cache.h"
#include "harden/seal.h"
#include "pool/misuse.h"
#include "pool/slab.h"

/* So many of the heap's slabs, mostly of 64 KiB, are checked: that takes a millisecond or two. */
#define EXIT_SLABS 256u

/* A free block of the slab that is not zero, or NULL. Under its heap's lock. */
static const char *slab_find_written(struct slab *slab)
{
    size_t size = class_size(slab->class);

    for (unsigned i = 0; i < slab_words(slab); i++)
        for (uint64_t free = atomic_load_explicit(&slab->local[i], memory_order_relaxed); free; free &= free - 1) {
            const char *block = slab->start + ((size_t)i * 64 + base_low_bit(free)) * size;
            if (!seal_is_zero(block, size))
                return block;
        }
    return NULL;
}

static const char *heap_find_written(struct heap *heap)
{
    unsigned slabs = 0;

    for (unsigned class = 1; class < CLASS_SPAN_1; class++)
        for (struct slab *slab = heap->body->available[class].head; slab && slabs < EXIT_SLABS;
             slab = slab->next, slabs++) {
            const char *written = slab_find_written(slab);
            if (written)
                return written;
        }
    return NULL;
}

void hardened_look_at_exit(void)
{
    struct thread_cache *cache = cache_current();
    const char *written = NULL;

    if (cache->heap == NULL || lock_in_fork())
        return;
    for (unsigned class = 1; class < CLASS_SPAN_1 && written == NULL; class++)
        written = bins_find_written(&cache->hardened, cache->slots, class);
    if (written == NULL) {
        lock_acquire(&cache->heap->lock);
        written = heap_find_written(cache->heap);
        lock_release(&cache->heap->lock);
    }
    if (written)
        hardened_report_freed(written, seal_first_written(written, class_size(slab_of(written)->class)), "exit",
                              "found at the process's end");
    misuse_settle();
}
