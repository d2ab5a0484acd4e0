#define _GNU_SOURCE
#include "scheduler.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "fiber.h"

enum {
    STEPS_MOST = 2000, /* steps of a schedule; more mean an endless loop */
    STACK_BYTES = 128 * 1024,
    LOCKS_MOST = 8, /* locks held by one thread, and locks touched by any */
};

struct coroutine {
    ucontext_t context;
    struct fiber fiber;
    bool finished;
    const _Atomic uint32_t *sleeps_on; /* futex word, or NULL */
    const struct lock *held[LOCKS_MOST];
    unsigned held_count;
};

struct step {
    const char *file;
    int line;
    int thread;
};

static struct coroutine threads[SCHEDULER_THREADS], driver;
static _Alignas(64) char stacks[SCHEDULER_THREADS][STACK_BYTES];
static const struct exploration *explored;
static int current = -1;

/* The locks touched in this exploration, and the threads that touched them. */
static struct {
    const struct lock *lock;
    unsigned touched_by; /* bits of threads */
} locks[LOCKS_MOST];
static unsigned lock_count;
static bool locks_changed; /* a second thread touched a lock */

static char prepared, finished; /* places for fiber_post */

/* The schedule: which of the runnable threads went on at each choice. */
static unsigned char choices[STEPS_MOST], options[STEPS_MOST];
static unsigned choice_count, replayed;
static struct step trace[STEPS_MOST];
static unsigned trace_count;

/* ---- The end ---- */

static void print_trace(void)
{
    printf("mf2: the schedule, by thread and the place that each step starts from:\n");
    for (unsigned i = 0; i < trace_count; i++) {
        const char *name = strrchr(trace[i].file, '/');
        printf("    %*s%d  %s:%d\n", trace[i].thread * 40, "", trace[i].thread,
               name ? name + 1 : trace[i].file, trace[i].line);
    }
    fflush(stdout);
}

void scheduler_fail(const char *format, ...)
{
    va_list arguments;

    printf("mf2: %s: ", explored ? explored->name : "start");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    print_trace();
    _exit(1);
}

/* The code under test aborts or faults, never inside printf. */
static void on_signal(int number)
{
    signal(number, SIG_DFL);
    scheduler_fail("the library died of signal %d (%s)", number, strsignal(number));
}

/* ---- Coroutines ---- */

static void switch_to(struct coroutine *from, struct coroutine *to)
{
    fiber_leave(&from->fiber, &to->fiber);
    swapcontext(&from->context, &to->context);
    fiber_arrive(&from->fiber);
}

static bool can_run(int thread)
{
    return !threads[thread].finished && threads[thread].sleeps_on == NULL;
}

/* Returns which of `count` ways the schedule takes next. */
static unsigned choose(unsigned count)
{
    unsigned chosen = 0;

    if (count == 1)
        return 0;
    if (replayed < choice_count) {
        chosen = choices[replayed];
        if (options[replayed] != count)
            scheduler_fail("the same schedule led elsewhere: the test is not repeatable");
    } else {
        if (choice_count == STEPS_MOST)
            scheduler_fail("more than %d choices: an endless loop", STEPS_MOST);
        choices[choice_count] = 0;
        options[choice_count++] = (unsigned char)count;
    }
    replayed++;
    return chosen;
}

/* Continues with a runnable thread. The running one is the first choice, so the first schedule has least switches. */
static void go_on(void)
{
    int here = current, ready[SCHEDULER_THREADS];
    unsigned count = 0;

    for (int i = 0; i < SCHEDULER_THREADS; i++) {
        int thread = (here + i) % SCHEDULER_THREADS;
        if (can_run(thread))
            ready[count++] = thread;
    }
    if (count == 0) {
        for (int i = 0; i < SCHEDULER_THREADS; i++)
            if (!threads[i].finished)
                scheduler_fail("deadlock: thread %d sleeps and nobody will wake it", i);
        current = -1;
        switch_to(&threads[here], &driver);
        return;
    }
    current = ready[choose(count)];
    if (current != here)
        switch_to(&threads[here], &threads[current]);
}

void scheduler_step(const char *file, int line)
{
    if (current < 0)
        return;
    if (trace_count == STEPS_MOST)
        scheduler_fail("more than %d steps: an endless loop", STEPS_MOST);
    explored->watch();
    go_on();
    trace[trace_count++] = (struct step){ file, line, current };
}

/* Steps at a lock that only one thread touches commute with all steps of the other thread, so their order does not
 * matter. Once a second thread touches the lock, the exploration restarts with steps there. */
void scheduler_lock_step(const struct lock *lock, const char *file, int line)
{
    const unsigned all = (1u << SCHEDULER_THREADS) - 1;
    unsigned i = 0, before;

    if (current < 0)
        return;
    while (i < lock_count && locks[i].lock != lock)
        i++;
    if (i == LOCKS_MOST)
        scheduler_fail("more than %d locks", LOCKS_MOST);
    lock_count += i == lock_count;
    locks[i].lock = lock;
    before = locks[i].touched_by;
    locks[i].touched_by |= 1u << current;
    if (before == all) {
        scheduler_step(file, line);
        return;
    }
    explored->watch();
    locks_changed |= locks[i].touched_by == all;
}

