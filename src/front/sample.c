#include "front/sample.h"

#include <errno.h>

#include "base/format.h"
#include "front/direct.h"
#include "front/entries.h"
#include "front/guarded.h"
#include "front/housekeeping.h"
#include "front/live.h"
#include "front/neighbour.h"
#include "front/process.h"
#include "front/thread.h"
#include "front/unwinder.h"
#include "options/options.h"
#include "os/os.h"
#include "pool/huge.h"
#include "pool/remote.h"
#include "pool/scope.h"
#include "pool/slab.h"
#include "profile/dump.h"
#include "superslab/window.h"

/* ---- Allocation ---- */

/* The bytes in use that a sample stands for and live_change does not see: all where no countdown of a class counts the
 * calls, the block itself in the profile's own heap, and none of a span that stays in place. */
static int64_t unseen_bytes(const struct record *record, const struct thread_cache *cache)
{
    if (record->class == CLASS_NONE || (cache && cache->heap != cache->own))
        return (int64_t)(record->weight * record->size / WEIGHT_ONE);
    return record->foreign ? 0 : (int64_t)record->size;
}

/* The labels of a sample: those in force, and for a scope's block the scope's name. */
static const struct label_set *labels_of(const struct record *record, struct thread_cache *cache)
{
    const struct scope *scope = record->heap ? record->heap->scope : NULL;
    const struct label_set *set;
    unsigned within;

    if (cache && scope && cache->labels == NULL)
        cache->labels = labels_take();
    if (scope == NULL || cache == NULL || cache->labels == NULL)
        return cache ? labels_in_force(cache->labels) : NULL;
    within = labels_begin(cache->labels);
    (void)labels_put(cache->labels, LABEL_IS_TEXT, "scope", scope->name, 0);
    set = labels_in_force(cache->labels);
    labels_end(cache->labels, within);
    return set;
}

/* Records the block. False: memory is out. */
static bool note(struct record *record, struct thread_cache *cache)
{
    struct caller caller = cache ? cache_caller(cache) : (struct caller){ 0 };
    bool noted;

    record->thread = caller.thread;
    record->calls = caller.calls;
    noted = profile_note(record, cache ? &cache->stacks : NULL, labels_of(record, cache));
    dump_note_bytes(record->weight * record->size / WEIGHT_ONE); /* the file is written at the call's exit (K1) */
    live_note(unseen_bytes(record, cache));
    return noted;
}

static uint32_t slack_of(size_t size, size_t wanted)
{
    return size > wanted ? (uint32_t)base_min(size - wanted, UINT32_MAX) : 0;
}

/* cache may be NULL. Deep bins stay open even if the footprint grows for the sample (T7): the program does not want
 * more memory than before, only other blocks of it are samples. */
static void *take_block(struct thread_cache *cache, unsigned class, bool *zero)
{
    uint32_t growths = shared_pool_growths();
    void *block = NULL;

    lock_acquire(&profile.heap->lock);
    heap_take_blocks(profile.heap, class, &block, 1, zero);
    lock_release(&profile.heap->lock);
    if (cache && cache->growths == growths)
        cache->growths = shared_pool_growths();
    return block;
}

void *sample_block(struct thread_cache *cache, unsigned class, uint64_t weight, bool *zero)
{
    void *block = take_block(cache, class, zero);
    struct record record = {
        .address = (uintptr_t)block, .size = class_size(class), .weight = weight, .class = CLASS_NONE
    };

    if (block)
        note(&record, cache);
    return block;
}

/* A block for a call that is no sample. */
static void *plain_block(struct thread_cache *cache, unsigned class, bool *zero)
{
    void *block = cache_pop_block(cache, &cache->bins[class], class);
    unsigned left = cache_count(cache, class), seen = cache->seen[class];

    if (block == NULL)
        return cache_refill(cache, class, zero);
    cache_note_hits(cache, class, 1, left + 1 > seen ? left + 1 - seen : 0);
    cache_set_seen(cache, class, left);
    return block;
}

