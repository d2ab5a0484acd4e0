#include "front/sealed.h"

#include <string.h>

#include "base/format.h"
#include "front/block.h"
#include "front/direct.h"
#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/pooled.h"
#include "front/place.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/seal.h"
#include "front/thread.h"
#include "harden/large.h"
#include "harden/ledger.h"
#include "harden/nothing.h"
#include "harden/patrol.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/scope.h"
#include "pool/slab.h"
#include "superslab/purge.h"
#include "superslab/strict.h"

HAK_DATA_HERE const uint16_t sealed_slots[CLASS_COUNT] = {
#define SLOT(size, units, cached) [CLASS_##size] = (size),
    SLAB_CLASS_TABLE(SLOT)
#undef SLOT
};

HAK_DATA_HERE const uint32_t sealed_fast_slots[CLASS_COUNT] = {
#define SLOT(size, units, cached) [CLASS_##size] = (size) <= FAST_MAX ? (size) : 2 * UNIT_SIZE,
    SLAB_CLASS_TABLE(SLOT)
#undef SLOT
#define SLOT(units, cached) [CLASS_SPAN_##units] = 2 * UNIT_SIZE,
    SPAN_CLASS_TABLE(SLOT)
#undef SLOT
    [CLASS_NONE] = 2 * UNIT_SIZE
};

static void sealed_leave(void)
{
    strict_say_refused();
    housekeep_exit();
}

/* ---- Finding ---- */

bool place_find(void *address, struct held *place)
{
    struct slab *slab = slab_in_use_at(address);
    unsigned index;

    if (HAK_UNLIKELY(slab == NULL || !slab_block_index(slab, address, &index)))
        return false;
    *place = (struct held){ address, slab, slab->class };
    return true;
}

static enum seal_state span_read(const struct held *place, struct seal *seal)
{
    uint64_t word = seal_word(place->block);

    if (!ledger_read(place->slab, &seal->requested, &seal->kind))
        return SEAL_NONE;
    for (size_t i = 0; i < SEAL_BYTES; i++) {
        if (place->block[seal->requested + i] != ((const char *)&word)[i]) {
            seal->changed = seal->requested + i;
            return SEAL_BROKEN;
        }
    }
    return SEAL_WHOLE;
}

static enum seal_state place_state(const struct held *place, struct seal *seal)
{
    return class_is_span(place->class) ? span_read(place, seal)
                                       : seal_read(place->block, class_size(place->class), seal);
}

void place_seal(const struct held *place, size_t size, enum seal_kind kind)
{
    uint64_t word = seal_word(place->block);

    if (!class_is_span(place->class)) {
        seal_put(place->block, class_size(place->class), size, kind);
        return;
    }
    memcpy(place->block + size, &word, SEAL_BYTES);
    ledger_put(place->slab, size, kind);
}

static HAK_COLD void report_broken(const struct held *place, const struct seal *seal, const char *function)
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

bool place_read(const struct held *place, struct seal *seal, const char *function)
{
    enum seal_state state = place_state(place, seal);

    if (HAK_LIKELY(state == SEAL_WHOLE))
        return true;
    if (state == SEAL_NONE)
        misuse_report(function, place->block, MISUSE_FREED);
    else
        report_broken(place, seal, function);
    return false;
}

struct heap *place_heap(const struct held *place)
{
    struct heap *owner = atomic_load_explicit(&place->slab->owner, memory_order_acquire);

    return owner && owner->kind == HEAP_FIRST_CLASS ? owner : NULL;
}

/* ---- Allocating ---- */

void *sealed_give_span(char *block, size_t size, enum seal_kind kind)
{
    struct held place = { block, slab_of(block), slab_of(block)->class };

    spans_look((void *const[]){ block }, 1, "malloc", "found as it is used again");
    place_seal(&place, size, kind);
    return block;
}

void *sealed_give_written(char *block, size_t class, size_t size, enum seal_kind kind)
{
    patrol_report_written(block, sealed_slots[class], "malloc", "found as it is used again");
    seal_put(block, sealed_slots[class], size, kind);
    return block;
}

/* NULL: memory is out, or only a mapping has room. */
static void *allocate_window(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    unsigned class = direct_class(alignment, size + SEAL_BYTES);
    bool span = class == CLASS_NONE || class_is_span(class);
    struct thread_cache *cache;
    void *block;

    if (heap == NULL && class != CLASS_NONE) {
        block = pooled_allocate(class, alignment, size, zero);
    } else {
        cache = thread_cache_get();
        if (!cache && !process_init())
            return NULL;
        block = direct_allocate(heap ? heap : cache ? cache->heap : registry.house, alignment, size + SEAL_BYTES, zero);
        if (block)
            sample_foreign(block, class_size(slab_of(block)->class), heap);
    }
    if (block == NULL)
        return NULL;
    *zero = *zero && span; /* slots are not looked at whole */
    return span ? sealed_give_span(block, size, SEAL_MALLOC) : seal_give(block, class, size, SEAL_MALLOC);
}

static void *allocate_large(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    void *block = large_allocate(heap, alignment, size, zero);

    if (block)
        sample_foreign(block, size, heap);
    return block;
}

