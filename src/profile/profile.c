#include "profile/profile.h"

#include "os/os.h"
#include "pool/registry.h"
#include "profile/stack.h"

struct profile profile;
struct lock profile_control = LOCK_INIT(LOCK_RANK_PROFILE_CONTROL);

static struct draw outside; /* of threads without a cache, under profile_lock */

static _Thread_local bool busy __attribute__((tls_model("initial-exec")));
_Thread_local const void *profile_site __attribute__((tls_model("initial-exec")));

uint64_t profile_now_ms(void) { return os_now_coarse() / 1000000; }

bool profile_busy(void) { return busy; }

bool profile_set(uint64_t mean)
{
    HAK_ASSERT(lock_is_held(&profile_control));
    if (mean && !profile.heap)
        profile.heap = registry_new_profile();
    if (mean && !profile.heap)
        return false;
    atomic_store(&profile.on, false);
    if (mean) {
        profile.mean = mean;
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            profile.weights[class] = draw_weight(mean, class_size(class));
    }
    atomic_fetch_add(&profile.generation, 1);
    atomic_store(&profile.on, mean != 0);
    return true;
}

static void draw_ready(struct draw *draw)
{
    uint32_t generation = atomic_load_explicit(&profile.generation, memory_order_acquire);

    if (HAK_UNLIKELY(draw->generation != generation))
        draw_begin(draw, generation, profile.mean);
}

unsigned profile_draw_entries(struct draw *draw, unsigned class, unsigned count, uint64_t marks[2])
{
    draw_ready(draw);
    return draw_entries(draw, profile.mean, class_size(class), count, marks);
}

bool profile_draw_call(struct draw *draw, size_t size)
{
    bool drawn;

    if (!profile_on() || busy)
        return false;
    if (draw) {
        draw_ready(draw);
        return draw_one(draw, profile.mean, size);
    }
    lock_acquire(&profile_lock);
    draw_ready(&outside);
    drawn = draw_one(&outside, profile.mean, size);
    lock_release(&profile_lock);
    return drawn;
}

uint64_t profile_note(void *block, size_t size, unsigned class, struct heap *heap, bool foreign, struct stack_memory **stacks)
{
    struct record record = { .address = (uintptr_t)block,
                             .heap = heap,
                             .size = size,
                             .weight = class != CLASS_NONE ? profile.weights[class] : draw_weight(profile.mean, size),
                             .born_ms = profile_now_ms(),
                             .generation = atomic_load_explicit(&profile.generation, memory_order_relaxed),
                             .class = (uint8_t)class,
                             .foreign = foreign };

    busy = true;
    record.site = stack_site(profile_site, stacks);
    if (record.site)
        table_insert(&record);
    busy = false;
    return record.weight * size / WEIGHT_ONE;
}

bool profile_forget(const void *block, struct record *record)
{
    return table_remove(block, profile_now_ms(), record);
}

void profile_forget_heap(const struct heap *heap)
{
    if (table_foreign())
        table_remove_heap(heap, profile_now_ms());
}
