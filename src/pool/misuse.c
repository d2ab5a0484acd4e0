#include "pool/misuse.h"

#include <stdlib.h>

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"
#include "pool/heap.h"
#include "pool/huge.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

static const char *misuse_words(enum misuse misuse)
{
    switch (misuse) {
    case MISUSE_FOREIGN: return "not allocated by HAKMEM";
    case MISUSE_NO_BLOCK: return "not the start of a block (inside a block, or unaligned)";
    case MISUSE_FREED: return "freed already";
    case MISUSE_SIZE: return "the block is not of that size or alignment";
    }
    return "misuse";
}

/* The slab in use that the address lies in, or NULL. */
static struct slab *misuse_slab(const void *pointer)
{
    struct slab *slab;

    if (!window_contains(pointer) || window_slot_of(pointer) < window_slots_begin() ||
        shared_pool.slots[window_slot_of(pointer)].kind != SLOT_SUPERSLAB ||
        ((uintptr_t)pointer & (SUPERSLAB_SIZE - 1)) < UNIT_SIZE)
        return NULL;
    slab = slab_of(pointer);
    return atomic_load(&slab->state) == SLAB_ACTIVE ? slab : NULL;
}

enum misuse misuse_of(const void *pointer)
{
    struct slab *slab = misuse_slab(pointer);
    unsigned index;

    if (slab) {
        if (!slab_block_index(slab, pointer, &index))
            return MISUSE_NO_BLOCK;
        return MISUSE_FREED;
    }
    if (window_contains(pointer) && window_slot_of(pointer) >= window_slots_begin() &&
        shared_pool.slots[window_slot_of(pointer)].kind == SLOT_SUPERSLAB)
        return MISUSE_FREED;
    if (huge_covers(pointer, true))
        return MISUSE_NO_BLOCK;
    return huge_covers(pointer, false) ? MISUSE_FREED : MISUSE_FOREIGN;
}

void misuse_report(const char *function, const void *pointer, enum misuse misuse)
{
    struct slab *slab = misuse_slab(pointer);
    struct heap *owner = slab ? atomic_load(&slab->owner) : NULL;

    debug_count(COUNT_EARLY_MISUSE);
    if (owner)
        base_message("%s(%p): %s; size class %zu, owner heap %u of thread %u", function, pointer, misuse_words(misuse),
                     class_size(slab->class), owner->id, owner->thread_id);
    else if (misuse == MISUSE_FOREIGN)
        base_message("%s(%p): %s; no size class, no owner", function, pointer, misuse_words(misuse));
    else
        base_message("%s(%p): %s; size class %s, no owner", function, pointer, misuse_words(misuse),
                     window_contains(pointer) ? "gone with its slab" : "huge");
    if (hak_options.abort_on_misuse)
        abort();
}
