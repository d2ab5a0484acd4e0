#include "front/hardened.h"

#include <string.h>

#include "base/format.h"
#include "front/block.h"
#include "front/direct.h"
#include "front/hardened_take.h"
#include "front/housekeeping.h"
#include "front/medium.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/thread.h"
#include "harden/large.h"
#include "harden/nothing.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/guard_units.h"

/* One hardened call in so many does housekeeping, which reads the clock. */
#define HOUSEKEEP_CALLS 32u

HAK_INLINE void hardened_enter(void)
{
    struct bins *bins = &cache_current()->hardened;

    /* The empty cache is read-only (T1): it counts no calls. */
    if (HAK_UNLIKELY(cache_current()->heap == NULL) || HAK_UNLIKELY(bins->calls++ % HOUSEKEEP_CALLS == 0))
        housekeep();
}

HAK_INLINE void hardened_leave(void)
{
    if (HAK_UNLIKELY(cache_current()->heap == NULL) ||
        HAK_UNLIKELY(cache_current()->hardened.calls % HOUSEKEEP_CALLS == 0)) {
        guard_units_say_refused();
        housekeep_exit();
    } else {
        misuse_settle();
    }
}

/* ---- Finding ---- */

/* A place in a slab where a block may be. */
struct held {
    char *block;
    struct slab *slab;
    struct ledger *ledger;
    unsigned class, index;
};

/* False: no block of a slab in use starts at the address. */
HAK_INLINE bool place_find(void *address, struct held *place)
{
    const struct slot *slot = window_find_slot(address);
    struct slab *slab;

    /* slab_in_use_at, with one look at the slot. */
    if (HAK_UNLIKELY(slot == NULL || !slot_is_mapped(slot) || slot_kind(slot) != SLOT_SUPERSLAB ||
                     ((uintptr_t)address & (SUPERSLAB_SIZE - 1)) < UNIT_SIZE))
        return false;
    slab = slab_of(address);
    if (HAK_UNLIKELY(atomic_load_explicit(&slab->state, memory_order_acquire) != SLAB_ACTIVE ||
                     !slab_block_index(slab, address, &place->index)))
        return false;
    *place = (struct held){ address, slab, ledger_of(slab), slab->class, place->index };
    return true;
}

static HAK_COLD void hardened_report_broken(const struct held *place, const struct seal *seal, const char *function)
{
    char words[160];

    if (seal->requested == SIZE_MAX)
        base_format(words, sizeof words,
                    "written past its end: byte %zu of the block, behind what was asked for, changed", seal->changed);
    else
        base_format(words, sizeof words, "written past its end: %zu bytes were asked for, byte %zu changed",
                    seal->requested, seal->changed);
    misuse_report_words(function, place->block, words);
}

/* Reads the seal of a block that should be live, or reports misuse. */
HAK_INLINE bool place_read(const struct held *place, struct seal *seal, const char *function)
{
    enum seal_state state = seal_read(place->block, place->class, place->ledger, place->index, seal);

    if (HAK_LIKELY(state == SEAL_WHOLE))
        return true;
    if (state == SEAL_NONE)
        misuse_report(function, place->block, MISUSE_FREED);
    else
        hardened_report_broken(place, seal, function);
    return false;
}

/* A write before this block changes the tail word of the block before it: that of a live or a free block. The word
 * changes in one store, so a thread that works on that block at this moment causes no false report. */
HAK_INLINE bool neighbour_is_whole(const struct held *place, const char *function)
{
    const char *before = place->block - class_size(place->class);
    char words[160];

    if (!seal_in_tail(place->class) || HAK_UNLIKELY(place->index == 0) ||
        HAK_LIKELY(seal_neighbour_wrong(before, seal_tail_word(before, class_size(place->class))) == 0))
        return true;
    base_format(words, sizeof words, "the block before it, %p, was written at or past its end", (const void *)before);
    misuse_report_words(function, place->block, words);
    return false;
}

static struct heap *place_heap(const struct held *place)
{
    struct heap *owner = atomic_load_explicit(&place->slab->owner, memory_order_acquire);

    return owner && owner->kind == HEAP_FIRST_CLASS ? owner : NULL;
}

/* ---- Allocating ---- */

HAK_COLD void hardened_report_freed(const char *block, size_t at, const char *function, const char *found)
{
    char words[160];

    base_format(words, sizeof words, "written while it was free, at byte %zu (now 0x%02x); %s", at,
                (unsigned)(unsigned char)block[at], found);
    misuse_report_words(function, block, words);
}

