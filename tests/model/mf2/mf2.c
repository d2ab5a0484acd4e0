/* Protects remote frees and the life of heaps: no schedule of threads breaks an invariant or loses a block.
 *
 * mf2 [OPTION...] [NAME...]: runs the schedules of the named scenarios, or of all. A name is a scenario's, or its part
 * before the first `_`. Ends at the first broken invariant with the schedule that broke it and status 1.
 *
 * --weak      explores the memory orders that the sources state; else every step sees the last store
 * --whole     without reduction: every order of the steps
 * --compare   with and without reduction; fails unless both end in the same states
 * --sample N  runs N schedules at random; fails if one ends in a state that the reduced exploration does not reach
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ledger.h"
#include "memory.h"
#include "os/fake.h"
#include "pool/registry.h"
#include "scenarios.h"
#include "scheduler.h"
#include "observe/counters.h"
#include "superslab/shared_pool.h"

static const struct scenario *scenario;
static size_t units_at_start;
static bool weak, whole, compared;
static uint64_t samples;

/* The flavor coverage counts lines in this section. clang's run-time maps a file, this far from it, which has the
 * counts from then on. The other flavors lack the names. */
extern uintptr_t __llvm_profile_counter_bias __attribute__((weak, visibility("hidden")));
extern char __start___llvm_prf_cnts[] __attribute__((weak, visibility("hidden")));
extern char __stop___llvm_prf_cnts[] __attribute__((weak, visibility("hidden")));

static void prepare(void)
{
    ledger_start();
    scenario->prepare();
    ledger_start_watch();
}

static void run(unsigned thread)
{
    scenario->thread[thread]();
}

/* The shares of the thread that began or ended last stay. */
static void check_shares(void)
{
    uint32_t threads = atomic_load(&registry.live_threads), share = atomic_load(&heap_signals.warm_share);

    if (share != base_max(WARM_TOTAL / base_max(threads, 1), 1) || heap_signals.several != (threads > 1))
        scheduler_fail("%u threads have heaps, and each may keep %u units", threads, share);
}

static void finish(void)
{
    check_shares();
    if (scenario->forwards) {
        size_t purged = 0;
        registry_trim_idle(true, true, NULL, &purged);
        ledger_start_watch();
    }
    ledger_check_settled();
    scenarios_drain_all();
    ledger_check_drained();
    ledger_free_all();
    ledger_check_released();
    scenarios_release_warm();
    if (shared_pool.units_used != units_at_start)
        scheduler_fail("%zu units are lost", shared_pool.units_used - units_at_start);
    scenarios_reset();
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool is_named(const struct scenario *candidate, const char *name)
{
    size_t length = strlen(name);
    return strcmp(candidate->name, name) == 0 ||
           (strchr(name, '_') == NULL && strncmp(candidate->name, name, length) == 0 && candidate->name[length] == '_');
}

enum way { REDUCED, WHOLE, RANDOM };

static struct explored explore(enum way way)
{
    struct exploration exploration = {
        .name = scenario->name, .whole = way == WHOLE, .random = way == RANDOM, .weak = weak,
        .forks = is_named(scenario, "fork"), .prepare = prepare, .run = run,
        .watch = ledger_watch, .digest = memory_digest, .finish = finish,
    };
    double start = seconds();
    struct explored result;

    while (exploration.threads < SCHEDULER_THREADS && scenario->thread[exploration.threads])
        exploration.threads++;
    result = scheduler_explore(&exploration, way == RANDOM ? samples : 0);
    printf("%-32s %u threads %9llu schedules (%llu redundant) of up to %3u steps, %6zu final states, %6.2f s%s\n",
           scenario->name, exploration.threads, (unsigned long long)result.schedules,
           (unsigned long long)result.redundant, result.longest, result.states, seconds() - start,
           way == WHOLE ? ", whole" : way == RANDOM ? ", at random" : "");
    fflush(stdout);
    return result;
}

/* Whether the reduced exploration reaches every state of the other one, and with all orders no other state. */
static bool compare(enum way way)
{
    struct explored reduced = explore(REDUCED), other;
    uint64_t *digests = malloc(reduced.states * sizeof *digests);
    size_t states = reduced.states, at = 0, lost = 0;

    if (!digests)
        abort();
    memcpy(digests, reduced.digests, states * sizeof *digests);
    other = explore(way);
    for (size_t i = 0; i < other.states; i++) {
        while (at < states && digests[at] < other.digests[i])
            at++;
        lost += at == states || digests[at] != other.digests[i];
    }
    free(digests);
    if (lost)
        printf("mf2: %s: the reduction loses %zu final states\n", scenario->name, lost);
    else if (way == WHOLE && other.states != states)
        printf("mf2: %s: the reduction has final states that no schedule has\n", scenario->name);
    return !lost && (way != WHOLE || other.states == states);
}

static char **parse(char **word)
{
    for (; *word && strncmp(*word, "--", 2) == 0; word++) {
        if (strcmp(*word, "--weak") == 0)
            weak = true;
        else if (strcmp(*word, "--whole") == 0)
            whole = true;
        else if (strcmp(*word, "--compare") == 0)
            compared = true;
        else if (strcmp(*word, "--sample") == 0 && word[1])
            samples = strtoull(*++word, NULL, 10);
        else
            return NULL;
    }
    return word;
}

/* What steers no step: counts for statistics or of lines, what decides how much free memory is kept, and the shared
 * pool but for the request for a purge. */
static void describe_memory(void)
{
    size_t request = offsetof(struct shared_pool, next_purge_ms), after = request + sizeof shared_pool.next_purge_ms;

    memory_exempt(&shared_pool, request);
    memory_exempt((char *)&shared_pool + after, sizeof shared_pool - after);
    memory_exempt(&heap_signals.active, sizeof heap_signals.active);
    memory_exempt(debug_counters, sizeof debug_counters);
    if (&__llvm_profile_counter_bias != NULL) {
        memory_exempt((char *)((uintptr_t)__start___llvm_prf_cnts + __llvm_profile_counter_bias),
                      (size_t)((uintptr_t)__stop___llvm_prf_cnts - (uintptr_t)__start___llvm_prf_cnts));
        memory_exempt(&__llvm_profile_counter_bias, sizeof __llvm_profile_counter_bias);
    }
    memory_note_sum(&heap_signals.queues);
    memory_note_sum(&registry.orphan_count);
    memory_describe = ledger_describe;
}

int main(int argc, char **argv)
{
    char **names = argc ? parse(argv + 1) : NULL;
    unsigned explored = 0;

    if (!names)
        return 2;
    fake_reset();
    fake_set_cpu_count(1); /* no spinning before a sleep */
    if (!shared_pool_init() || !registry_init())
        return 2;
    scheduler_init();
    describe_memory();
    scenarios_init();
    units_at_start = shared_pool.units_used;
    for (unsigned i = 0; i < scenario_count; i++) {
        bool wanted = *names == NULL;
        for (char **name = names; *name; name++)
            wanted |= is_named(&scenarios[i], *name);
        if (!wanted)
            continue;
        scenario = &scenarios[i];
        explored++;
        if (!compared && !samples)
            explore(whole ? WHOLE : REDUCED);
        else if (!compare(samples ? RANDOM : WHOLE))
            return 1;
    }
    if (explored == 0)
        printf("mf2: no such scenario\n");
    return explored ? 0 : 2;
}
