#include "superslab/footprint.h"

#include "options/options.h"
#include "superslab/limits.h"
#include "superslab/parking.h"

/* How long a thread waits for bytes to leave, and how often. */
#define FOOTPRINT_WAIT_NS UINT64_C(10000000)
#define FOOTPRINT_WAITS 100u

size_t shared_pool_footprint(void)
{
    size_t footprint;

    lock_acquire(&shared_pool.lock);
    footprint = footprint_held();
    lock_release(&shared_pool.lock);
    return footprint;
}

void footprint_want_flush(void)
{
    size_t step = base_max(base_max(shared_pool.live_peak, shared_pool.live_peak_before) / 4, FOOTPRINT_SPARE);
    uint32_t now = shared_pool_now_ms(), since = base_elapsed(now, shared_pool.flush_wanted_ms), wait = 0;

    if (shared_pool.grown < step) {
        if (shared_pool.flush_wanted_ms - now - 1 < FOOTPRINT_FLUSH_MS)
            return; /* an earlier request is still waiting */
        wait = since < FOOTPRINT_FLUSH_MS ? FOOTPRINT_FLUSH_MS - since : 0;
    }
    if (wait == 0)
        shared_pool.grown = 0;
    shared_pool.flush_wanted_ms = now + wait;
    atomic_store_explicit(&shared_pool.flush_wanted, true, memory_order_relaxed);
    shared_pool_schedule_purge(wait);
}

/* The live peak of this purge delay and the one before, and what N2 allows beyond it. */
static size_t peak_with_slack(void)
{
    size_t peak = base_max(shared_pool.live_peak, shared_pool.live_peak_before);

    return peak + peak / 4 + FOOTPRINT_SPARE;
}

void footprint_wanted_again(void)
{
    shared_pool.trimmed = false;
    if (base_elapsed(shared_pool_now_ms(), shared_pool.trimmed_ms) < hak_options.purge_delay)
        shared_pool.may_wait = peak_with_slack();
}

void footprint_huge_trimmed(void)
{
    lock_acquire(&shared_pool.lock);
    footprint_note_trimmed();
    lock_release(&shared_pool.lock);
}

size_t footprint_ranges_most(size_t held)
{
    size_t most = HUGE_CACHE_DEFAULT, excess;

    lock_acquire(&shared_pool.lock);
    most = base_max(most, shared_pool.may_wait);
    excess = footprint_waits_too_much();
    lock_release(&shared_pool.lock);
    return base_min(most, held > excess ? held - excess : 0);
}

void footprint_decay(uint32_t now_ms)
{
    if (shared_pool.live_peak_ms != 0 &&
        base_elapsed(now_ms, shared_pool.live_peak_ms) < base_max(hak_options.purge_delay, 1))
        return;
    shared_pool.live_peak_before = shared_pool.live_peak;
    shared_pool.live_low_before = shared_pool.live_low;
    shared_pool.live_peak = shared_pool.live_low = footprint_live();
    shared_pool.live_peak_ms = now_ms;
    shared_pool.may_wait = base_min(shared_pool.may_wait, peak_with_slack());
    shared_pool.holes_may_wait = base_min(shared_pool.holes_may_wait, peak_with_slack());
}

/* The bound of N2 for a footprint that grows by `growth` bytes. */
static size_t footprint_most(size_t growth)
{
    size_t peak = base_max(base_max(shared_pool.live_peak, shared_pool.live_peak_before), footprint_live() + growth);
    size_t low = base_min(shared_pool.live_low, shared_pool.live_low_before);
    size_t slack = peak / 4 + FOOTPRINT_SPARE, soft = limits_soft(), hard = limits_hard();
    size_t most = peak + (low < peak / 4 ? slack / 2 : slack);

    if (HAK_UNLIKELY(soft && soft < most))
        most = soft;
    if (HAK_UNLIKELY(hard && hard < most))
        most = hard;
    return HAK_UNLIKELY(limits_pressed()) ? 0 : most;
}

size_t footprint_excess_slow(size_t growth)
{
    size_t held = footprint_held(), most = footprint_most(growth);

    return HAK_LIKELY(held + growth <= most) ? 0 : base_max(held + growth - most, held / FOOTPRINT_STEP);
}

bool footprint_is_limited(void)
{
    size_t soft = limits_soft();

    return limits_hard() || limits_pressed() || (soft && shared_pool_footprint() > soft);
}

