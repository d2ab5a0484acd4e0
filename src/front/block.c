#include "front/block.h"

#include "pool/huge.h"
#include "pool/slab.h"

void block_misused(const void *address, enum misuse misuse, const char *function)
{
    misuse_report(function, address, misuse);
    misuse_settle();
}

struct block block_look(const void *address)
{
    struct block block = { 0, NULL, NULL };

    if (window_contains(address)) {
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

struct block block_find(const void *address, const char *function)
{
    struct block block = block_look(address);

    if (HAK_UNLIKELY(block.size == 0))
        block_misused(address, misuse_of(address), function);
    return block;
}
