#include "superslab/limits.h"

#include "options/options.h"
#include "os/os.h"

HAK_DATA_UNLESS bool limits_await_sandbox = false;
HAK_DATA_HERE struct limits limits = { .cgroup_max = SIZE_MAX, .cgroup_high = SIZE_MAX };

static size_t limits_load(const _Atomic size_t *bytes) { return atomic_load_explicit(bytes, memory_order_relaxed); }

static bool limits_is_auto(uint64_t option) { return option == LIMIT_AUTO || option == LIMIT_DEFAULT; }

size_t limits_hard(void)
{
    size_t limit = (size_t)hak_options.memory_limit;

    if (limits_is_auto(limit)) {
        limit = limits_load(&limits.cgroup_max);
        return limit == SIZE_MAX ? 0 : limit;
    }
    return limit;
}

size_t limits_soft(void)
{
    size_t limit = (size_t)hak_options.memory_limit_soft;

    if (limits_is_auto(limit)) {
        limit = base_min(limits_load(&limits.cgroup_max), limits_load(&limits.cgroup_high));
        return limit == SIZE_MAX ? 0 : limit / 100 * LIMITS_SOFT_PERCENT;
    }
    return limit;
}

bool limits_pressed(void)
{
    return hak_options.memory_limit_soft == LIMIT_AUTO && atomic_load_explicit(&limits.pressed, memory_order_relaxed);
}

static uint32_t limits_now_ms(void) { return (uint32_t)(os_now_coarse() / 1000000) | 1; }

bool limits_are_due_slow(void)
{
    uint32_t read = atomic_load_explicit(&limits.read_ms, memory_order_relaxed);

    return read == 0 || limits_now_ms() - read >= LIMITS_READ_MS;
}

void limits_begin(void)
{
    if (hak_options.memory_limit == LIMIT_AUTO || hak_options.memory_limit_soft == LIMIT_AUTO ||
        (limits_are_unread() && !limits_await_sandbox))
        limits_read();
}

void limits_before_sandbox(void)
{
    if (limits_are_unread())
        limits_read();
}

/* X1 */
static bool limits_claim(uint32_t now)
{
    uint32_t reading = atomic_load_explicit(&limits.reading, memory_order_relaxed);

    return (reading == 0 || base_elapsed(now, reading) >= LIMITS_READING_MS) &&
           atomic_compare_exchange_strong_explicit(&limits.reading, &reading, now, memory_order_acquire,
                                                   memory_order_relaxed);
}

void limits_read(void)
{
    uint32_t now = limits_now_ms();
    struct os_memory_bounds bounds;

    if (!limits_claim(now))
        return;
    os_memory_bounds(&bounds, hak_options.memory_limit_soft == LIMIT_AUTO);
    atomic_store_explicit(&limits.cgroup_max, bounds.max, memory_order_relaxed);
    atomic_store_explicit(&limits.cgroup_high, bounds.high, memory_order_relaxed);
    atomic_store_explicit(&limits.pressed, bounds.stall_percent >= LIMITS_STALL_PERCENT, memory_order_relaxed);
    atomic_store_explicit(&limits.read_ms, now, memory_order_relaxed);
    atomic_store_explicit(&limits.reading, 0, memory_order_release);
}
