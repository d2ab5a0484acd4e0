#include "front/housekeeping.h"

#include "front/parking.h"
#include "front/pressure.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/footprint.h"
#include "superslab/limits.h"
#include "superslab/purge.h"
#include "superslab/ranges.h"

/* A tick that stopped at a bound goes on so soon. */
#define STEP_MS 1u

static _Atomic bool ticking;
static _Atomic uint32_t last_tick_ms;

/* Returns the blocks in the cache of a thread that is gone. */
static void close_cache(void *cache)
{
    if (((struct thread_cache *)cache)->capacity_bytes)
        cache_flush_all(cache, true);
}

/* Everything that a purge delay makes due: the ticking thread's own cache, idle heaps, and then what is free. `stale`: what is
 * given up now was unwanted for a delay already. */
static size_t tick_run(uint32_t now, bool stale, bool all)
{
    struct thread_cache *cache = cache_current();
    size_t bytes = 0;
    bool left;

    atomic_store_explicit(&last_tick_ms, now, memory_order_relaxed);
    cache_want_flush();
    atomic_store_explicit(&shared_pool.stale, stale, memory_order_relaxed);
    purge_begin(); /* G2: a thread that ends from here on wants another */
    if (cache->heap)
        cache_flush_all(cache, false);
    registry_settle(all, close_cache);
    left = registry_trim_idle(stale, all, &bytes);
    atomic_store_explicit(&shared_pool.stale, false, memory_order_relaxed);
    bytes += purge_free_units(all) + ranges_purge(all) + registry_purge_dead(all);
    if (left)
        shared_pool_want_purge();
    if (registry_has_more())
        shared_pool_schedule_purge(STEP_MS);
    return bytes;
}

/* What the last tick left over at its bounds, without what a tick asks of live threads. */
static void tick_go_on(void)
{
    size_t bytes = 0;

    purge_begin();
    registry_settle(false, close_cache);
    if (registry.trimming)
        registry_trim_idle(false, false, &bytes);
    purge_free_units(false);
    registry_purge_dead(false);
    shared_pool_want_purge(); /* G2: whatever else wanted one */
    if (registry_has_more())
        shared_pool_schedule_purge(STEP_MS);
}

size_t housekeep_purge(bool all) { return tick_run(shared_pool_now_ms(), all, all); }

void housekeep_make_room(void)
{
    if (atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed) || limits_hard())
        housekeep_purge(true);
    else if (atomic_load_explicit(&shared_pool.refused, memory_order_relaxed))
        ranges_purge(true); /* the window's next slots were refused, and may lack the address space of freed huge blocks */
}

/* A flush was wanted since the thread's last slow call. Where that is a purge delay ago, what the cache holds was unwanted for as long,
 * and leaves at once. */
void housekeep_follow(void)
{
    struct thread_cache *cache = cache_current();
    uint32_t now = shared_pool_now_ms();

    if (cache->heap == NULL || lock_in_fork())
        return;
    (void)cache_flush_number(); /* what was stored before it rose */
    if (cache_is_empty(cache) || now - cache_flush_wanted_ms() < hak_options.purge_delay ||
        atomic_exchange_explicit(&ticking, true, memory_order_acquire)) {
        cache_flush_all(cache, false);
        return;
    }
    tick_run(now, true, false);
    atomic_store_explicit(&ticking, false, memory_order_release);
}

bool housekeep_tick(void)
{
    uint32_t now = shared_pool_now_ms(), due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);

    if (!purge_is_due(now) || lock_in_fork() || atomic_exchange_explicit(&ticking, true, memory_order_acquire))
        return false;
    /* Long overdue: nobody was on a slow path for a whole delay, so what caches and warm pools hold is as old. Too early: only
     * the shared pool asks, because it holds too much. */
    if (now - atomic_load_explicit(&last_tick_ms, memory_order_relaxed) >= hak_options.purge_delay) {
        tick_run(now, now - due >= hak_options.purge_delay / 2, false);
    } else if (registry_has_more()) {
        tick_go_on();
    } else {
        if (footprint_take_flush()) {
            cache_want_flush();
            if (cache_current()->heap)
                cache_flush_all(cache_current(), false);
        }
        purge_run(false);
        shared_pool_want_purge(); /* G2: dead threads' caches and pending slabs may have wanted it too */
    }
    atomic_store_explicit(&ticking, false, memory_order_release);
    return true;
}

void housekeep_due(void)
{
    if (atomic_load_explicit(&shared_pool.much_free, memory_order_relaxed))
        parking_wake(PARKING_ALONE);
    if (housekeep_tick() && (limits_pressed() || (limits_soft() && shared_pool_footprint() > limits_soft())))
        pressure_call(shared_pool_footprint(), limits_soft());
}

void housekeep_reset_in_child(void)
{
    atomic_store(&ticking, false);
    atomic_store(&shared_pool.much_free, false);
    footprint_reset_after_fork();
    pressure_reset_in_child();
}