static HAK_COLD void hardened_report_written(char *block, size_t at, unsigned class)
{
    hardened_report_freed(block, at, "malloc", "found as it is used again");
    memset(block, 0, class_size(class));
}

/* Makes a block below 1 KiB the program's: all that this needs lies in the block. */
HAK_INLINE void *hardened_hand_out_small(char *block, unsigned class, size_t size)
{
    size_t room = class_size(class), at = seal_first_written(block, room);

    if (HAK_UNLIKELY(at != room))
        hardened_report_written(block, at, class);
    seal_put_small(block, room, size, SEAL_MALLOC);
    return block;
}

/* Makes a block that left its slab the program's. `zero`: its memory is known to be zero. */
static void *hardened_hand_out(char *block, size_t size, bool zero)
{
    struct slab *slab = slab_of(block);
    struct held place = { block, slab, ledger_of(slab), slab->class, 0 };

    place.index = class_block_index(place.class, (size_t)(block - slab->start));
    if (HAK_LIKELY(!zero)) {
        /* The rest of a span is checked when a later request takes it. */
        size_t room = class_size(place.class);
        if (class_is_span(place.class))
            room = base_min(base_align_up(seal_bytes_for(size), BLOCK_ALIGN), room);
        size_t at = seal_first_written(block, room);
        if (HAK_UNLIKELY(at != room))
            hardened_report_written(block, at, place.class);
    }
    seal_put(block, place.class, place.ledger, place.index, size, SEAL_MALLOC);
    return block;
}

/* Makes room when memory is short. */
static void *hardened_pooled(struct heap *heap, size_t alignment, size_t size)
{
    struct thread_cache *cache = thread_cache_get();
    unsigned class = direct_class(alignment, seal_bytes_for(size));
    char *block;
    bool zero;

    if (HAK_LIKELY(cache && heap == NULL && class != CLASS_NONE && seal_in_tail(class))) {
        block = bins_take(&cache->hardened, cache->slots, cache->heap, class);
        if (HAK_LIKELY(block != NULL)) {
            hardened_hand_out_small(block, class, size);
            sample_foreign(block, class_size(class), NULL);
            return block;
        }
    }
    if (!cache && !process_init())
        return NULL;
    block = hardened_take(cache, heap, alignment, size, &zero);
    if (HAK_UNLIKELY(block == NULL)) {
        if (cache)
            cache_flush_all(cache, true);
        housekeep_make_room();
        block = hardened_take(cache, heap, alignment, size, &zero);
    }
    if (HAK_UNLIKELY(block == NULL))
        return large_allocate(heap, alignment, size);
    if (cache && !zero && class_is_span(slab_of(block)->class))
        zero = bins_span_is_zero(&cache->hardened, block, seal_bytes_for(size));
    block = hardened_hand_out(block, size, zero);
    sample_foreign(block, class_size(slab_of(block)->class), heap);
    return block;
}

static void *hardened_large(struct heap *heap, size_t alignment, size_t size)
{
    void *block;

    housekeep_before_huge(size);
    block = large_allocate(heap, alignment, size);
    if (HAK_UNLIKELY(block == NULL)) {
        housekeep_make_room();
        block = large_allocate(heap, alignment, size);
    }
    if (block)
        sample_foreign(block, size, heap);
    return block;
}

static HAK_NOINLINE void *allocate_slow(struct heap *heap, size_t alignment, size_t size)
{
    void *block;

    if (HAK_UNLIKELY(size > REQUEST_MAX - 2 * UNIT_SIZE || alignment > REQUEST_MAX / 2))
        return out_of_memory();
    hardened_enter();
    block = NULL;
    if (HAK_UNLIKELY(size == 0) && heap == NULL && alignment <= BLOCK_ALIGN)
        block = nothing_allocate();
    if (HAK_UNLIKELY(block != NULL))
        ;
    else if (HAK_LIKELY((seal_bytes_for(size) <= POOLED_MAX || hardened_may_be_exact(alignment, size)) &&
                        alignment < POOLED_MAX))
        block = hardened_pooled(heap, base_max(alignment, BLOCK_ALIGN), size);
    else
        block = hardened_large(heap, base_max(alignment, BLOCK_ALIGN), size);
    hardened_leave();
    return HAK_LIKELY(block != NULL) ? block : out_of_memory();
}