bool footprint_allows(size_t growth)
{
    size_t held = footprint_held() + growth, soft = limits_soft(), hard = limits_hard();

    if (HAK_UNLIKELY((soft && held > soft) || limits_pressed())) {
        atomic_store_explicit(&shared_pool.over_soft_limit, true, memory_order_relaxed);
        shared_pool_schedule_purge(0);
    }
    return hard == 0 || held <= hard;
}

enum waiting_unpin footprint_unpin(size_t used, size_t free, struct waiting_peaks *peaks)
{
    struct waiting_inputs inputs = { .live = used };
    enum waiting_unpin unpin;

    if (atomic_load_explicit(&shared_pool.attended, memory_order_relaxed))
        return UNPIN_NOTHING;
    lock_acquire(&shared_pool.lock);
    inputs.wanted = shared_pool.may_wait;
    unpin = waiting_unpin(inputs, shared_pool.holes_may_wait, footprint_waiting() + free, peaks);
    if (unpin == UNPIN_PAGES) {
        shared_pool.scrubbed = true;
        shared_pool.scrubbed_ms = shared_pool_now_ms();
    }
    lock_release(&shared_pool.lock);
    return unpin;
}

void footprint_holes_wanted(void)
{
    lock_acquire(&shared_pool.lock);
    if (shared_pool.scrubbed &&
        base_elapsed(shared_pool_now_ms(), shared_pool.scrubbed_ms) < hak_options.purge_delay)
        shared_pool.holes_may_wait = peak_with_slack();
    shared_pool.scrubbed = false;
    lock_release(&shared_pool.lock);
}

void footprint_note_waiting(void)
{
    if (HAK_UNLIKELY(footprint_waiting() >= FOOTPRINT_MUCH &&
                     !atomic_load_explicit(&shared_pool.much_waits, memory_order_relaxed))) {
        shared_pool_schedule_purge(0);
        atomic_store(&shared_pool.much_waits, true);
        parking_wake(PARKING_ALONE); /* no call may come */
    }
    if (HAK_UNLIKELY(footprint_waits_too_much()))
        shared_pool_schedule_purge(0);
    shared_pool_want_purge();
}

void footprint_huge_waits(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    shared_pool.huge_waiting += bytes;
    footprint_note_low();
    footprint_note_waiting();
    lock_release(&shared_pool.lock);
}

void footprint_huge_taken(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    shared_pool.huge_waiting -= bytes;
    footprint_note_peak();
    lock_release(&shared_pool.lock);
}

void footprint_huge_leaves(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    shared_pool.huge_waiting -= bytes;
    shared_pool.huge_bytes -= bytes;
    footprint_leaves(bytes);
    lock_release(&shared_pool.lock);
}

void footprint_huge_left(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    footprint_left(bytes);
    lock_release(&shared_pool.lock);
}

void footprint_leaves(size_t bytes) { shared_pool.leaving += bytes; }

void footprint_left(size_t bytes)
{
    shared_pool.leaving -= bytes;
    atomic_fetch_add_explicit(&shared_pool.left, 1, memory_order_relaxed);
    if (HAK_UNLIKELY(shared_pool.waiters))
        os_futex_wake(&shared_pool.left, INT32_MAX);
}

bool footprint_wait(unsigned *waits)
{
    uint32_t left = atomic_load_explicit(&shared_pool.left, memory_order_relaxed);

    if (shared_pool.leaving == 0 || ++*waits > FOOTPRINT_WAITS)
        return false;
    shared_pool.waiters++;
    lock_release(&shared_pool.lock);
    os_futex_wait(&shared_pool.left, left, FOOTPRINT_WAIT_NS);
    lock_acquire(&shared_pool.lock);
    shared_pool.waiters--;
    return true;
}

void footprint_reset_after_fork(void)
{
    shared_pool.leaving = 0;
    shared_pool.waiters = 0;
}

void shared_pool_uncharge_huge(size_t bytes)
{
    lock_acquire(&shared_pool.lock);
    shared_pool.huge_bytes -= bytes;
    lock_release(&shared_pool.lock);
}

void shared_pool_note_huge_mapped(void)
{
    lock_acquire(&shared_pool.lock);
    footprint_note_peak();
    lock_release(&shared_pool.lock);
}
