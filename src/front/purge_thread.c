#include "front/purge_thread.h"

#include "base/format.h"
#include "front/control.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/thread.h"
#include "options/options.h"
#include "pool/registry.h"
#include "superslab/parking.h"

/* The process is idle if no thread was on a slow path for so long, or for a purge delay if that is shorter. */
#define QUIET_MS 50u
/* How long the purge thread stays when one other thread is left: programs may rely on having one thread. */
#define ALONE_MS 1000u
#define NANOSECONDS_PER_MS UINT64_C(1000000)

/* Chooses the thread that starts it. Order: seq_cst. Who makes a thread counts it and then reads this. The purge thread
 * stores it and then reads the count. So either it goes on, or another one is started. */
static _Atomic bool started;

static uint64_t choice(void) { return __atomic_load_n(&hak_options.purge_thread, __ATOMIC_RELAXED); }

static bool is_always(void) { return choice() == OPTION_ALWAYS; }

/* The option, or purge_thread_set, says never. */
static bool is_refused(void) { return choice() == OPTION_NEVER; }

/* Whether memory waits to be given back. If not, the next that waits wakes the thread. */
static bool has_work(void)
{
    bool work;

    lock_acquire(&shared_pool.lock);
    work = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0;
    if (!work)
        atomic_store_explicit(&shared_pool.much_waits, false, memory_order_relaxed);
    lock_release(&shared_pool.lock);
    return work;
}

static bool is_wanted(void)
{
    return is_always() || atomic_load(&shared_pool.much_waits);
}

/* Sleeps, unless the program's last thread has ended: this one must end with it, or the process would never exit. */
static void pause_for(enum parking how, uint64_t ms)
{
    parking_enter(how);
    if (thread_count() != 0 && !(how == PARKING_ALONE && is_wanted()))
        parking_sleep(how, ms * NANOSECONDS_PER_MS);
}

/* Runs ticks until nothing is left. Gives back everything once the process is idle, unless the option is `always`. */
static void work(void)
{
    uint64_t pause =
        is_always() ? base_max(hak_options.purge_delay, 10) : base_min(base_max(hak_options.purge_delay, 1), QUIET_MS);
    uint32_t activity = registry_activity(), before;

    do {
        pause_for(PARKING_WORK, pause);
        before = activity;
        activity = registry_activity();
        if (!is_always() && activity == before)
            housekeep_purge(true);
        else
            housekeep_tick();
        misuse_settle(); /* a tick reports what it finds */
        control_poll();
    } while (thread_count() != 0 && (has_work() || is_always()) && !is_refused());
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
        atomic_store_explicit(&shared_pool.attended, true, memory_order_relaxed);
        do {
            if (is_wanted())
                work();
        } while (thread_count() != 0 && !is_refused() && (park() || is_wanted()) && !is_refused());
        atomic_store_explicit(&shared_pool.attended, false, memory_order_relaxed);
        atomic_store(&started, false);
    } while (thread_count() > 1 && !is_refused() && !atomic_exchange(&started, true));
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
    if (process_init() && !is_refused() && !atomic_load(&started)) {
        thread_note(); /* else the purge thread might count no thread and end at once */
        start(create);
    }
}

void purge_thread_at_start(os_thread_create *create)
{
    if (process_init() && is_always())
        purge_thread_at_thread(create);
}

void purge_thread_set(bool wanted, os_thread_create *create)
{
    if (!process_init())
        return;
    __atomic_store_n(&hak_options.purge_thread, wanted ? OPTION_ALWAYS : OPTION_NEVER, __ATOMIC_RELAXED);
    parking_wake(PARKING_WORK);
    purge_thread_at_start(create);
}

bool purge_thread_is_there(void) { return atomic_load_explicit(&started, memory_order_relaxed) && !is_refused(); }

void purge_thread_reset_in_child(void)
{
    atomic_store(&started, false);
    atomic_store_explicit(&shared_pool.attended, false, memory_order_relaxed);
    parking_enter(PARKING_AWAKE);
}
