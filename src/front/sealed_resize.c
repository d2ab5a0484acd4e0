/* realloc in libhakmem-secure. */
#include <string.h>

#include "front/block.h"
#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/place.h"
#include "front/scope.h"
#include "harden/large.h"
#include "harden/ledger.h"
#include "harden/nothing.h"
#include "pool/misuse.h"

/* Gives a live block another size where it is. */
static void place_reseal(const struct held *place, const struct seal *seal, size_t size)
{
    char *block = place->block;

    if (!class_is_span(place->class)) {
        seal_change(block, class_size(place->class), seal->requested, size, seal->kind, seal_mix(block));
        return;
    }
    memset(block + seal->requested, 0, SEAL_BYTES);
    place_seal(place, size, seal->kind);
}

/* Resizes a block of at most FAST_MAX bytes in the usual case. NULL: nothing changed. */
static void *realloc_small(char *block, size_t size)
{
    size_t unit = window_block_unit(window_base(), block), class, slot, old;
    uint64_t mix = seal_mix(block);
    char *fresh;

    if (HAK_UNLIKELY(window_is_beyond(unit)))
        return NULL;
    class = __atomic_load_n(window_page_map() + unit, __ATOMIC_RELAXED);
    slot = sealed_fast_slots[class];
    if (HAK_UNLIKELY(!seal_tells(block, class, SIZE_MAX, SEAL_MALLOC, &old)))
        return NULL;
    if (block_may_stay(slot, size + SEAL_BYTES)) {
        seal_change(block, slot, old, size, SEAL_MALLOC, mix);
        return block;
    }
    fresh = front_malloc(size);
    if (HAK_UNLIKELY(fresh == NULL))
        return NULL;
    memcpy(fresh, block, base_min(old, size));
    if (HAK_UNLIKELY(!front_free_hit(&hak_cache_offset, block, SEAL_MALLOC)))
        sealed_free(block, SEALED_NO_CLAIM, "realloc");
    return fresh;
}

static void *sealed_allocate_for(struct heap *heap, size_t size)
{
    return heap ? scope_allocate_in(heap, size) : front_malloc(size);
}

/* Resizes a huge block that may be a scope's. */
static void *resize_charged(void *block, size_t size, bool may_move)
{
    struct heap *heap;

    (void)huge_size(block, &heap);
    return scope_huge_resize(heap, block, size, may_move);
}

/* NULL: it is unchanged. */
static void *resize_large(void *block, const struct huge_request *request, size_t size, bool may_move)
{
    void *resized = large_resize(block, request, size, may_move, resize_charged);

    scope_tell();
    return resized;
}

static void *sealed_move(struct heap *heap, void *old, size_t old_size, size_t size, const char *function)
{
    void *fresh = sealed_allocate_for(heap, size);

    if (fresh == NULL)
        return NULL;
    memcpy(fresh, old, base_min(old_size, size));
    if (!front_free_hit(&hak_cache_offset, old, SEAL_MALLOC))
        sealed_free(old, SEALED_NO_CLAIM, function);
    scope_tell();
    return fresh;
}

static void *sealed_realloc_pooled(struct heap *heap, const struct held *place, size_t size, const char *function)
{
    struct seal seal;
    bool whole = place_read(place, &seal, function);
    void *moved;

    if (whole && seal.kind != SEAL_MALLOC) {
        sealed_report_kind(place->block, SEAL_MALLOC, seal.kind, function);
        whole = false;
    }
    if (!whole) {
        misuse_settle();
        return NULL;
    }
    if (size > REQUEST_MAX)
        return out_of_memory();
    if (block_may_stay(class_size(place->class), size + SEAL_BYTES)) {
        place_reseal(place, &seal, size);
        return place->block;
    }
    moved = sealed_move(heap ? heap : place_heap(place), place->block, seal.requested, size, function);
    if (moved || size > seal.requested)
        return moved;
    place_reseal(place, &seal, size); /* as in a scope that is full */
    return place->block;
}

static void *sealed_realloc_large(struct heap *heap, void *block, size_t size, const char *function)
{
    struct huge_request request;
    struct heap *own;
    void *resized;

    if (!sealed_read_large(block, &request, function)) {
        misuse_settle();
        return NULL;
    }
    if (request.kind != SEAL_MALLOC) {
        sealed_report_kind(block, SEAL_MALLOC, request.kind, function);
        misuse_settle();
        return NULL;
    }
    if (size > REQUEST_MAX)
        return out_of_memory();
    (void)huge_size(block, &own);
    if (size + SEAL_BYTES > POOLED_MAX && (heap == NULL || heap == own)) {
        if (size > request.size)
            housekeep_before_huge(size - request.size);
        resized = resize_large(block, &request, size, true);
        if (resized)
            return resized;
    }
    resized = sealed_move(heap ? heap : own, block, request.size, size, function);
    return resized || size > request.size ? resized : resize_large(block, &request, size, false);
}

void *sealed_realloc(struct heap *heap, void *block, size_t size, const char *function)
{
    struct held place;
    bool live;

    if (block == NULL)
        return sealed_allocate_for(heap, size);
    if (size == 0) {
        sealed_free(block, SEALED_NO_CLAIM, function);
        return NULL;
    }
    if (HAK_LIKELY(heap == NULL && size < REQUEST_MAX)) {
        void *resized = realloc_small(block, size);
        if (HAK_LIKELY(resized != NULL))
            return resized;
    }
    if (HAK_LIKELY(place_find(block, &place)))
        return sealed_realloc_pooled(heap, &place, size, function);
    if (!sealed_is_nothing(block, &live, function))
        return sealed_realloc_large(heap, block, size, function);
    misuse_settle();
    return live ? sealed_move(heap, block, 0, size, function) : NULL;
}

size_t sealed_expand(void *block, size_t size, const char *function)
{
    struct held place;
    struct huge_request request;
    struct seal seal;
    bool live;

    if (block == NULL)
        return 0;
    if (place_find(block, &place)) {
        if (!place_read(&place, &seal, function)) {
            misuse_settle();
            return 0;
        }
        if (size <= seal.requested)
            return seal.requested;
        if (size > POOLED_MAX || size + SEAL_BYTES > class_size(place.class))
            return 0;
        place_reseal(&place, &seal, size);
        return size;
    }
    if (sealed_is_nothing(block, &live, function) || !sealed_read_large(block, &request, function)) {
        misuse_settle();
        return 0;
    }
    if (size <= request.size)
        return request.size;
    housekeep_before_huge(size - request.size);
    return size <= REQUEST_MAX - 2 * UNIT_SIZE && resize_large(block, &request, size, false) ? size : 0;
}