void *hardened_allocate(struct heap *heap, size_t alignment, size_t size)
{
    void *block = heap == NULL && alignment <= BLOCK_ALIGN ? medium_malloc(size) : NULL; /* zero (V7) */

    return HAK_LIKELY(block != NULL) ? block : allocate_slow(heap, alignment, size);
}

/* ---- Freeing ---- */

static HAK_COLD void hardened_report_kind(const void *block, unsigned claimed, unsigned kind, const char *function)
{
    static const char *const allocators[] = {
        [SEAL_MALLOC] = "malloc", [SEAL_NEW] = "operator new", [SEAL_NEW_ARRAY] = "operator new[]"
    };
    static const char *const frees[] = {
        [SEAL_MALLOC] = "free", [SEAL_NEW] = "operator delete", [SEAL_NEW_ARRAY] = "operator delete[]"
    };
    char words[160];

    base_format(words, sizeof words, "allocated by %s, freed by %s", allocators[kind], frees[claimed]);
    misuse_report_words(function, block, words);
}

static bool claim_holds(struct hardened_claim claim, const void *block, size_t requested)
{
    /* jemalloc rounds sizes up to the alignment. */
    return (claim.size == SIZE_MAX || claim.size == requested ||
            claim.size == base_align_up(requested, claim.alignment)) &&
           ((uintptr_t)block & (claim.alignment - 1)) == 0;
}

static void hardened_free_pooled(const struct held *place, struct hardened_claim claim, const char *function)
{
    struct thread_cache *cache;
    struct seal seal;

    if (HAK_UNLIKELY(!place_read(place, &seal, function) || !neighbour_is_whole(place, function)))
        return;
    if (HAK_UNLIKELY(claim.kind != seal.kind)) {
        hardened_report_kind(place->block, claim.kind, seal.kind, function);
        return;
    }
    if (HAK_UNLIKELY(!claim_holds(claim, place->block, seal.requested))) {
        misuse_report(function, place->block, MISUSE_SIZE);
        return;
    }
    if (HAK_UNLIKELY(!seal_take(place->block, place->class, place->ledger, place->index))) { /* V5 */
        misuse_report(function, place->block, MISUSE_FREED);
        return;
    }
    sample_forget_foreign(place->block);
    cache = thread_cache_get();
    if (HAK_UNLIKELY(class_is_span(place->class)) && cache)
        bins_erase_span(&cache->hardened, place->block, place->class, seal.requested, place_heap(place) == NULL);
    else
        seal_erase(place->block, place->class, seal.requested, true);
    if (HAK_UNLIKELY(place_heap(place) != NULL)) {
        remote_free_locked(place->block, function);
        return;
    }
    if (HAK_UNLIKELY(cache == NULL))
        direct_house_free(place->class, place->block, function);
    else if (HAK_UNLIKELY(class_is_span(place->class)))
        bins_put_span(&cache->hardened, cache->heap, place->block);
    else
        bins_put(&cache->hardened, cache->slots, cache->heap, place->class, place->block);
}

/* Reads a huge block's request. False: there is none, or the block was written past its end; both are reported. */
static bool hardened_read_large(const void *block, struct huge_request *request, const char *function)
{
    char words[160];
    size_t changed;

    switch (large_read(block, request, &changed)) {
    case SEAL_WHOLE:
        return true;
    case SEAL_NONE:
        misuse_report(function, block, misuse_of(block));
        return false;
    case SEAL_BROKEN:
        base_format(words, sizeof words, "written past its end: %zu bytes were asked for, byte %zu changed",
                    request->size, changed);
        misuse_report_words(function, block, words);
    }
    return false;
}

/* Whether the address is among blocks of 0 bytes. *live: the program holds the block; else misuse is reported. */
static bool hardened_is_nothing(const void *block, bool *live, const char *function)
{
    enum nothing_state state = nothing_look(block);

    *live = state == NOTHING_LIVE;
    if (state == NOTHING_FREE)
        misuse_report_words(function, block, "freed already; a block of 0 bytes");
    else if (state == NOTHING_NO_BLOCK)
        misuse_report_words(function, block, "not the start of a block; between blocks of 0 bytes");
    return state != NOTHING_ELSEWHERE;
}

static void hardened_free_nothing(const void *block, bool live, struct hardened_claim claim, const char *function)
{
    if (live && !claim_holds(claim, block, 0))
        misuse_report_words(function, block, "the block is not of that size; it has 0 bytes");
    else if (live && !nothing_free(block))
        misuse_report_words(function, block, "freed already; a block of 0 bytes");
}

