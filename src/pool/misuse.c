#include "pool/misuse.h"

#include <stdlib.h>

#include "base/format.h"
#include "observe/counters.h"
#include "options/options.h"
#include "os/foreign.h"
#include "os/os.h"
#include "pool/heap.h"
#include "pool/huge.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

HAK_DATA_HERE _Atomic uintptr_t misuse_culprit;

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

enum misuse misuse_of(const void *pointer)
{
    struct slab *slab = slab_in_use_at(pointer);
    unsigned index;

    if (slab) {
        if (!slab_block_index(slab, pointer, &index))
            return MISUSE_NO_BLOCK;
        return MISUSE_FREED;
    }
    if (window_in_superslab(pointer) && (window_contains(pointer) || !huge_covers(pointer, true)))
        return MISUSE_FREED;
    if (huge_covers(pointer, true))
        return MISUSE_NO_BLOCK;
    return huge_covers(pointer, false) ? MISUSE_FREED : MISUSE_FOREIGN;
}

static void misuse_print(const char *function, const void *pointer, const char *words, bool foreign)
{
    struct slab *slab = slab_in_use_at(pointer);
    struct heap *owner = slab ? atomic_load(&slab->owner) : NULL;

    debug_count(COUNT_EARLY_MISUSE);
    if (owner)
        base_message("%s(%p): %s; size class %zu, owner heap %u of thread %u", function, pointer, words,
                     class_size(slab->class), owner->id, owner->thread_id);
    else if (foreign)
        base_message("%s(%p): %s; no size class, no owner", function, pointer, words);
    else
        base_message("%s(%p): %s; size class %s, no owner", function, pointer, words,
                     window_in_superslab(pointer)                                    ? "gone with its slab"
                     : huge_covers(pointer, true) || huge_covers(pointer, false) ? "huge"
                                                                                 : "none");
    if (hak_options.abort_on_misuse)
        atomic_store_explicit(&misuse_culprit, os_thread_token(), memory_order_relaxed);
}

void misuse_report(const char *function, const void *pointer, enum misuse misuse)
{
    misuse_print(function, pointer, misuse_words(misuse), misuse == MISUSE_FOREIGN);
}

void misuse_report_words(const char *function, const void *pointer, const char *words)
{
    misuse_print(function, pointer, words, false);
}

void misuse_end(void)
{
    if (atomic_load_explicit(&misuse_culprit, memory_order_relaxed) != os_thread_token())
        return;
    atomic_store_explicit(&misuse_culprit, 0, memory_order_relaxed);
    foreign_point();
    abort();
}
