#include "front/sample.h"

#include <errno.h>
#include <string.h>

#include "base/format.h"
#include "front/direct.h"
#include "front/process.h"
#include "front/thread.h"
#include "options/options.h"
#include "os/os.h"
#include "os/unwind.h"
#include "pool/huge.h"
#include "pool/remote.h"
#include "profile/dump.h"
#include "superslab/window.h"

/* ---- Allocation ---- */

/* Records the block; the calling thread is busy with it since `began`. */
static void note(struct record *record, struct thread_cache *cache, uint64_t began)
{
    profile_note(record, cache ? &cache->stacks : NULL);
    dump_note_bytes(record->weight * record->size / WEIGHT_ONE); /* the file is written at the call's exit (K1) */
    if (cache)
        govern_note(&cache->governor, record->class, began);
}

static void *take_block(unsigned class, bool *zero)
{
    void *block = NULL;

    lock_acquire(&profile.heap->lock);
    heap_take_blocks(profile.heap, class, &block, 1, zero);
    lock_release(&profile.heap->lock);
    return block;
}

void *sample_block(struct thread_cache *cache, unsigned class, uint64_t weight, bool *zero)
{
    uint64_t began = os_now();
    void *block = take_block(class, zero);
    struct record record = { .address = (uintptr_t)block, .size = class_size(class), .weight = weight, .class = CLASS_NONE };

    if (block)
        note(&record, cache, began);
    return block;
}

/* The token's own chance is its bin's (T6), whatever the governor says by now (Z5). */
static void *sample_token(struct thread_cache *cache, unsigned class, bool *zero)
{
    uint64_t began = os_now();
    unsigned shift = cache->shifts[class];
    void *block = take_block(class, zero);
    struct record record = { .address = (uintptr_t)block,
                             .size = class_size(class),
                             .weight = profile_weight(class, shift),
                             .class = (uint8_t)class,
                             .shift = (uint8_t)shift };

    if (block) {
        note(&record, cache, began);
        cache_follow_shift(cache, class);
    }
    return block;
}

void *sample_entry(struct thread_cache *cache, unsigned class, bool *zero)
{
    void *block = NULL;

    if (profile_on() && !profile_busy() && cache->generation == profile_generation()) /* Z3, Z4 */
        block = sample_token(cache, class, zero);
    if (block)
        return block;
    lock_acquire(&cache->heap->lock);
    heap_take_blocks(cache->heap, class, &block, 1, zero);
    lock_release(&cache->heap->lock);
    return block;
}

/* Usable bytes of a block that was just allocated. */
static size_t fresh_size(const void *block)
{
    return window_contains(block) ? class_size(slab_of(block)->class) : huge_size(block, NULL);
}

void *sample_aligned(struct thread_cache *cache, size_t alignment, size_t size)
{
    struct draw *draw = cache ? &cache->draw : NULL;
    struct record record = { .class = CLASS_NONE };
    uint64_t began;
    size_t room;
    bool zero;
    void *block;

    if (size > POOLED_MAX || alignment > POOLED_MAX) /* huge: recorded where it is */
        return NULL;
    room = class_size(class_of_size(base_max(size, UNIT_SIZE)));
    if (draw && profile_draw_passes(draw, room, govern_shift(CLASS_NONE), 1))
        return NULL;
    began = os_now();
    record.weight = profile_draw_call(draw, room);
    block = record.weight ? direct_allocate(profile.heap, alignment, size, &zero) : NULL;
    if (block) {
        record.address = (uintptr_t)block;
        record.size = fresh_size(block);
        note(&record, cache, began);
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
        /* Not into the cache, where it would be an entry that was never drawn for (Z1). */
        lock_acquire(&cache->heap->lock);
        heap_return_blocks(cache->heap, class, &blocks[i], 1, "hak_malloc_batch");
        lock_release(&cache->heap->lock);
        blocks[i] = block;
    }
}

void sample_note_foreign(void *block, size_t size, struct heap *heap)
{
    struct thread_cache *cache = thread_cache_get();
    struct record record = { .address = (uintptr_t)block, .heap = heap, .class = CLASS_NONE, .foreign = true };
    uint64_t began = os_now();

    record.weight = profile_draw_call(cache ? &cache->draw : NULL, size);
    if (record.weight == 0)
        return;
    record.size = fresh_size(block);
    note(&record, cache, began);
}

/* ---- Frees ---- */

void sample_free(void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_get();
    uint64_t began = os_now();
    struct record record;
    bool known = profile_forget(block, &record);

    remote_free_locked(block, function);
    if (!cache || !known)
        return;
    if (record.class != CLASS_NONE && profile_on() && record.generation == profile_generation() &&
        cache->generation == record.generation) /* Z3 */
        cache_put_token(cache, record.class, record.shift);
    govern_note(&cache->governor, record.class, began);
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
    if (known)
        table_end(&record, profile_now_ms());
    sample_foreign(resized, size, heap);
    return resized;
}

/* ---- On and off ---- */

static enum unwind_kind unwind_kind(void)
{
    static const char *const kinds[] = { [UNWIND_AUTO] = "auto", [UNWIND_TABLES] = "eh", [UNWIND_POINTERS] = "fp" };
    const char *text = option_path(hak_options.heap_profile_unwind);

    for (unsigned kind = 0; text && kind < sizeof kinds / sizeof kinds[0]; kind++)
        if (strcmp(text, kinds[kind]) == 0)
            return (enum unwind_kind)kind;
    if (text)
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=%s is not auto, eh or fp; using auto", text);
    return UNWIND_AUTO;
}

/* Once; what it allocates is served as always. */
static void prepare_unwinder(void)
{
    static _Atomic bool prepared;

    if (!atomic_exchange(&prepared, true) && !os_unwind_prepare(unwind_kind()))
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=eh: libgcc_s.so.1 is not to be had; using frame pointers");
}

int front_profile_set(uint64_t mean)
{
    bool done;

    if (!process_init())
        return ENOMEM;
    if (mean)
        prepare_unwinder();
    lock_acquire(&profile_control);
    done = profile_set(mean);
    if (done && mean)
        dump_begin();
    lock_release(&profile_control);
    cache_want_flush(); /* Z3 */
    return done ? 0 : ENOMEM;
}

void front_profile_at_start(void)
{
    const char *signal_text = option_path(hak_options.heap_profile_signal);

    if (!hak_options.heap_profile && !hak_options.leak_report)
        return;
    if (front_profile_set(hak_options.heap_profile_rate) != 0)
        base_message("HAKMEM_HEAP_PROFILE: no memory for the profile");
    else if (signal_text && hak_options.heap_profile)
        dump_take_signal(signal_text);
}

void front_profile_at_exit(void)
{
    if (hak_options.heap_profile || hak_options.leak_report)
        dump_at_exit();
}
