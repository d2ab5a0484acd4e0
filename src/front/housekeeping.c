#include "front/housekeeping.h"

#include "front/pressure.h"
#include "harden/look.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "superslab/footprint.h"
#include "superslab/limits.h"
#include "superslab/purge.h"
#include "superslab/ranges.h"

/* A tick that stopped at a bound goes on after this time. */
#define STEP_MS 1u

static _Atomic bool ticking; /* Order: acquire and release, as a lock */
static _Atomic uint32_t last_tick_ms; /* 0: none yet. Order: relaxed, under `ticking` */

/* Returns the blocks in the cache of a thread that is gone, and the heap that served it. */
static struct heap *close_cache(void *memory)
{
    struct thread_cache *cache = memory;

    if (cache->heap && (HAK_SECURE || cache->open)) /* no heap: a fork came as the thread began */
        cache_flush_all(cache, true);
    return cache_serve_itself(cache);
}

/* ThreadSanitizer takes the looks' reads for races. */
enum { LOOKS = HAK_SECURE && !HAK_THREAD_SANITIZER };

/* Trims idle heaps. Then, under no lock, reports what was found in scrubbed slabs. */
static bool tick_trim(bool stale, bool all, size_t *bytes)
{
    struct look look = { .block = NULL };
    bool left = registry_trim_idle(stale, all, LOOKS ? look_begin(&look) : NULL, bytes);

    if (LOOKS)
        look_report(&look);
    return left;
}

/* Does all that a purge delay makes due: flushes the thread's own cache, trims idle heaps, then purges free memory.
 * `stale`: the free memory was unwanted for a delay already. */
static size_t tick_run(uint32_t now, bool stale, bool all)
{
    struct thread_cache *cache = cache_own();
    size_t bytes = 0;
    bool left;

    atomic_store_explicit(&last_tick_ms, now, memory_order_relaxed);
    cache_want_flush();
    atomic_store_explicit(&shared_pool.stale, stale, memory_order_relaxed);
    purge_begin(); /* G2: a thread that ends from here on requests another */
    if (cache->heap)
        cache_flush_all(cache, false);
    registry_settle(all, close_cache);
    left = tick_trim(stale, all, &bytes);
    atomic_store_explicit(&shared_pool.stale, false, memory_order_relaxed);
    bytes += purge_free_units(all) + ranges_purge(all) + registry_purge_dead(all);
    if (left)
        shared_pool_want_purge();
    if (registry_has_more())
        shared_pool_schedule_purge(STEP_MS);
    return bytes;
}

/* Goes on where the last tick stopped at its bounds. Asks live threads for no flush. */
static void tick_go_on(void)
{
    size_t bytes = 0;

    purge_begin();
    registry_settle(false, close_cache);
    if (registry.trimming)
        tick_trim(false, false, &bytes);
    purge_free_units(false);
    registry_purge_dead(false);
    shared_pool_want_purge(); /* G2: purge_begin cleared all requests */
    if (registry_has_more())
        shared_pool_schedule_purge(STEP_MS);
}

size_t housekeep_purge(bool all) { return tick_run(shared_pool_now_ms(), all, all); }

void housekeep_make_room(void)
{
    if (atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed) || limits_hard())
        housekeep_purge(true);
    else if (shared_pool_shortage() == SHORTAGE_SYSTEM)
        ranges_purge(true); /* the window could not grow: freed huge blocks may hold the addresses it needs */
}

/* Flushes the cache, because a flush was requested since the thread's last slow call. If the request is a purge delay
 * old, the cache's blocks were unused for so long, and a tick gives them back at once. */
void housekeep_follow(void)
{
    struct thread_cache *cache = cache_own();
    uint32_t now;

    /* The retired cache of a thread in a scope always asks (T9). */
    if (cache->heap == NULL || cache->tick == cache_flush_number() || lock_in_fork())
        return;
    now = shared_pool_now_ms();
    (void)cache_flush_number(); /* acquires what was stored before it rose */
    if ((cache_is_empty(cache) && __atomic_load_n(&cache->heap->body->warm_bound.units, __ATOMIC_RELAXED) == 0) ||
        base_elapsed(now, cache_flush_wanted_ms()) < hak_options.purge_delay ||
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
    uint32_t last;

    if (!purge_is_due(now) || lock_in_fork() || atomic_exchange_explicit(&ticking, true, memory_order_acquire))
        return false;
    /* If the tick comes half a delay late, no thread was on a slow path, so the contents of caches and warm pools are
     * stale. If it comes less than a delay after the last tick, the shared pool asked for it, because it holds too
     * much. */
    last = atomic_load_explicit(&last_tick_ms, memory_order_relaxed);
    if (last == 0 || base_elapsed(now, last) >= hak_options.purge_delay) {
        tick_run(now, base_elapsed(now, due) >= hak_options.purge_delay / 2, false);
    } else if (registry_has_more()) {
        tick_go_on();
    } else {
        if (footprint_take_flush()) {
            cache_want_flush();
            if (cache_own()->heap)
                cache_flush_all(cache_own(), false);
            registry_release_warm();
        }
        purge_run(false);
        shared_pool_want_purge(); /* G2: dead threads' caches and pending slabs may have requested it, too */
    }
    atomic_store_explicit(&ticking, false, memory_order_release);
    return true;
}

void housekeep_due(void)
{
    if (housekeep_tick() && (limits_pressed() || (limits_soft() && shared_pool_footprint() > limits_soft())))
        pressure_call(shared_pool_footprint(), limits_soft());
}

void housekeep_reset_in_child(void)
{
    atomic_store(&ticking, false);
    atomic_store(&shared_pool.much_waits, false);
    footprint_reset_after_fork();
    pressure_reset_in_child();
}
