#include "harden/spans.h"

#include "base/format.h"
#include "harden/seal.h"
#include "os/os.h"
#include "pool/misuse.h"
#include "pool/remote.h"
#include "pool/slab.h"

/* Opens the span at `index` and returns it to its slab. One that cannot be opened stays as it is, and is lost. */
static void span_leave(struct spans *spans, struct heap *heap, unsigned index)
{
    unsigned last = spans->count - 1u;
    void *block = spans->span[index];
    struct slab *slab = slab_of(block);
    size_t remote;

    __atomic_store_n(&spans->count, (uint8_t)last, __ATOMIC_RELEASE);
    __atomic_store_n(&spans->span[index], spans->span[last], __ATOMIC_RELAXED);
    if (!os_protect(block, slab_bytes(slab), true))
        return;
    lock_acquire(&heap->lock);
    remote = heap_return_blocks(heap, slab->class, &block, 1, "free");
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(slab->class, &block, 1, "free");
}

bool spans_take_in(struct spans *spans, struct heap *heap, void *block, uint64_t *chance)
{
    if (HAK_LIKELY(harden_chance(chance, CLOSE_SHARE) != 0) || !harden_close(block, slab_bytes(slab_of(block))))
        return false;
    if (spans->count == SPANS_MOST)
        span_leave(spans, heap, harden_chance(chance, SPANS_MOST));
    spans->span[spans->count] = block;
    __atomic_store_n(&spans->count, (uint8_t)(spans->count + 1), __ATOMIC_RELEASE);
    return true;
}

void spans_flush(struct spans *spans, struct heap *heap)
{
    while (spans->count)
        span_leave(spans, heap, spans->count - 1u);
}

unsigned spans_count(const struct spans *spans, unsigned class)
{
    unsigned count = 0;

    for (unsigned i = 0; i < __atomic_load_n(&spans->count, __ATOMIC_ACQUIRE); i++)
        count += __atomic_load_n(&slab_of(__atomic_load_n(&spans->span[i], __ATOMIC_RELAXED))->class,
                                 __ATOMIC_RELAXED) == class;
    return count;
}

void spans_look(void *const *blocks, unsigned count, const char *function, const char *found)
{
    for (unsigned i = 0; i < count; i++) {
        char *block = blocks[i], words[160];
        size_t at = seal_first_written(block, FREE_EDGE);
        if (HAK_LIKELY(at == FREE_EDGE))
            continue;
        base_format(words, sizeof words, "written while it was free, at byte %zu (now 0x%02x); %s", at,
                    (unsigned)(unsigned char)block[at], found);
        misuse_report_words(function, block, words);
        __builtin_memset(block, 0, FREE_EDGE);
    }
}
