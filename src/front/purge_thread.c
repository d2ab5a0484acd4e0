#include "front/purge_thread.h"

#include "base/format.h"
#include "front/housekeeping.h"
#include "front/parking.h"
#include "front/process.h"
#include "front/thread.h"
#include "options/options.h"
#include "pool/registry.h"

/* How long nobody may have been on a slow path for the process to be idle, which is sooner than memory is unwanted for a delay. */
#define QUIET_MS 50u
/* How long the thread stays when only one thread is left beside it: programs may rely on having one thread. */
#define ALONE_MS 1000u
#define NANOSECONDS_PER_MS UINT64_C(1000000)

static _Atomic bool started;

static bool is_always(void) { return hak_options.purge_thread == OPTION_ALWAYS; }

static bool has_work(void) { return atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0; }

static bool is_wanted(void) { return is_always() || atomic_load_explicit(&shared_pool.much_free, memory_order_relaxed); }

/* Sleeps for a while. The thread must end with the program's last thread, or the process would never exit. */
static void pause_for(enum parking how, uint64_t ms)
{
    parking_enter(how);
    if (thread_count() != 0 && !(how == PARKING_ALONE && is_wanted()))
        parking_sleep(how, ms * NANOSECONDS_PER_MS);
}

/* Gives back what is due until nothing is left; everything, as soon as the process is idle. */
static void work(void)
{
    uint64_t pause = is_always() ? base_max(hak_options.purge_delay, 10) : base_min(base_max(hak_options.purge_delay, 1), QUIET_MS);
    uint32_t activity = registry_activity(), before;

    do {
        pause_for(PARKING_WORK, pause);
        before = activity;
        activity = registry_activity();
        if (!is_always() && activity == before)
            housekeep_purge(true);
        else
            housekeep_tick();
        dump_poll();
    } while (thread_count() != 0 && (is_always() || has_work()));
    atomic_store_explicit(&shared_pool.much_free, false, memory_order_relaxed);
}

/* Sleeps until memory waits to be given back. False: the thread should end. */
static bool park(void)
{
    if (thread_count() > 1) {
        parking_enter(PARKING_LONG);
        if (thread_count() > 1 && !is_wanted())
            parking_sleep(PARKING_LONG, UINT64_MAX);
    }
    if (thread_count() == 1)
        pause_for(PARKING_ALONE, ALONE_MS);
    return thread_count() > 1;
}

static void run(void)
{
    do {
        if (is_wanted())
            work();
    } while (thread_count() != 0 && (park() || is_wanted()));
    atomic_store_explicit(&started, false, memory_order_release);
}

static void start(os_thread_create *create)
{
    if (atomic_exchange(&started, true) || os_thread_start(create, run, "hakmem-purge"))
        return;
    atomic_store(&started, false);
    if (is_always())
        base_message("the purge thread could not be started");
}

void purge_thread_at_thread(os_thread_create *create)
{
    if (process_init() && hak_options.purge_thread != OPTION_NEVER && !atomic_load_explicit(&started, memory_order_relaxed)) {
        thread_note(); /* one thread at least is counted, or the purge thread would end at once */
        start(create);
    }
}

void purge_thread_at_start(os_thread_create *create)
{
    if (process_init() && is_always())
        purge_thread_at_thread(create);
}

void purge_thread_reset_in_child(void)
{
    atomic_store(&started, false);
    parking_enter(PARKING_AWAKE);
}
