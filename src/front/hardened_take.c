#include "front/hardened_take.h"

#include "front/direct.h"
#include "harden/seal.h"
#include "pool/registry.h"
#include "superslab/guard_units.h"

/* The class of a span that has room for the request, but not for all of its canary; CLASS_NONE: there is none. */
static unsigned exact_class(size_t size)
{
    size_t room = -size & (UNIT_SIZE - 1);

    return HAK_UNLIKELY(room < SEAL_BYTES) && size - 1 < POOLED_MAX ? class_of_size(size) : CLASS_NONE;
}

bool hardened_may_be_exact(size_t alignment, size_t size)
{
    return HAK_UNLIKELY(exact_class(size) != CLASS_NONE) && alignment <= UNIT_SIZE && guard_units_are_whole();
}

size_t hardened_bytes_in(const struct slab *slab, size_t size)
{
    bool exact = slab->class == exact_class(size) && guard_units_lie_behind(slab);

    return exact ? size : seal_bytes_for(size);
}

/* A free block of `bytes` bytes. `exact`: a span, if a closed guard unit lies directly behind it. */
static char *take_free_block(struct thread_cache *cache, struct heap *heap, size_t alignment, size_t bytes, bool exact,
                             bool *zero)
{
    unsigned class = direct_class(alignment, bytes);
    struct heap *from = heap ? heap : cache ? cache->heap : registry.house;
    void *block;

    *zero = false;
    if (HAK_LIKELY(cache && heap == NULL && class != CLASS_NONE)) {
        if (HAK_LIKELY(!class_is_span(class)))
            return bins_take(&cache->hardened, cache->slots, cache->heap, class);
        block = bins_take_span(&cache->hardened, class, exact, zero);
        if (block)
            return block;
    }
    block = direct_allocate(from, alignment, bytes, zero);
    if (exact && block && !guard_units_lie_behind(slab_of(block))) {
        direct_return(from, class, block);
        return NULL;
    }
    return block;
}

char *hardened_take(struct thread_cache *cache, struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    size_t bytes = seal_bytes_for(size);

    if (hardened_may_be_exact(alignment, size)) {
        char *block = take_free_block(cache, heap, alignment, size, true, zero);
        if (block)
            return block;
    }
    return bytes <= POOLED_MAX ? take_free_block(cache, heap, alignment, bytes, false, zero) : NULL;
}
