#include "front/direct.h"

#include "front/process.h"
#include "observe/counters.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "superslab/shared_pool.h"

/* Whether the block is huge. */
static bool is_huge(size_t alignment, size_t size) { return size > POOLED_MAX || alignment > POOLED_MAX; }

/* The class of the span that is placed for an alignment above UNIT_SIZE. */
static unsigned placed_class(size_t size) { return class_of_size(base_max(size, UNIT_SIZE)); }

size_t direct_size(size_t alignment, size_t size)
{
    unsigned class = direct_class(alignment, size);

    if (alignment > REQUEST_MAX / 2)
        return 0;
    if (is_huge(alignment, size))
        return huge_size_for(size);
    return class_size(class != CLASS_NONE ? class : placed_class(size));
}

static struct heap *first_class_or_null(struct heap *heap) { return heap->kind == HEAP_FIRST_CLASS ? heap : NULL; }

void *direct_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    unsigned class;
    void *block = NULL;

    if (is_huge(alignment, size))
        return huge_allocate(size, alignment, zero, first_class_or_null(heap));
    class = direct_class(alignment, size);
    lock_acquire(&heap->lock);
    if (class != CLASS_NONE) {
        heap_take_blocks(heap, class, &block, 1, zero);
        heap->classes[class].direct++;
    } else {
        block = heap_take_aligned_span(heap, placed_class(size), (unsigned)(alignment >> UNIT_SHIFT), zero);
    }
    lock_release(&heap->lock);
    return block;
}

void *direct_map(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    return process_init() ? huge_allocate(size, alignment, zero, heap ? first_class_or_null(heap) : NULL) : NULL;
}

void *direct_house_allocate(unsigned class, bool *zero)
{
    void *block = NULL;

    debug_count_of(COUNT_EARLY_MALLOC_HOUSE, class, 1);
    lock_acquire(&registry.house->lock);
    heap_take_blocks(registry.house, class, &block, 1, zero);
    registry.house->classes[class].direct++;
    lock_release(&registry.house->lock);
    return block;
}

void direct_free(struct heap *heap, unsigned class, void *block, const char *function)
{
    size_t remote;

    heap_count_free(heap, block, class, false);
    lock_acquire(&heap->lock);
    remote = heap_return_blocks(heap, class, &block, 1, function);
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, function);
}

void direct_house_free(unsigned class, void *block, const char *function)
{
    if (!process_init())
        return;
    debug_count_of(COUNT_EARLY_FREE_HOUSE, class, 1);
    direct_free(registry.house, class, block, function);
}
