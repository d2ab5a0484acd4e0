#include "profile/profile.h"

#include "options/options.h"
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

void profile_set_busy(bool is_busy) { busy = is_busy; }

/* One draw serves the heap profile and guards. It uses the lesser of their means. */
static void set_means(uint64_t record_mean, uint64_t guard_mean)
{
    bool both = record_mean && guard_mean;

    HAK_ASSERT(lock_is_held(&profile_control));
    atomic_store(&profile.drawing, false);
    atomic_store(&profile.on, false);
    profile.record_mean = base_min(record_mean, PROFILE_MEAN_MOST);
    profile.guard_mean = base_min(guard_mean, PROFILE_MEAN_MOST);
    if (record_mean || guard_mean)
        profile.draw_mean =
            both ? base_min(profile.record_mean, profile.guard_mean) : profile.record_mean + profile.guard_mean;
    if (record_mean)
        profile.mean = profile.draw_mean;
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        profile.weights[class] = draw_weight(base_max(profile.draw_mean, 1), class_size(class));
    atomic_fetch_add(&profile.generation, 1);
    atomic_store(&profile.on, record_mean != 0);
    atomic_store(&profile.drawing, record_mean || guard_mean);
    atomic_fetch_add(&profile.generation, 1); /* again: a cache may have followed before samples were drawn (Z3) */
}

bool profile_set(uint64_t mean)
{
    if (mean && !registry_served_by_all(HEAP_PROFILE, &profile.heap))
        return false;
    atomic_store(&profile.by_readers, false);
    set_means(mean, profile.guard_mean);
    return true;
}

void profile_set_guards(uint64_t mean, unsigned class)
{
    atomic_store(&profile.guard_class, (uint8_t)class);
    set_means(profile.record_mean, mean);
}

static void draw_ready(struct draw *draw)
{
    uint32_t generation = atomic_load_explicit(&profile.generation, memory_order_acquire);

    if (HAK_UNLIKELY(draw->generation != generation))
        draw_begin(draw, generation, profile.draw_mean);
}

bool profile_count_call(struct countdowns *countdowns, struct draw *draw, unsigned class, uint64_t *weight)
{
    if (HAK_UNLIKELY(countdowns->left[class] < 0)) {
        draw_ready(draw);
        countdowns->left[class] = draw_countdown(draw, profile.draw_mean);
    }
    if (HAK_LIKELY(countdowns_may_pass(countdowns, class, 1))) {
        countdowns_pass(countdowns, class, 1);
        return false;
    }
    draw_ready(draw);
    countdowns->left[class] = draw_countdown(draw, profile.draw_mean);
    *weight = profile.weights[class];
    return !busy; /* Z4 */
}

static void reset_draw(struct draw *draw)
{
    draw->random = 0;
    if (profile_drawing())
        draw_begin(draw, draw->generation, profile.draw_mean);
}

void profile_reset_in_child(struct draw *draw)
{
    draw_reset_in_child();
    reset_draw(draw);
    reset_draw(&outside);
}

bool profile_draw_guard(struct draw *draw)
{
    draw_ready(draw);
    return profile.guard_mean == profile.draw_mean || draw_part(draw, profile.draw_mean, profile.guard_mean);
}

bool profile_draw_guard_call(struct draw *draw, size_t size)
{
    draw_ready(draw);
    return size >= profile.guard_mean || draw_part(draw, size, profile.guard_mean);
}

uint64_t profile_draw_call(struct draw *draw, size_t size)
{
    bool drawn;

    if (draw)
        draw->calls++;
    if (!profile_on() || busy)
        return 0;
    if (draw) {
        draw_ready(draw);
        drawn = draw_one(draw, profile.draw_mean, size);
    } else {
        lock_acquire(&profile_lock);
        draw_ready(&outside);
        drawn = draw_one(&outside, profile.draw_mean, size);
        lock_release(&profile_lock);
    }
    return !drawn ? 0 : draw_weight(profile.draw_mean, size);
}

bool profile_note(struct record *record, struct stack_memory **stacks, const struct label_set *labels)
{
    bool noted;

    record->born_ms = profile_now_ms();
    busy = true;
    record->site = stack_site(profile_site, labels, stacks, profile.mean == 1);
    noted = record->site && table_insert(record);
    busy = false;
    return noted;
}

bool profile_forget(const void *block, struct caller by, struct record *record)
{
    return table_remove(block, profile_now_ms(), by, record);
}

void profile_forget_heap(struct heap *heap)
{
    if (atomic_load_explicit(&heap->sampled, memory_order_relaxed))
        table_remove_heap(heap, profile_now_ms());
}