/* A span that is a sample is the one that the call would have got anyway (Z9). */
static void *sample_span(struct thread_cache *cache, unsigned class, size_t wanted, uint64_t weight, bool *zero)
{
    void *block = plain_block(cache, class, zero);
    struct record record = { .address = (uintptr_t)block,
                             .size = class_size(class),
                             .weight = weight,
                             .class = (uint8_t)class,
                             .foreign = true,
                             .slack = slack_of(class_size(class), wanted) };

    if (block && note(&record, cache))
        slab_set_page_map(slab_of(block), CLASS_NONE);
    return block;
}

/* Serves a call that is a sample of the weight: a guarded block, a sampled one, or NULL. */
static void *sample_call(struct thread_cache *cache, unsigned class, size_t alignment, size_t wanted, uint64_t weight,
                         bool *zero)
{
    void *guarded = guarded_sample(cache, class, alignment, wanted);
    void *block = guarded ? guarded : profile_on() ? take_block(cache, class, zero) : NULL;
    struct record record = { .address = (uintptr_t)block,
                             .size = class_size(class),
                             .weight = weight,
                             .class = (uint8_t)class,
                             .slack = slack_of(class_size(class), wanted) };

    *zero = *zero && guarded == NULL;
    if (block && profile_on() && record.weight != WEIGHT_ONE)
        record.beside = neighbour_unit(cache, class);
    if (block && profile_on())
        note(&record, cache);
    return block;
}

void *sample_count(struct thread_cache *cache, unsigned class, size_t alignment, size_t wanted, bool *zero)
{
    /* The run has blocks left if this is an operator's first miss (T1), or if its top is no block. */
    void *block = cache_pop_block(cache, &cache->runs[class], class);
    uint64_t weight;

    if (HAK_UNLIKELY(block != NULL))
        return block;
    if (HAK_LIKELY(profile_on()))
        live_note(live_change(cache, class));
    if (HAK_UNLIKELY(cache_end_run(cache, class, &weight))) {
        if (profile_on())
            live_note_all(cache);
        block = class_is_span(class) && profile_on() ? sample_span(cache, class, wanted, weight, zero)
                                                     : sample_call(cache, class, alignment, wanted, weight, zero);
    }
    if (HAK_LIKELY(block == NULL))
        block = plain_block(cache, class, zero);
    if (cache_run_length(cache, class))
        cache_begin_run(cache, class);
    return block;
}

/* Usable bytes of a block that was just allocated. */
static size_t fresh_size(const void *block)
{
    if (guard_covers(block))
        return guard_size(block, NULL);
    return window_contains(block) ? class_size(slab_of(block)->class) : huge_size(block, NULL);
}

void *sample_aligned(struct thread_cache *cache, size_t alignment, size_t size)
{
    struct draw *draw = cache ? &cache->draw : NULL;
    struct record record = { .class = CLASS_NONE };
    size_t room;
    bool zero;
    void *block;

    if (size > POOLED_MAX || alignment > POOLED_MAX) /* huge: recorded in place */
        return NULL;
    room = class_size(class_of_size(base_max(size, UNIT_SIZE)));
    if (draw && profile_draw_passes(draw, room, 1))
        return NULL;
    record.weight = profile_draw_call(draw, room);
    block = record.weight ? direct_allocate(profile.heap, alignment, size, &zero) : NULL;
    if (block) {
        record.address = (uintptr_t)block;
        record.size = fresh_size(block);
        record.slack = slack_of(record.size, size);
        note(&record, cache);
    }
    return block;
}

void sample_batch(struct thread_cache *cache, unsigned class, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t weight = profile_draw_call(&cache->draw, class_size(class));
        bool zero;
        void *block = weight ? sample_block(cache, class, weight, &zero) : NULL;
        if (block == NULL)
            continue;
        lock_acquire(&cache->heap->lock);
        heap_return_blocks(cache->heap, class, &blocks[i], 1, "hak_malloc_batch");
        lock_release(&cache->heap->lock);
        blocks[i] = block;
    }
}