void *sealed_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    bool inside = sealed_is_pooled(alignment, size);
    void *block = NULL;

    *zero = true;
    alignment = base_max(alignment, BLOCK_ALIGN);
    if (HAK_UNLIKELY(size > REQUEST_MAX - 2 * UNIT_SIZE || alignment > REQUEST_MAX / 2))
        return out_of_memory();
    housekeep();
    if (HAK_UNLIKELY(size == 0) && heap == NULL && alignment == BLOCK_ALIGN)
        block = nothing_allocate();
    if (HAK_UNLIKELY(block == NULL) && !inside)
        housekeep_before_huge(size);
    for (unsigned round = 0; block == NULL && (round == 0 || (round == 1 && purge_could_serve(size))); round++) {
        struct thread_cache *cache = round ? cache_current() : NULL;
        if (cache && cache->heap)
            cache_flush_all(cache, true);
        if (round)
            housekeep_make_room();
        block = inside ? allocate_window(heap, alignment, size, zero) : allocate_large(heap, alignment, size, zero);
    }
    if (HAK_UNLIKELY(block == NULL) && inside)
        block = allocate_large(heap, alignment, size, zero);
    sealed_leave();
    return HAK_LIKELY(block != NULL) ? block : out_of_memory();
}

/* ---- Freeing ---- */

void sealed_report_kind(const void *block, unsigned claimed, unsigned kind, const char *function)
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

static bool claim_holds(struct sealed_claim claim, const void *block, size_t requested)
{
    /* jemalloc rounds sizes up to the alignment. */
    return (claim.size == SIZE_MAX || claim.size == requested ||
            claim.size == base_align_up(requested, claim.alignment)) &&
           ((uintptr_t)block & (claim.alignment - 1)) == 0;
}

/* Clears what is looked at of a free span. All of it would cost as much as the program's own use of it. */
static void span_clear(const struct held *place, size_t requested)
{
    memset(place->block, 0, FREE_EDGE); /* realloc may have left the program less */
    memset(place->block + requested, 0, SEAL_BYTES);
}

/* Takes a span from the program. False: nothing changed. */
static bool take_span(char *block, struct sealed_claim claim)
{
    struct held place = { block, slab_of(block), slab_of(block)->class };
    struct seal seal;

    if (block != place.slab->start || span_read(&place, &seal) != SEAL_WHOLE || seal.kind != claim.kind ||
        (claim.size != SIZE_MAX && claim.size != seal.requested) || !ledger_take(place.slab)) /* V5 */
        return false;
    span_clear(&place, seal.requested);
    return true;
}

/* Takes a slot of more than FAST_MAX bytes from the program. False: nothing changed. */
static bool take_slot(char *block, unsigned class, struct sealed_claim claim)
{
    struct slab *slab = slab_of(block);
    size_t slot = sealed_slots[class], requested;
    size_t offset = ((uintptr_t)block & (SUPERSLAB_SIZE - 1)) - slab_first_unit(slab) * UNIT_SIZE;
    unsigned index = class_block_index(class, offset);
    uint64_t mix = seal_mix(block);

    if (HAK_UNLIKELY(index >= size_classes[class].blocks || index * slot != offset))
        return false;
    if (HAK_UNLIKELY(!seal_is_live(seal_of(block, slot) ^ mix, slot, claim.kind, &requested) ||
                     (claim.size != SIZE_MAX && claim.size != requested) ||
                     !seal_slack_is_whole(block, slot, requested)))
        return false;
    seal_clear_any(block, slot);
    return true;
}

/* Keeps a freed span closed, if chance wants that: a free that the cache took. False: nothing changed. */
static bool close_span(struct thread_cache *cache, void *block, unsigned class)
{
    if (!spans_take_in(&cache->spans, cache->heap, block, &cache->chance))
        return false;
    cache_note_hits(cache, class, 0, 1);
    return true;
}

/* Frees a block of more than FAST_MAX bytes in the usual case. False: nothing changed. */
static bool free_medium(char *block, struct sealed_claim claim)
{
    struct thread_cache *cache = cache_current();
    size_t unit = window_block_unit(window_base(), block), class, top;

    if (HAK_UNLIKELY(window_is_beyond(unit)) || claim.alignment != 1 || table_foreign())
        return false;
    class = __atomic_load_n(window_page_map() + unit, __ATOMIC_RELAXED);
    top = cache->bins[class].top;
    if (HAK_UNLIKELY(class <= CLASS_1024 || top == cache->bins[class].limit) ||
        !(class_is_span((unsigned)class) ? take_span(block, claim) : take_slot(block, (unsigned)class, claim)))
        return false;
    heap_count_free(cache->heap, block, (unsigned)class, true);
    if (class_is_span((unsigned)class) && close_span(cache, block, (unsigned)class))
        return true;
    cache->slots[top + 1] = block;
    bin_set_top(&cache->bins[class], top + 1);
    return true;
}

