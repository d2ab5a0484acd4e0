#include "profile/profile.h"

#include "os/os.h"
#include "pool/registry.h"
#include "profile/stack.h"

HAK_DATA_HERE struct profile profile;
HAK_DATA_HERE struct lock profile_control = LOCK_INIT(LOCK_RANK_PROFILE_CONTROL);

static struct draw outside; /* of threads without a cache, under profile_lock */

static _Thread_local bool busy __attribute__((tls_model("initial-exec")));
HAK_DATA_HERE _Thread_local const void *profile_site __attribute__((tls_model("initial-exec")));

uint64_t profile_now_ms(void) { return os_now_coarse() / 1000000; }

bool profile_busy(void) { return busy; }

static uint64_t mean_parts(void) { return profile.mean << PARTS_SHIFT; }

bool profile_set(uint64_t mean)
{
    HAK_ASSERT(lock_is_held(&profile_control));
    if (mean && !profile.heap)
        profile.heap = registry_new_profile();
    if (mean && !profile.heap)
        return false;
    atomic_store(&profile.on, false);
    if (mean) {
        profile.mean = base_min(mean, PROFILE_MEAN_MOST);
        govern_begin(profile.mean);
    }
    atomic_fetch_add(&profile.generation, 1);
    atomic_store(&profile.on, mean != 0);
    return true;
}

static void draw_ready(struct draw *draw)
{
    uint32_t generation = atomic_load_explicit(&profile.generation, memory_order_acquire);

    if (HAK_UNLIKELY(draw->generation != generation))
        draw_begin(draw, generation, mean_parts());
}

unsigned profile_draw_entries(struct draw *draw, unsigned class, unsigned shift, unsigned count, uint64_t marks[2])
{
    draw_ready(draw);
    return draw_entries(draw, mean_parts(), profile_parts(class_size(class), shift), count, marks);
}

uint64_t profile_draw_call(struct draw *draw, size_t size)
{
    unsigned shift = govern_shift(CLASS_NONE);
    bool drawn;

    if (!profile_on() || busy)
        return 0;
    if (draw) {
        draw_ready(draw);
        drawn = draw_one(draw, mean_parts(), profile_parts(size, shift));
    } else {
        lock_acquire(&profile_lock);
        draw_ready(&outside);
        drawn = draw_one(&outside, mean_parts(), profile_parts(size, shift));
        lock_release(&profile_lock);
    }
    if (!drawn)
        return 0;
    govern_relax_due(profile_now_ms());
    return draw_weight(mean_parts(), profile_parts(size, shift));
}

uint64_t profile_weight(unsigned class, unsigned shift)
{
    return draw_weight(mean_parts(), profile_parts(class_size(class), shift));
}

bool profile_keep_token(struct draw *draw, unsigned class, unsigned shift, unsigned new_shift)
{
    if (new_shift <= shift)
        return true;
    draw_ready(draw);
    return draw_part(draw, profile_weight(class, shift), profile_weight(class, new_shift));
}

void profile_note(struct record *record, struct stack_memory **stacks)
{
    record->born_ms = profile_now_ms();
    record->generation = profile_generation();
    busy = true;
    record->site = stack_site(profile_site, stacks);
    if (record->site)
        table_insert(record);
    busy = false;
}

bool profile_forget(const void *block, struct record *record)
{
    return table_remove(block, profile_now_ms(), record);
}

void profile_forget_heap(struct heap *heap)
{
    if (atomic_load_explicit(&heap->sampled, memory_order_relaxed))
        table_remove_heap(heap, profile_now_ms());
}
