#include "front/sample.h"

#include <errno.h>
#include <string.h>

#include "base/format.h"
#include "front/block.h"
#include "front/fast.h"
#include "front/front.h"
#include "front/thread.h"
#include "options/options.h"
#include "os/unwind.h"
#include "pool/huge.h"
#include "profile/dump.h"
#include "superslab/window.h"

/* ---- Allocation ---- */

static void note(void *block, size_t size, unsigned token, struct heap *heap, bool foreign, struct thread_cache *cache)
{
    dump_note_bytes(profile_note(block, size, token, heap, foreign, cache ? &cache->stacks : NULL));
    dump_poll();
}

void *sample_block(struct thread_cache *cache, unsigned class, unsigned token, bool *zero)
{
    void *block = NULL;

    lock_acquire(&profile.heap->lock);
    heap_take_blocks(profile.heap, class, &block, 1, zero);
    lock_release(&profile.heap->lock);
    if (block)
        note(block, class_size(class), token, NULL, false, cache);
    return block;
}

void *sample_entry(struct thread_cache *cache, unsigned class, bool *zero)
{
    void *block = NULL;

    if (profile_on() && !profile_busy() && cache->generation == profile_generation()) /* Z3, Z4 */
        block = sample_block(cache, class, class, zero);
    if (block)
        return block;
    lock_acquire(&cache->heap->lock);
    heap_take_blocks(cache->heap, class, &block, 1, zero);
    lock_release(&cache->heap->lock);
    return block;
}

void *sample_malloc_at(size_t size, const void *site)
{
    void *block;

    profile_site = site;
    block = front_malloc_medium(size);
    profile_site = NULL;
    return block;
}

/* Usable bytes of a block that was just allocated. */
static size_t fresh_size(const void *block)
{
    return window_contains(block) ? class_size(slab_of(block)->class) : huge_size(block, NULL);
}

void *sample_aligned(struct thread_cache *cache, size_t alignment, size_t size)
{
    bool zero;
    void *block;

    if (size > POOLED_MAX || alignment > POOLED_MAX || /* huge: recorded where it is */
        !profile_draw_call(cache ? &cache->draw : NULL, class_size(class_of_size(base_max(size, UNIT_SIZE)))))
        return NULL;
    block = allocate_in_heap(profile.heap, alignment, size, &zero);
    if (block)
        note(block, fresh_size(block), CLASS_NONE, NULL, false, cache);
    return block;
}

void sample_batch(struct thread_cache *cache, unsigned class, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool zero;
        void *block;
        if (!profile_draw_call(&cache->draw, class_size(class)))
            continue;
        block = sample_block(cache, class, CLASS_NONE, &zero);
        if (block) {
            front_free_named(blocks[i], "hak_malloc_batch");
            blocks[i] = block;
        }
    }
}

void sample_note_foreign(void *block, struct heap *heap)
{
    struct thread_cache *cache = cache_current();
    size_t size = block ? fresh_size(block) : 0;

    if (cache->heap == NULL)
        cache = NULL;
    if (block && profile_draw_call(cache ? &cache->draw : NULL, size))
        note(block, size, CLASS_NONE, heap, true, cache);
}

/* ---- Frees ---- */

unsigned sample_forget(const void *block)
{
    struct record record;

    if (!profile_forget(block, &record) || record.generation != profile_generation() || !profile_on())
        return CLASS_NONE;
    return record.class;
}

void sample_put_token(unsigned class)
{
    struct thread_cache *cache = thread_cache_get();

    if (cache && cache->generation == profile_generation()) /* Z3 */
        cache_put_token(cache, class);
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
    sample_foreign(resized, heap);
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

    if (!front_process_init())
        return ENOMEM;
    if (mean)
        prepare_unwinder();
    lock_acquire(&profile_control);
    done = profile_set(mean);
    if (done && mean)
        dump_begin();
    lock_release(&profile_control);
    /* Every cache is flushed on its thread's next slow call (Z3). */
    atomic_fetch_add(&thread_ticks, 1);
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
