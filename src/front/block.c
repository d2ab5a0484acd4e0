#include "front/block.h"

#include "front/front.h"
#include "front/sealed.h"
#include "pool/huge.h"
#include "pool/slab.h"
#include "profile/guard.h"

void block_misused(const void *address, enum misuse misuse, const char *function)
{
    misuse_report(function, address, misuse);
    misuse_settle();
}

struct block block_look(const void *address)
{
    static struct slab none;
    struct block block = { 0, NULL, NULL, false };

    if (guard_covers(address)) {
        block.size = guard_size(address, &block.heap);
        block.slab = &none;
        block.guarded = true;
    } else if (HAK_SECURE) {
        bool found;
        size_t size = sealed_size(address, &found, &block.heap);
        block.size = found ? base_max(size, 1) : 0;
        block.slab = found ? slab_in_use_at(address) : NULL;
    } else if (window_contains(address)) {
        struct slab *slab = slab_in_use_at(address);
        unsigned index;
        if (slab && slab_block_index(slab, address, &index) && !slab_block_is_free(slab, index)) {
            struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
            block.size = class_size(slab->class);
            block.slab = slab;
            block.heap = owner && owner->kind == HEAP_FIRST_CLASS ? owner : NULL;
        }
    } else {
        block.size = huge_size(address, &block.heap);
    }
    return block;
}

size_t front_block_size(const void *address)
{
    return block_look(address).size;
}

struct block block_find(const void *address, const char *function)
{
    struct block block = block_look(address);

    if (HAK_UNLIKELY(block.size == 0 && block.guarded)) {
        guard_misused(address, function);
        misuse_settle();
    } else if (HAK_UNLIKELY(block.size == 0)) {
        block_misused(address, misuse_of(address), function);
    }
    return block;
}
