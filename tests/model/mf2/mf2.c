/* Protects the MF2 protocol (src/pool/remote.h) in every order of two threads' steps.
 *
 * mf2 [NAME...]: runs all schedules of the named scenarios, or of all. A name is a scenario's, or its part before the
 * first `_`. Ends at the first broken invariant with the schedule that broke it and status 1.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ledger.h"
#include "os/fake.h"
#include "pool/registry.h"
#include "scenarios.h"
#include "scheduler.h"
#include "superslab/shared_pool.h"

static const struct scenario *scenario;
static size_t units_at_start;

static void prepare(void)
{
    ledger_start();
    scenario->prepare();
    ledger_start_watch();
}

static void finish(void)
{
    if (scenario->forwards) {
        size_t purged = 0;
        registry_trim_idle(true, true, &purged);
        ledger_start_watch();
    }
    ledger_check_settled();
    scenarios_drain_all();
    ledger_check_drained();
    ledger_free_all();
    ledger_check_released();
    scenarios_reset();
    if (shared_pool.units_used != units_at_start)
        scheduler_fail("%zu units are lost", shared_pool.units_used - units_at_start);
}

/* Replaces the library's slow path, which identifies a lock's holder by the kernel thread: here there is only one. It
 * is in this file so that ThreadSanitizer sees the lock being taken. */
void __wrap_lock_acquire_slow(struct lock *lock);
void __wrap_lock_acquire_slow(struct lock *lock)
{
    for (;;) {
        uint64_t state = 0;
        if (atomic_compare_exchange_strong(&lock->state, &state, os_thread_token() | LOCK_SLEEPERS))
            return;
        atomic_store(&lock->state, state | LOCK_SLEEPERS);
        os_futex_wait((_Atomic uint32_t *)(void *)&lock->state, (uint32_t)(state | LOCK_SLEEPERS), UINT64_MAX);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void explore(void)
{
    struct exploration exploration = {
        scenario->name, prepare, { scenario->thread[0], scenario->thread[1] }, ledger_watch, finish
    };
    double start = seconds();
    unsigned longest;
    uint64_t schedules = scheduler_explore(&exploration, &longest);

    printf("%-32s %9llu schedules of up to %3u steps, %6.2f s\n", scenario->name, (unsigned long long)schedules,
           longest, seconds() - start);
    fflush(stdout);
}

static bool is_named(const struct scenario *candidate, const char *name)
{
    size_t length = strlen(name);
    return strcmp(candidate->name, name) == 0 ||
           (strchr(name, '_') == NULL && strncmp(candidate->name, name, length) == 0 && candidate->name[length] == '_');
}

int main(int argc, char **argv)
{
    unsigned explored = 0;

    fake_reset();
    fake_set_cpu_count(1); /* no spinning before a sleep */
    if (!shared_pool_init() || !registry_init())
        return 2;
    scheduler_init();
    scenarios_init();
    units_at_start = shared_pool.units_used;
    for (unsigned i = 0; i < scenario_count; i++) {
        bool wanted = argc == 1;
        for (int name = 1; name < argc; name++)
            wanted |= is_named(&scenarios[i], argv[name]);
        if (wanted) {
            scenario = &scenarios[i];
            explore();
            explored++;
        }
    }
    if (explored == 0)
        printf("mf2: no such scenario\n");
    return explored ? 0 : 2;
}
