#include "front/guarded.h"

#include <errno.h>

#include "base/format.h"
#include "front/process.h"
#include "front/thread.h"
#include "front/unwinder.h"
#include "options/options.h"
#include "os/file.h"
#include "os/os.h"
#include "pool/scope.h"
#include "profile/profile.h"

/* ---- Allocation ---- */

void *guarded_sample(struct thread_cache *cache, unsigned class, size_t alignment, size_t wanted)
{
    struct guard_origin origin = { .class = (uint8_t)class };

    if (!guard_on() || !profile_draws(class) || !profile_draw_guard(&cache->draw))
        return NULL;
    return guard_allocate(wanted, alignment, &origin);
}

void *guarded_in_heap(struct heap *heap, size_t alignment, size_t wanted)
{
    struct thread_cache *cache = thread_cache_own();
    struct guard_origin origin = { .heap = heap, .class = CLASS_NONE };

    if (cache == NULL || profile_busy() || wanted > guard.page || !profile_draw_guard_call(&cache->draw, wanted))
        return NULL;
    return guard_allocate(wanted, alignment, &origin);
}

/* ---- Frees ---- */

void guarded_free(void *block, const char *function)
{
    struct guard_origin origin;
    struct record record;
    struct heap *heap = NULL;
    size_t size;

    if (table_records())
        (void)profile_forget(block, cache_caller(cache_own()), &record);
    size = guard_size(block, &heap);
    if (guard_free(block, function, &origin) && heap)
        scope_note_free(heap, size);
}

/* ---- On and off ---- */

/* Releases profile_control. */
static int set_guards_held(uint64_t mean)
{
    int error = 0;

    if (mean)
        error = guard_begin((unsigned)hak_options.guard_slots);
    if (error == 0) {
        profile_set_guards(mean, mean ? class_of_size(guard.page) : CLASS_NONE);
        atomic_store(&guard.on, mean != 0);
    }
    lock_release(&profile_control);
    if (error == 0) {
        cache_want_flush(); /* Z3 */
        if (cache_own()->heap) /* this thread takes part at once */
            cache_flush_all(cache_own(), false);
    }
    return error;
}

int front_guard_try(uint64_t mean)
{
    if (mean)
        unwinder_prepare();
    return lock_try(&profile_control) ? set_guards_held(mean) : EBUSY;
}

static int set_guards_prepared(uint64_t mean)
{
    lock_acquire(&profile_control);
    return set_guards_held(mean);
}

int front_guard_set(uint64_t mean)
{
    if (!process_init())
        return ENOMEM;
    if (mean)
        unwinder_prepare();
    return set_guards_prepared(mean);
}

HAK_AT_START void front_guard_at_start(void)
{
    uint64_t mean = hak_options.guard_rate;
    int error;

    if (!hak_options.guard)
        return;
    if (!process_init()) {
        error = ENOMEM;
    } else {
        if (mean)
            unwinder_prepare();
        error = set_guards_prepared(mean);
    }
    if (error)
        base_message("HAKMEM_GUARD: no guarded blocks: %s", os_error_text(error));
}