/* Gives a block that the program no longer has to its heap. */
static void free_place(const struct held *place, const struct seal *seal, const char *function)
{
    struct heap *owner = atomic_load_explicit(&place->slab->owner, memory_order_acquire);
    struct thread_cache *cache = cache_own();

    if (class_is_span(place->class))
        span_clear(place, seal->requested);
    if (owner && (owner->kind == HEAP_PROFILE || owner->kind == HEAP_FIRST_CLASS)) {
        heap_count_free(NULL, place->block, place->class, false);
        if (owner->kind == HEAP_PROFILE)
            sample_free(place->block, function);
        else if (remote_free_locked(place->block, function))
            scope_note_free(owner, class_size(place->class));
    } else if (class_is_span(place->class) && cache->heap && close_span(cache, place->block, place->class)) {
        heap_count_free(cache->heap, place->block, place->class, true);
    } else {
        pooled_free(place->class, place->block, function);
    }
}

static void sealed_free_pooled(const struct held *place, struct sealed_claim claim, const char *function)
{
    struct seal seal;

    if (HAK_UNLIKELY(!place_read(place, &seal, function)))
        return;
    if (HAK_UNLIKELY(claim.kind != seal.kind)) {
        sealed_report_kind(place->block, claim.kind, seal.kind, function);
        return;
    }
    if (HAK_UNLIKELY(!claim_holds(claim, place->block, seal.requested))) {
        misuse_report(function, place->block, MISUSE_SIZE);
        return;
    }
    if (!class_is_span(place->class)) {
        seal_clear_any(place->block, class_size(place->class));
    } else if (HAK_UNLIKELY(!ledger_take(place->slab))) { /* V5 */
        misuse_report(function, place->block, MISUSE_FREED);
        return;
    }
    sample_forget_foreign(place->block);
    free_place(place, &seal, function);
}

bool sealed_read_large(const void *block, struct huge_request *request, const char *function)
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

bool sealed_is_nothing(const void *block, bool *live, const char *function)
{
    enum nothing_state state = nothing_look(block);

    *live = state == NOTHING_LIVE;
    if (state == NOTHING_FREE)
        misuse_report_words(function, block, "freed already; a block of 0 bytes");
    else if (state == NOTHING_NO_BLOCK)
        misuse_report_words(function, block, "not the start of a block; between blocks of 0 bytes");
    return state != NOTHING_ELSEWHERE;
}

static void sealed_free_nothing(const void *block, bool live, struct sealed_claim claim, const char *function)
{
    if (live && !claim_holds(claim, block, 0))
        misuse_report_words(function, block, "the block is not of that size; it has 0 bytes");
    else if (live && !nothing_free(block))
        misuse_report_words(function, block, "freed already; a block of 0 bytes");
}

static void sealed_free_large(void *block, struct sealed_claim claim, const char *function)
{
    struct huge_request request;
    struct heap *heap = NULL;
    size_t size;

    if (!sealed_read_large(block, &request, function))
        return;
    if (claim.kind != request.kind) {
        sealed_report_kind(block, claim.kind, request.kind, function);
        return;
    }
    if (!claim_holds(claim, block, request.size)) {
        misuse_report(function, block, MISUSE_SIZE);
        return;
    }
    sample_forget_foreign(block);
    size = huge_free(block, &heap);
    if (size == 0)
        misuse_report(function, block, MISUSE_FREED);
    else if (heap)
        scope_note_free(heap, size);
}

void sealed_free(void *block, struct sealed_claim claim, const char *function)
{
    struct held place;
    bool live;

    if (block == NULL || HAK_LIKELY(free_medium(block, claim)))
        return;
    housekeep();
    if (HAK_LIKELY(place_find(block, &place)))
        sealed_free_pooled(&place, claim, function);
    else if (sealed_is_nothing(block, &live, function))
        sealed_free_nothing(block, live, claim, function);
    else
        sealed_free_large(block, claim, function);
    sealed_leave();
}

/* ---- Sizes ---- */

size_t sealed_size(const void *address, bool *found, struct heap **heap)
{
    struct held place;
    struct huge_request request;
    struct seal seal;
    size_t size = 0, changed;
    bool live;

    *heap = NULL;
    if (place_find((void *)(uintptr_t)address, &place)) {
        live = place_state(&place, &seal) == SEAL_WHOLE;
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

size_t sealed_usable_size(const void *block, const char *function)
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
    else if (!sealed_is_nothing(block, &live, function))
        size = sealed_read_large(block, &request, function) ? request.size : 0;
    misuse_settle();
    return size;
}

/* ---- Operators ---- */

void sealed_mark(void *block, enum seal_kind kind)
{
    struct huge_request request;
    struct held place;
    struct seal seal;
    size_t changed;

    if (block == NULL)
        return;
    if (HAK_LIKELY(place_find(block, &place))) {
        if (place_state(&place, &seal) != SEAL_WHOLE)
            return;
        if (class_is_span(place.class))
            ledger_put(place.slab, seal.requested, kind);
        else
            seal_set_kind(block, class_size(place.class), seal.requested, kind);
    } else if (large_read(block, &request, &changed) == SEAL_WHOLE) {
        request.kind = (uint8_t)kind;
        huge_set_request(block, &request);
    }
}