static void hardened_free_large(void *block, struct hardened_claim claim, const char *function)
{
    struct huge_request request;

    if (!hardened_read_large(block, &request, function))
        return;
    if (claim.kind != request.kind) {
        hardened_report_kind(block, claim.kind, request.kind, function);
        return;
    }
    if (!claim_holds(claim, block, request.size)) {
        misuse_report(function, block, MISUSE_SIZE);
        return;
    }
    sample_forget_foreign(block);
    if (!huge_free(block))
        misuse_report(function, block, MISUSE_FREED);
}

static HAK_NOINLINE void free_slow(void *block, struct hardened_claim claim, const char *function)
{
    struct held place;
    bool live;

    if (block == NULL)
        return;
    hardened_enter();
    if (HAK_LIKELY(place_find(block, &place)))
        hardened_free_pooled(&place, claim, function);
    else if (hardened_is_nothing(block, &live, function))
        hardened_free_nothing(block, live, claim, function);
    else
        hardened_free_large(block, claim, function);
    hardened_leave();
}

void hardened_free(void *block, struct hardened_claim claim, const char *function)
{
    if (HAK_UNLIKELY(!medium_free(block, claim)))
        free_slow(block, claim, function);
}

/* ---- Sizes ---- */

size_t hardened_size(const void *address, bool *found, struct heap **heap)
{
    struct held place;
    struct huge_request request;
    struct seal seal;
    size_t size = 0, changed;
    bool live;

    *heap = NULL;
    if (place_find((void *)(uintptr_t)address, &place)) {
        live = seal_read(place.block, place.class, place.ledger, place.index, &seal) == SEAL_WHOLE;
        size = live ? seal.requested : 0;
        *heap = live ? place_heap(&place) : NULL;
    } else if (nothing_look(address) != NOTHING_ELSEWHERE) {
        live = nothing_look(address) == NOTHING_LIVE;
    } else {
        live = large_read(address, &request, &changed) == SEAL_WHOLE;
        size = live ? request.size : 0;
        if (live)
            (void)huge_size(address, heap);
    }
    if (found)
        *found = live;
    return size;
}

size_t hardened_usable_size(const void *block, const char *function)
{
    struct held place;
    struct huge_request request;
    struct seal seal;
    size_t size = 0;
    bool live;

    if (block == NULL)
        return 0;
    if (place_find((void *)(uintptr_t)block, &place))
        size = place_read(&place, &seal, function) ? seal.requested : 0;
    else if (!hardened_is_nothing(block, &live, function))
        size = hardened_read_large(block, &request, function) ? request.size : 0;
    misuse_settle();
    return size;
}

/* ---- Resizing ---- */

/* Gives a live block another size where it is. */
static void hardened_reseal(const struct held *place, const struct seal *seal, size_t size)
{
    size_t room = class_size(place->class) - (seal_in_tail(place->class) ? SEAL_BYTES : 0);
    size_t start = base_min(size, seal->requested), end = base_min(base_max(seal->requested, size) + SEAL_BYTES, room);

    if (start < end)
        memset(place->block + start, 0, end - start);
    seal_put(place->block, place->class, place->ledger, place->index, size, seal->kind);
}

static void *hardened_move(struct heap *heap, void *old, size_t old_size, size_t size, const char *function)
{
    void *fresh = heap == NULL ? quick_malloc(&hak_cache_offset, size, SEAL_MALLOC) : NULL;

    if (fresh == NULL)
        fresh = hardened_allocate(heap, BLOCK_ALIGN, size);
    if (fresh == NULL)
        return NULL;
    memcpy(fresh, old, base_min(old_size, size));
    if (!quick_free(&hak_cache_offset, old, SIZE_MAX, SEAL_MALLOC))
        hardened_free(old, HARDENED_NO_CLAIM, function);
    return fresh;
}

static void *hardened_realloc_pooled(struct heap *heap, const struct held *place, size_t size, const char *function)
{
    struct seal seal;
    bool whole = place_read(place, &seal, function);

    if (whole && seal.kind != SEAL_MALLOC) {
        hardened_report_kind(place->block, SEAL_MALLOC, seal.kind, function);
        whole = false;
    }
    if (!whole) {
        misuse_settle();
        return NULL;
    }
    if (size > REQUEST_MAX)
        return out_of_memory();
    if (block_may_stay(class_size(place->class), hardened_bytes_in(place->slab, size))) {
        hardened_reseal(place, &seal, size);
        return place->block;
    }
    return hardened_move(heap ? heap : place_heap(place), place->block, seal.requested, size, function);
}

