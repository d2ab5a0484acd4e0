/* Sizes of blocks, and blocks that change their size. */
#include <string.h>

#include "front/block.h"
#include "front/cohort.h"
#include "front/direct.h"
#include "front/fast.h"
#include "front/sealed.h"
#include "front/housekeeping.h"
#include "front/sample.h"
#include "front/scope.h"
#include "pool/huge.h"
#include "pool/slab.h"
#include "superslab/ranges.h"

enum { COPY_MOST = 8 << 20 }; /* copying more takes longer than the page faults after mremap */

static HAK_NOINLINE size_t usable_size_slow(const void *block, const char *function)
{
    if (HAK_SECURE)
        return sealed_usable_size(block, function);
    return block ? block_find(block, function).size : 0;
}

/* Programs ask this of each block, so the usual case reads nothing but the page map: the slab's map would tell of a
 * block that is free in it, for two lines of the slab's header. */
size_t front_usable_size(const void *block, const char *function)
{
    size_t unit = window_block_unit(window_base(), block), class, size;

    if (HAK_UNLIKELY(window_is_beyond(unit)))
        return usable_size_slow(block, function);
    class = __atomic_load_n(window_page_map() + unit, __ATOMIC_RELAXED);
    if (HAK_SECURE)
        return HAK_LIKELY(seal_tells(block, class, SIZE_MAX, SEAL_MALLOC, &size)) ? size
                                                                                  : usable_size_slow(block, function);
    return HAK_LIKELY(class_starts_at(class, block)) ? class_bounds.size[class] : usable_size_slow(block, function);
}

size_t front_live_size(const void *block, const char *function)
{
    unsigned class = block_class(block);

    return HAK_LIKELY(class != CLASS_NONE) ? class_size(class) : usable_size_slow(block, function);
}

size_t front_good_size(size_t size)
{
    if (HAK_SECURE)
        return size;
    return base_max(direct_size(1, size), size);
}

size_t front_aligned_size(size_t alignment, size_t size)
{
    if (HAK_SECURE)
        return size > REQUEST_MAX || alignment > REQUEST_MAX / 2 ? 0 : size;
    return direct_size(alignment, size);
}

/* Resizes a huge block in place, if it stays one. Returns its usable size; 0: the block is as it was. */
static size_t resize_huge(const struct block *block, void *address, size_t size)
{
    if (block->size == 0 || block->slab || size <= POOLED_MAX || size > REQUEST_MAX)
        return 0;
    if (size > block->size)
        housekeep_before_huge(size - block->size);
    if (!scope_huge_resize(block->heap, address, size, false))
        return 0;
    scope_tell();
    return huge_size(address, NULL);
}

size_t front_expand(void *address, size_t size)
{
    struct block block;

    if (address == NULL)
        return 0;
    if (HAK_SECURE)
        return sealed_expand(address, size, "hak_expand");
    block = block_find(address, "hak_expand");
    if (size <= block.size)
        return block.size;
    return resize_huge(&block, address, size);
}

size_t front_resize_in_place(void *address, size_t size, const char *function)
{
    struct block block;
    size_t got;

    if (HAK_SECURE) {
        got = sealed_expand(address, size, function);
        return got ? got : sealed_usable_size(address, function);
    }
    block = block_find(address, function);
    got = resize_huge(&block, address, size);
    return got ? got : block.size;
}

/* Without another block, one that shrinks stays, as in a scope that is full. */
static void *move_block(void *old, size_t old_size, void *fresh, size_t size)
{
    if (HAK_UNLIKELY(!fresh))
        return size < old_size ? old : NULL;
    memcpy(fresh, old, base_min(old_size, size));
    front_free(old);
    return fresh;
}

static HAK_NOINLINE void *move_in_heap(struct heap *heap, void *old, size_t old_size, size_t size)
{
    void *moved = move_block(old, old_size, scope_allocate_in(heap, size), size);

    scope_tell();
    return moved;
}

/* Whether to copy a growing huge block into freed memory instead of moving it by mremap. A copy keeps the pages of both
 * in use; mremap leaves a hole that faults anew. Growth by small steps would copy too often. */
static bool copy_is_cheaper(size_t old_size, size_t size)
{
    return size <= COPY_MOST && size - old_size >= old_size / 4 && ranges_fit(size);
}

/* A block for one that moves, in its cohort. */
static void *fresh_block(const struct block *block, size_t size)
{
    const struct heap *owner =
        block->slab ? atomic_load_explicit(&block->slab->owner, memory_order_acquire) : NULL;
    void *fresh = owner && owner->kind == HEAP_LONG ? cohort_allocate(size) : NULL;

    return fresh ? fresh : front_malloc(size);
}

static void *realloc_in(struct heap *heap, void *address, size_t size, const char *function)
{
    struct block block = block_find(address, function);

    if (block.size == 0)
        return NULL;
    if (size > REQUEST_MAX)
        return out_of_memory();
    if (block.guarded ? size == block.size : block_may_stay(block.size, size))
        return address;
    if (heap == NULL)
        heap = block.heap;
    if (block.slab == NULL && size > POOLED_MAX && block.heap == heap) {
        bool may_move = true;
        void *resized;
        if (size > block.size) {
            housekeep_before_huge(size - block.size);
            may_move = !copy_is_cheaper(block.size, size);
        }
        resized = scope_huge_resize(heap, address, size, may_move);
        if (resized) {
            scope_tell();
            return resized;
        }
    }
    return heap ? move_in_heap(heap, address, block.size, size)
                : move_block(address, block.size, fresh_block(&block, size), size);
}

static void *realloc_slow(void *block, size_t size, const char *function)
{
    if (HAK_SECURE)
        return sealed_realloc(NULL, block, size, function);
    if (block == NULL)
        return front_malloc(size);
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(NULL, block, size, function);
}

void *front_realloc(void *block, size_t size, const char *function)
{
    unsigned class = block_class(block);
    size_t old = class_size(class);

    if (HAK_UNLIKELY(class == CLASS_NONE || size == 0))
        return realloc_slow(block, size, function);
    if (block_may_stay(old, size))
        return block;
    return move_block(block, old, front_malloc(size), size);
}

void *front_heap_realloc(struct heap *heap, void *block, size_t size)
{
    if (HAK_SECURE)
        return sealed_realloc(heap, block, size, "hak_heap_realloc");
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(heap, block, size, "hak_heap_realloc");
}
