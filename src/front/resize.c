/* Sizes of blocks, and blocks that change theirs. */
#include <string.h>

#include "front/block.h"
#include "front/fast.h"
#include "front/sample.h"
#include "pool/huge.h"
#include "pool/slab.h"

size_t front_usable_size(const void *block, const char *function)
{
    return block ? block_find(block, function).size : 0;
}

size_t front_block_size(const void *address)
{
    return block_look(address).size;
}

size_t front_good_size(size_t size)
{
    if (size <= POOLED_MAX)
        return class_size(class_of_size(size));
    return size > REQUEST_MAX - UNIT_SIZE ? size : base_align_up(size, UNIT_SIZE);
}

size_t front_expand(void *address, size_t size)
{
    struct block block;

    if (address == NULL)
        return 0;
    block = block_find(address, "hak_expand");
    if (size <= block.size)
        return block.size;
    if (block.size == 0 || block.slab || !sample_huge_resize(address, size, false))
        return 0;
    return huge_size(address, NULL);
}

static void *move_block(void *old, size_t old_size, void *fresh, size_t size)
{
    if (!fresh)
        return NULL;
    memcpy(fresh, old, base_min(old_size, size));
    front_free(old);
    return fresh;
}

static void *realloc_in(struct heap *heap, void *address, size_t size, const char *function)
{
    struct block block = block_find(address, function);

    if (block.size == 0)
        return NULL;
    if (size > REQUEST_MAX)
        return out_of_memory();
    if (block_may_stay(block.size, size))
        return address;
    if (heap == NULL)
        heap = block.heap;
    if (block.slab == NULL && size > POOLED_MAX && block.heap == heap) {
        void *resized = sample_huge_resize(address, size, true);
        if (resized)
            return resized;
    }
    return move_block(address, block.size, heap ? front_heap_aligned_alloc(heap, BLOCK_ALIGN, size, false) : front_malloc(size),
                      size);
}

static void *realloc_slow(void *block, size_t size, const char *function)
{
    if (block == NULL)
        return front_malloc(size);
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(NULL, block, size, function);
}

/* The usual realloc: of a live block whose slab the fast paths know (W2), to another size. All else goes the slow way. */
void *front_realloc(void *block, size_t size, const char *function)
{
    char *window = window_base();
    size_t unit = (size_t)((char *)block - window) >> UNIT_SHIFT, old;
    unsigned class, index;
    struct slab *slab;

    if (HAK_UNLIKELY(window_is_beyond(unit) || size == 0))
        return realloc_slow(block, size, function);
    class = __atomic_load_n((uint8_t *)window + WINDOW_PAGE_MAP + unit, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(class == CLASS_NONE))
        return realloc_slow(block, size, function);
    slab = slab_of(block);
    if (HAK_UNLIKELY(!slab_block_index(slab, block, &index) || slab_block_is_free(slab, index)))
        return realloc_slow(block, size, function);
    old = class_size(class);
    if (block_may_stay(old, size))
        return block;
    return move_block(block, old, front_malloc(size), size);
}

void *front_heap_realloc(struct heap *heap, void *block, size_t size)
{
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(heap, block, size, "hak_heap_realloc");
}
