#define _GNU_SOURCE
#include "scheduler.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "fiber.h"
#include "memory.h"
#include "os/lock.h"

enum {
    STEPS_MOST = 1000, /* steps of a schedule; more mean an endless loop */
    STACK_BYTES = 128 * 1024,
    HELD_MOST = 16, /* locks held by one thread */
};

struct step {
    const void *place;
    enum step_kind kind;
};

struct coroutine {
    ucontext_t context;
    struct fiber fiber;
    bool finished;
    bool begins;           /* it runs to its first step */
    struct step next;      /* where it stopped */
    const struct lock *held[HELD_MOST];
    unsigned held_count;
};

/* A step of the schedule, and the state before it. Sets of threads are bits. */
struct node {
    struct step next[SCHEDULER_THREADS]; /* of each thread */
    uint8_t enabled, backtrack, done, asleep;
    uint8_t thread;
    uint8_t way, ways;                 /* scheduler_choose */
    bool found_free;                   /* it takes a lock, or tries to, that is free */
    uint16_t after[SCHEDULER_THREADS]; /* steps of each thread that are ordered before this one, and itself */
    uint16_t number;                   /* which of its thread's steps it is, from 1 */
};

static struct coroutine threads[SCHEDULER_THREADS], driver;
static _Alignas(64) char stacks[SCHEDULER_THREADS][STACK_BYTES];
static const struct exploration *explored;
static int current = -1;
static int in_child = -1; /* in the child of a fork: the thread that forked */
static bool restarts;

static struct node nodes[STEPS_MOST];
static unsigned depth, replayed; /* nodes of this run; of the last run that this one repeats */
static unsigned last_of[SCHEDULER_THREADS]; /* 1 + the thread's last node; 0: none */
static bool redundant;

static uint64_t *digests;
static size_t digest_count, digest_room;

/* ---- The end ---- */

static const char *const kind_names[STEP_KINDS] = { "goes on", "reads", "writes", "adds to", "takes", "tries",
                                                    "gives", "forks" };