static void coroutine_main(int thread)
{
    fiber_arrive(&threads[thread].fiber);
    for (;;) {
        fiber_await(&prepared);
        explored->thread[thread]();
        explored->watch();
        fiber_post(&finished);
        if (threads[thread].held_count)
            scheduler_fail("thread %d ends with a lock held", thread);
        threads[thread].finished = true;
        go_on();
    }
}

/* ---- The kernel's part, by the linker's --wrap: a thread that sleeps gives the processor to the other ---- */

void __wrap_os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void __wrap_os_futex_wake(_Atomic uint32_t *word, int count);
void __wrap_lock_rank_push(const struct lock *lock, bool tried);
void __wrap_lock_rank_pop(const struct lock *lock);

/* The library's own check of L1 in debug builds knows only kernel threads. */
void __wrap_lock_rank_push(const struct lock *lock, bool tried)
{
    (void)lock;
    (void)tried;
}

void __wrap_lock_rank_pop(const struct lock *lock)
{
    (void)lock;
}

void __wrap_os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    if (current < 0 || timeout_ns != UINT64_MAX)
        scheduler_fail("a wait that nothing can end, or one with a limit");
    if (atomic_load_explicit(word, memory_order_relaxed) != expected)
        return;
    threads[current].sleeps_on = word;
    go_on();
}

void __wrap_os_futex_wake(_Atomic uint32_t *word, int count)
{
    for (int i = 0; i < SCHEDULER_THREADS && count > 0; i++)
        if (threads[i].sleeps_on == word) {
            threads[i].sleeps_on = NULL;
            count--;
        }
}

/* ---- Locks held ---- */

static struct coroutine *holder(void)
{
    return current < 0 ? &driver : &threads[current];
}

bool scheduler_holds(const struct lock *lock)
{
    const struct coroutine *self = holder();

    for (unsigned i = 0; i < self->held_count; i++)
        if (self->held[i] == lock)
            return true;
    return false;
}

void scheduler_will_hold(const struct lock *lock)
{
    const struct coroutine *self = holder();

    for (unsigned i = 0; i < self->held_count; i++)
        if (self->held[i]->rank >= lock->rank)
            scheduler_fail("L1: a lock of rank %u is taken under one of rank %u", lock->rank, self->held[i]->rank);
}

void scheduler_holds_now(const struct lock *lock)
{
    struct coroutine *self = holder();

    if (self->held_count == LOCKS_MOST)
        scheduler_fail("more than %d locks held", LOCKS_MOST);
    self->held[self->held_count++] = lock;
}

void scheduler_holds_no_more(const struct lock *lock)
{
    struct coroutine *self = holder();
    unsigned i = 0;

    while (i < self->held_count && self->held[i] != lock)
        i++;
    if (i == self->held_count)
        scheduler_fail("L1: a lock of rank %u is released by a thread that does not hold it", lock->rank);
    self->held[i] = self->held[--self->held_count];
}

/* ---- Exploring ---- */

union coroutine_entry {
    void (*with_thread)(int thread);
    void (*plain)(void);
};

static void coroutine_create(int thread)
{
    union coroutine_entry entry = { .with_thread = coroutine_main };
    ucontext_t *context = &threads[thread].context;

    if (getcontext(context) != 0)
        abort();
    context->uc_stack.ss_sp = stacks[thread];
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = NULL;
    makecontext(context, entry.plain, 1, thread);
    fiber_create(&threads[thread].fiber, stacks[thread], STACK_BYTES);
}

void scheduler_init(void)
{
    static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE };

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], on_signal);
    fiber_adopt(&driver.fiber);
    for (int i = 0; i < SCHEDULER_THREADS; i++)
        coroutine_create(i);
}

static void run_schedule(void)
{
    replayed = trace_count = 0;
    explored->prepare();
    for (int i = 0; i < SCHEDULER_THREADS; i++)
        threads[i].finished = false;
    current = (int)choose(SCHEDULER_THREADS);
    trace[trace_count++] = (struct step){ "start", 0, current };
    fiber_post(&prepared);
    switch_to(&driver, &threads[current]);
    fiber_await(&finished);
    explored->finish();
}

/* Makes `choices` the start of the next schedule. Returns false when there is none. */
static bool advance_schedule(void)
{
    while (choice_count && choices[choice_count - 1] + 1 == options[choice_count - 1])
        choice_count--;
    if (choice_count == 0)
        return false;
    choices[choice_count - 1]++;
    return true;
}

uint64_t scheduler_explore(const struct exploration *exploration, unsigned *longest)
{
    uint64_t schedules = 0; /* including those before a restart */

    explored = exploration;
    choice_count = 0;
    *longest = 0;
    __builtin_memset(locks, 0, sizeof locks);
    lock_count = 0;
    do {
        locks_changed = false;
        run_schedule();
        schedules++;
        *longest = trace_count > *longest ? trace_count : *longest;
        if (locks_changed)
            choice_count = 0;
    } while (locks_changed || advance_schedule());
    explored = NULL;
    return schedules;
}