static void *hardened_realloc_large(struct heap *heap, void *block, size_t size, const char *function)
{
    struct huge_request request;
    struct heap *own;
    void *resized;

    if (!hardened_read_large(block, &request, function)) {
        misuse_settle();
        return NULL;
    }
    if (request.kind != SEAL_MALLOC) {
        hardened_report_kind(block, SEAL_MALLOC, request.kind, function);
        misuse_settle();
        return NULL;
    }
    if (size > REQUEST_MAX)
        return out_of_memory();
    (void)huge_size(block, &own);
    if (seal_bytes_for(size) > POOLED_MAX && (heap == NULL || heap == own)) {
        if (size > request.size)
            housekeep_before_huge(size - request.size);
        resized = large_resize(block, &request, size, true, sample_huge_resize);
        if (resized)
            return resized;
    }
    return hardened_move(heap ? heap : own, block, request.size, size, function);
}

/* For blocks and sizes of the fast paths. NULL: nothing changed. */
HAK_INLINE void *hardened_realloc_quick(void *block, size_t size, const char *function)
{
    char *window = window_base();
    struct quick_block found;
    size_t old_size;
    void *fresh;

    if (size - 1 >= QUICK_MOST || !quick_look(window, block, SIZE_MAX, SEAL_MALLOC, &found))
        return NULL;
    old_size = found.row->size - found.room;
    if (block_may_stay(found.row->size, seal_bytes_for(size))) {
        hardened_reseal(&(struct held){ .block = block, .class = (unsigned)found.class },
                        &(struct seal){ .requested = old_size, .kind = SEAL_MALLOC }, size);
        return block;
    }
    fresh = quick_malloc(&hak_cache_offset, size, SEAL_MALLOC);
    if (HAK_UNLIKELY(fresh == NULL))
        return NULL;
    memcpy(fresh, block, base_min(old_size, size));
    if (!quick_put((struct thread_cache *)(window + hak_cache_offset), block, &found))
        hardened_free(block, HARDENED_NO_CLAIM, function);
    return fresh;
}

void *hardened_realloc(struct heap *heap, void *block, size_t size, const char *function)
{
    struct held place;
    void *resized;
    bool live;

    if (block == NULL)
        return hardened_allocate(heap, BLOCK_ALIGN, size);
    if (size == 0) {
        hardened_free(block, HARDENED_NO_CLAIM, function);
        return NULL;
    }
    resized = heap == NULL ? hardened_realloc_quick(block, size, function) : NULL;
    if (HAK_LIKELY(resized != NULL))
        return resized;
    if (HAK_LIKELY(place_find(block, &place)))
        return hardened_realloc_pooled(heap, &place, size, function);
    if (!hardened_is_nothing(block, &live, function))
        return hardened_realloc_large(heap, block, size, function);
    misuse_settle();
    return live ? hardened_move(heap, block, 0, size, function) : NULL;
}

size_t hardened_expand(void *block, size_t size, const char *function)
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
        if (size > POOLED_MAX || hardened_bytes_in(place.slab, size) > class_size(place.class))
            return 0;
        hardened_reseal(&place, &seal, size);
        return size;
    }
    if (hardened_is_nothing(block, &live, function) || !hardened_read_large(block, &request, function)) {
        misuse_settle();
        return 0;
    }
    if (size <= request.size)
        return request.size;
    housekeep_before_huge(size - request.size);
    return size <= REQUEST_MAX - 2 * UNIT_SIZE && large_resize(block, &request, size, false, sample_huge_resize) ? size
                                                                                                                 : 0;
}

/* ---- Operators ---- */

void hardened_mark(void *block, enum seal_kind kind)
{
    struct huge_request request;
    struct held place;
    struct seal seal;
    size_t changed;

    if (block == NULL)
        return;
    if (HAK_LIKELY(place_find(block, &place))) {
        if (seal_read(place.block, place.class, place.ledger, place.index, &seal) == SEAL_WHOLE)
            seal_put(place.block, place.class, place.ledger, place.index, seal.requested, kind);
    } else if (large_read(block, &request, &changed) == SEAL_WHOLE) {
        request.kind = (uint8_t)kind;
        huge_set_request(block, &request);
    }
}