void sample_note_foreign(void *block, size_t size, struct heap *heap)
{
    struct thread_cache *cache = thread_cache_own();
    struct record record = { .address = (uintptr_t)block, .heap = heap, .class = CLASS_NONE, .foreign = true };

    record.weight = profile_draw_call(cache ? &cache->draw : NULL, size);
    if (record.weight == 0)
        return;
    record.size = fresh_size(block);
    record.slack = slack_of(record.size, size);
    note(&record, cache);
}

/* ---- Frees ---- */

/* False: the block is no sample. */
static bool end_sample(const void *block, struct record *record)
{
    const struct thread_cache *cache = cache_own();

    if (!profile_forget(block, cache_caller(cache), record))
        return false;
    live_note(-unseen_bytes(record, cache));
    return true;
}

bool sample_forget(const void *block)
{
    struct record record;

    return end_sample(block, &record);
}

unsigned sample_end_span(const void *block)
{
    struct slab *slab = slab_of(block);

    if (!sample_forget(block))
        return CLASS_NONE;
    slab_set_page_map(slab, slab->class);
    return slab->class;
}

void sample_free(void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_own();
    struct record record;
    bool known = end_sample(block, &record);

    remote_free_locked(block, function);
    if (cache && known && record.class != CLASS_NONE)
        cache_note_overflow(cache, record.class);
}

/* ---- Huge blocks that change their size ---- */

void *sample_huge_resize(void *block, size_t size, bool may_move)
{
    struct record record;
    bool known = HAK_UNLIKELY(table_foreign()) && table_take_out(block, &record);
    struct heap *heap = NULL;
    size_t old = profile_on() ? huge_size(block, &heap) : 0;
    void *resized = huge_resize(block, size, may_move);

    if (resized == NULL || (profile_on() && huge_size(resized, NULL) == old)) {
        if (known)
            table_put_back(&record);
        return resized;
    }
    if (known) {
        table_end(&record, profile_now_ms(), cache_caller(cache_own()));
        live_note(-unseen_bytes(&record, cache_own()));
    }
    sample_foreign(resized, size, heap);
    return resized;
}

/* ---- On and off ---- */

/* Releases profile_control. */
static int set_profile_held(uint64_t mean)
{
    bool done;

    if (mean)
        table_begin_peak(live_total(), mean == 1);
    done = profile_set(mean);
    if (done && mean)
        dump_begin();
    lock_release(&profile_control);
    cache_want_flush(); /* Z3 */
    housekeep();        /* deep bins may serve the calling thread for ever without a slow call */
    return done ? 0 : ENOMEM;
}

int front_profile_try(uint64_t mean)
{
    if (mean)
        unwinder_prepare();
    return lock_try(&profile_control) ? set_profile_held(mean) : EBUSY;
}

static int set_profile_prepared(uint64_t mean)
{
    lock_acquire(&profile_control);
    return set_profile_held(mean);
}

int front_profile_set(uint64_t mean)
{
    if (!process_init())
        return ENOMEM;
    if (mean)
        unwinder_prepare();
    return set_profile_prepared(mean);
}

HAK_AT_START void front_profile_at_start(void)
{
    const char *signal_text = option_path(hak_options.heap_profile_signal);
    uint64_t mean = hak_options.record_all ? 1 : hak_options.heap_profile_rate;

    if (!hak_options.heap_profile && !hak_options.leak_report && !hak_options.record_all)
        return;
    if (!process_init())
        return;
    unwinder_prepare();
    if (set_profile_prepared(mean) != 0)
        base_message("HAKMEM_HEAP_PROFILE: no memory for the profile");
    else if (signal_text && hak_options.heap_profile)
        dump_take_signal(signal_text);
}

HAK_AT_START void front_profile_at_exit(void)
{
    if (!hak_options.heap_profile && !hak_options.leak_report)
        return;
    if (profile_on())
        live_look();
    dump_at_exit();
}