static void print_trace(void)
{
    printf("mf2: the schedule, by thread:\n");
    for (unsigned i = 0; i < depth; i++) {
        const struct step *step = &nodes[i].next[nodes[i].thread];
        char name[128] = "";
        if (step->place)
            snprintf(name, sizeof name, "%p", step->place);
        if (step->place && memory_describe)
            memory_describe(step->place, name, sizeof name);
        printf("    %*s%d %s %s", nodes[i].thread * 30, "", nodes[i].thread, kind_names[step->kind], name);
        if (nodes[i].ways > 1)
            printf(" (way %u of %u)", nodes[i].way + 1u, nodes[i].ways);
        printf("\n");
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

/* ---- Reduction ---- */

static bool are_dependent(const struct step *a, const struct step *b)
{
    if (a->kind == STEP_FORK || b->kind == STEP_FORK)
        return a->kind != STEP_READ && b->kind != STEP_READ && a->place && b->place;
    if (a->place != b->place || a->place == NULL)
        return false;
    return !(a->kind == STEP_READ && b->kind == STEP_READ) && !(a->kind == STEP_ADD && b->kind == STEP_ADD);
}

static const struct step *step_of(unsigned node)
{
    return &nodes[node].next[nodes[node].thread];
}

/* Whether a dependent later step could also come before the earlier one. A thread that waits for a lock could take it
 * only before a step that found it free, or before a fork that did not hold it: `givers` released it in between. */
static bool are_reversible(unsigned earlier, unsigned later, unsigned givers)
{
    if (step_of(later)->kind != STEP_TAKE)
        return true;
    if (step_of(earlier)->kind == STEP_FORK)
        return !((givers >> nodes[earlier].thread) & 1);
    return nodes[earlier].found_free;
}

static bool is_after(const uint16_t *after, unsigned node)
{
    return after[nodes[node].thread] >= nodes[node].number;
}

static void join(uint16_t *after, unsigned node)
{
    for (unsigned thread = 0; thread < SCHEDULER_THREADS; thread++)
        after[thread] = (uint16_t)base_max(after[thread], nodes[node].after[thread]);
}

/* The last node races with an earlier one: some schedule must have them in the other order. Its first step after the
 * state before the earlier node can be any that depends on nothing of what is not ordered after that node. */
static void add_backtrack(unsigned earlier)
{
    unsigned last = depth - 1, first = 0;
    uint16_t before[SCHEDULER_THREADS] = { 0 };
    struct node *node = &nodes[earlier];
    uint8_t seen = 0;

    if (last_of[nodes[last].thread])
        join(before, last_of[nodes[last].thread] - 1);
    for (unsigned i = earlier + 1; i <= last; i++) {
        uint8_t bit = (uint8_t)(1u << nodes[i].thread);
        bool initial = true;
        if (i < last && nodes[i].after[node->thread] >= node->number)
            continue;
        for (unsigned j = earlier + 1; j < i && initial; j++)
            if (nodes[j].after[node->thread] < node->number)
                initial = i < last ? !is_after(nodes[i].after, j)
                                   : !is_after(before, j) && !are_dependent(step_of(j), step_of(i));
        if (initial && !(seen & bit))
            first |= bit;
        seen |= bit;
    }
    if (node->backtrack & first)
        return;
    first &= node->enabled;
    if (first & (1u << nodes[last].thread))
        first = 1u << nodes[last].thread;
    node->backtrack |= first ? (uint8_t)(first & (0u - first)) : node->enabled;
}

/* Orders the last node after those that it depends on, and finds the races. */
static void order_last(bool is_new)
{
    struct node *node = &nodes[depth - 1];
    const struct step *step = step_of(depth - 1);
    uint16_t known[SCHEDULER_THREADS] = { 0 };
    unsigned previous = last_of[node->thread], givers = 0;

    if (previous)
        join(known, previous - 1);
    memcpy(node->after, known, sizeof known);
    node->number = previous ? (uint16_t)(nodes[previous - 1].number + 1) : 1;
    for (unsigned i = depth - 1; i-- > 0;) {
        if (nodes[i].thread == node->thread || !are_dependent(step_of(i), step))
            continue;
        join(node->after, i);
        if (step_of(i)->kind == STEP_GIVE)
            givers |= 1u << nodes[i].thread;
        if (!are_reversible(i, depth - 1, givers))
            continue;
        if (!is_after(known, i) && is_new && !explored->whole && !explored->random)
            add_backtrack(i);
        join(known, i);
    }
    node->after[node->thread] = node->number;
    last_of[node->thread] = depth;
}

static bool finds_free(const struct step *step)
{
    return (step->kind == STEP_TAKE || step->kind == STEP_TRY) &&
           atomic_load(&((struct lock *)(uintptr_t)step->place)->state) == 0;
}

static bool can_run(unsigned thread)
{
    const struct coroutine *at = &threads[thread];

    if (at->finished)
        return false;
    return at->next.kind != STEP_TAKE || finds_free(&at->next);
}

/* The threads whose next step was explored from an earlier state, and equals what it would do now. */
static uint8_t still_asleep(void)
{
    const struct node *before = depth ? &nodes[depth - 1] : NULL;
    uint8_t asleep = 0;

    for (unsigned thread = 0; before && thread < SCHEDULER_THREADS; thread++)
        if (((before->asleep | before->done) >> thread) & 1 && thread != before->thread &&
            !are_dependent(&before->next[thread], step_of(depth - 1)))
            asleep |= (uint8_t)(1u << thread);
    return explored->whole || explored->random ? 0 : asleep;
}

static uint64_t random_state;

/* Returns a number below `count`: of splitmix64's sequence. */
static unsigned random_below(unsigned count)
{
    uint64_t value = random_state += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((value ^ value >> 31) % count);
}

static unsigned random_thread(unsigned set)
{
    for (unsigned skip = random_below(base_count_bits(set)); skip; skip--)
        set &= set - 1;
    return base_low_bit(set);
}

/* Adds the next step to the schedule. Returns its thread, or -1 when all have finished. */
static int choose_thread(void)
{
    unsigned enabled = 0, ready;
    struct node *node = &nodes[depth];
    bool is_new = depth + 1 >= replayed;

    for (unsigned thread = 0; thread < explored->threads; thread++)
        enabled |= (unsigned)can_run(thread) << thread;
    if (!enabled) {
        for (unsigned i = 0; i < explored->threads; i++)
            if (!threads[i].finished)
                scheduler_fail("deadlock: thread %u waits and nobody will end that", i);
        return -1;
    }
    if (redundant)
        return (enabled >> current) & 1 ? current : (int)base_low_bit(enabled);
    if (depth == STEPS_MOST)
        scheduler_fail("more than %d steps: an endless loop", STEPS_MOST);
    if (depth < replayed) {
        for (unsigned thread = 0; thread < explored->threads; thread++)
            if (node->enabled != enabled || node->next[thread].place != threads[thread].next.place ||
                node->next[thread].kind != threads[thread].next.kind)
                scheduler_fail("the same schedule led elsewhere: the test is not repeatable");
    } else {
        *node = (struct node){ .enabled = (uint8_t)enabled, .asleep = still_asleep(), .ways = 1 };
        for (unsigned thread = 0; thread < explored->threads; thread++)
            node->next[thread] = threads[thread].next;
        ready = enabled & ~(unsigned)node->asleep;
        if (!ready) {
            redundant = true;
            return choose_thread();
        }
        node->thread = (uint8_t)(current >= 0 && (ready >> current) & 1 ? (unsigned)current : base_low_bit(ready));
        if (explored->random)
            node->thread = (uint8_t)random_thread(enabled);
        node->backtrack = explored->whole ? node->enabled : (uint8_t)(1u << node->thread);
    }
    node->found_free = finds_free(&node->next[node->thread]);
    depth++;
    order_last(is_new);
    return node->thread;
}

unsigned scheduler_choose(unsigned count)
{
    struct node *node = &nodes[depth - 1];

    if (count == 1 || redundant)
        return 0;
    if (depth < replayed || (depth == replayed && node->ways > 1)) {
        if (node->ways != count)
            scheduler_fail("the same schedule led elsewhere: the test is not repeatable");
    } else {
        node->ways = (uint8_t)count;
        node->way = explored->random ? (uint8_t)random_below(count) : 0;
    }
    return node->way;
}

/* Makes the nodes the start of the next schedule. Returns false when there is none. */
static bool advance_schedule(void)
{
    if (explored->random) {
        replayed = depth = 0;
        return true;
    }
    for (; depth; depth--) {
        struct node *node = &nodes[depth - 1];
        unsigned left;
        if (node->way + 1u < node->ways) {
            node->way++;
            break;
        }
        node->done |= (uint8_t)(1u << node->thread);
        left = node->backtrack & ~(unsigned)node->done & ~(unsigned)node->asleep;
        if (left) {
            node->thread = (uint8_t)base_low_bit(left);
            node->way = 0;
            node->ways = 1;
            break;
        }
    }
    replayed = depth;
    return depth != 0;
}

/* ---- Coroutines ---- */

static void switch_to(struct coroutine *from, struct coroutine *to)
{
    fiber_leave(&from->fiber, &to->fiber);
    swapcontext(&from->context, &to->context);
    fiber_arrive(&from->fiber);
}

/* Continues with the thread that the schedule chooses. */
static void go_on(void)
{
    struct coroutine *here = current < 0 ? &driver : &threads[current], *next;

    current = choose_thread();
    next = current < 0 ? &driver : &threads[current];
    if (next != here)
        switch_to(here, next);
}

int scheduler_thread(void) { return current; }
bool scheduler_forks(void) { return explored->forks; }
bool scheduler_is_weak(void) { return explored->weak; }
/* Each thread begins at a place of its own in remote_freers: a search for a free one would multiply the schedules. */
uintptr_t scheduler_token(void) { return ((uintptr_t)(in_child >= 0 ? in_child : current) + 2) << 12; }
void scheduler_restart(void) { restarts = true; }
bool scheduler_restarts(void) { return restarts; }

void scheduler_watch(void)
{
    if (current >= 0)
        explored->watch();
}

void scheduler_step(const void *place, enum step_kind kind)
{
    explored->watch();
    threads[current].next = (struct step){ place, kind };
    if (threads[current].begins) {
        threads[current].begins = false;
        switch_to(&threads[current], &driver);
    } else {
        go_on();
    }
}

void scheduler_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    int status;
    pid_t process;

    prepare();
    scheduler_step(&driver, STEP_FORK);
    if (depth >= replayed) { /* otherwise the state was looked at before */
        fflush(stdout);
        process = fork();
        if (process == 0) {
            in_child = current;
            current = -1;
            child();
            _exit(0);
        }
        if (process < 0 || waitpid(process, &status, 0) != process)
            abort();
        if (status != 0)
            _exit(1);
    }
    parent();
}

static void coroutine_main(int thread)
{
    fiber_arrive(&threads[thread].fiber);
    for (;;) {
        bool begins;
        explored->run((unsigned)thread);
        explored->watch();
        if (threads[thread].held_count)
            scheduler_fail("thread %d ends with a lock held", thread);
        begins = threads[thread].begins;
        threads[thread].begins = false;
        threads[thread].finished = true;
        if (begins)
            switch_to(&threads[thread], &driver);
        else
            go_on();
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

    if (self->held_count == HELD_MOST)
        scheduler_fail("more than %d locks held", HELD_MOST);
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

static int compare_digests(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static void digests_unite(void)
{
    size_t kept = 0;

    if (digest_count)
        qsort(digests, digest_count, sizeof *digests, compare_digests);
    for (size_t i = 0; i < digest_count; i++)
        if (i == 0 || digests[i] != digests[kept - 1])
            digests[kept++] = digests[i];
    digest_count = kept;
}

static void note_digest(uint64_t digest)
{
    if (digest_count == digest_room)
        digests_unite();
    if (2 * digest_count >= digest_room) {
        digest_room = digest_room ? 2 * digest_room : 4096;
        digests = realloc(digests, digest_room * sizeof *digests);
        if (!digests)
            abort();
    }
    digests[digest_count++] = digest;
}

static void run_schedule(void)
{
    depth = 0;
    redundant = false;
    memset(last_of, 0, sizeof last_of);
    explored->prepare();
    memory_start();
    for (unsigned i = 0; i < explored->threads; i++) {
        threads[i].finished = false;
        threads[i].next = (struct step){ NULL, STEP_BEGIN };
        threads[i].begins = true;
        current = (int)i;
        switch_to(&driver, &threads[i]);
    }
    current = -1;
    go_on();
    note_digest(explored->digest());
    explored->finish();
}

struct explored scheduler_explore(const struct exploration *exploration, uint64_t most)
{
    struct explored result = { 0 };

    explored = exploration;
    memory_forget();
    replayed = 0;
    digest_count = 0;
    do {
        restarts = false;
        run_schedule();
        if (restarts) {
            replayed = depth = 0;
            result.schedules = result.redundant = digest_count = 0;
            continue;
        }
        result.schedules++;
        result.redundant += redundant;
        result.longest = (unsigned)base_max(result.longest, depth);
    } while (restarts || (advance_schedule() && (most == 0 || result.schedules < most)));
    digests_unite();
    result.digests = digests;
    result.states = digest_count;
    explored = NULL;
    return result;
}
