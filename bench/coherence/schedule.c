/* Threads, cores and clocks. A thread runs while it holds the turn, which it hands to the thread whose core's clock is
 * behind. So no access of the runtime's own data needs an atomic operation, but for the hand-over itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coherence.h"
#include "system.h"

enum { THREADS_MOST = 1024, JITTER = 64, STACK_BYTES = 128 << 10 };

enum state { UNUSED, BEING_MADE, READY, BLOCKED, DEAD };

struct thread {
    enum state state;
    unsigned core;
    bool ending, detached, timed_out;
    pid_t id;
    const void *place;  /* what it is blocked at */
    uint64_t until;     /* in cycles; UINT64_MAX: no limit */
    _Atomic uint32_t turn;
    uintptr_t stack_low, stack_high;
    void *(*run)(void *);
    void *argument;
    pthread_t real;
};

__thread struct thread *current;

static struct thread threads[THREADS_MOST];
static unsigned threads_used;
static uint64_t clocks[CORES_ALL];
static unsigned cores_of_library;
static uint64_t limit; /* the running core's clock may go so far before others run */
static uint64_t random_state;
static struct thread *volatile running;
static _Atomic uint32_t keeper_word;

/* What coherence_start asks of the next thread. NULL: the library makes the thread. */
struct wanted {
    unsigned core;
    bool detached;
    struct thread *made;
};
static __thread struct wanted *wanted;

static _Noreturn void fail(const char *what)
{
    dprintf(STDERR_FILENO, "coherence: %s\n", what);
    _exit(1);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    system_call(SYS_futex, (long)(uintptr_t)word, FUTEX_WAIT_PRIVATE, expected, 0, 0, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    system_call(SYS_futex, (long)(uintptr_t)word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

uint64_t coherence_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

unsigned coherence_core(void) { return current->core; }

uint64_t coherence_now(void) { return clocks[current->core]; }

/* When the thread can go on; UINT64_MAX: only another thread can let it. */
static uint64_t ready_at(const struct thread *thread)
{
    if (thread->state == READY)
        return clocks[thread->core];
    return thread->state == BLOCKED ? thread->until : UINT64_MAX;
}

/* The thread that is behind, and how far it may go. */
static struct thread *choose(void)
{
    struct thread *best = &threads[0];
    uint64_t least = UINT64_MAX, second = UINT64_MAX;

    for (unsigned i = 0; i < threads_used; i++) {
        uint64_t at = ready_at(&threads[i]);
        if (at < least) {
            second = least;
            least = at;
            best = &threads[i];
        } else if (at < second) {
            second = at;
        }
    }
    if (least == UINT64_MAX)
        fail("every thread waits for another");
    if (best->state == BLOCKED) {
        best->state = READY;
        best->timed_out = true;
        if (clocks[best->core] < best->until)
            clocks[best->core] = best->until;
    }
    limit = second == UINT64_MAX ? second : second + coherence_random() % JITTER;
    return best;
}

static void keeper_call(void)
{
    keeper_word = 1;
    futex_wake(&keeper_word);
}

static void hand_to(struct thread *next)
{
    running = next;
    next->turn = 1;
    futex_wake(&next->turn);
    if (next->ending)
        keeper_call();
}

static void wait_for_turn(struct thread *self)
{
    while (self->turn == 0)
        futex_wait(&self->turn, 0);
}

static void let_others(void)
{
    struct thread *self = current, *next = choose();

    if (next == self)
        return;
    self->turn = 0;
    hand_to(next);
    wait_for_turn(self);
}

void schedule_point(void)
{
    if (current && clocks[current->core] > limit)
        let_others();
}

void schedule_spend(uint64_t cycles)
{
    clocks[current->core] += cycles;
}

bool schedule_block(const void *place, uint64_t until)
{
    struct thread *self = current;

    self->state = BLOCKED;
    self->place = place;
    self->until = until;
    self->timed_out = false;
    let_others();
    self->place = NULL;
    return !self->timed_out;
}

static void make_ready(struct thread *thread)
{
    uint64_t *clock = &clocks[thread->core];

    thread->state = READY;
    thread->until = UINT64_MAX;
    if (*clock < clocks[running->core])
        *clock = clocks[running->core];
    if (limit > *clock + JITTER / 2)
        limit = *clock + JITTER / 2;
}

unsigned schedule_wake(const void *place, unsigned most)
{
    unsigned woken = 0;

    for (unsigned i = 0; i < threads_used && woken < most; i++)
        if (threads[i].state == BLOCKED && threads[i].place == place) {
            make_ready(&threads[i]);
            woken++;
        }
    return woken;
}

bool schedule_own_stack(uintptr_t address)
{
    return address >= current->stack_low && address < current->stack_high;
}

/* ---- Threads begin and end ---- */

static void *thread_main(void *argument)
{
    struct thread *self = argument;
    void *result;

    self->stack_high = (uintptr_t)__builtin_frame_address(0) + 256;
    self->stack_low = self->stack_high - STACK_BYTES / 2;
    self->id = (pid_t)system_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
    wait_for_turn(self);
    current = self;
    result = self->run(self->argument);
    /* The thread keeps the turn while the C library and the library under test end it. */
    self->ending = true;
    keeper_call();
    return result;
}

/* The running thread has ended for good. */
static void bury(struct thread *dead)
{
    dead->state = dead->detached ? UNUSED : DEAD;
    dead->ending = false;
    schedule_wake(dead, UINT32_MAX);
    hand_to(choose());
}

/* Sees to it that the turn goes on when a thread has ended: only the kernel knows when. */
static void *keeper_main(void *unused)
{
    (void)unused;
    for (;;) {
        struct thread *thread;
        while (atomic_exchange_word(&keeper_word) == 0)
            futex_wait(&keeper_word, 0);
        while ((thread = running)->ending)
            if (system_call(SYS_tgkill, getpid(), thread->id, 0, 0, 0, 0) == -ESRCH)
                bury(thread);
            else
                system_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    return NULL;
}

static struct thread *thread_new(void)
{
    for (unsigned i = 0; i < THREADS_MOST; i++)
        if (threads[i].state == UNUSED) {
            if (threads_used <= i)
                threads_used = i + 1;
            threads[i] = (struct thread){ .state = BEING_MADE, .until = UINT64_MAX };
            return &threads[i];
        }
    fail("too many threads");
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static create_function *real_create(void)
{
    union {
        void *symbol;
        create_function *function;
    } next;

    next.symbol = dlsym(RTLD_NEXT, "pthread_create");
    return next.function;
}

int schedule_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    struct thread *made;
    int error;

    if (!current)
        return real_create()(thread, attributes, run, argument);
    made = thread_new();
    made->run = run;
    made->argument = argument;
    made->detached = true;
    made->core = CORES_MOST + cores_of_library;
    if (wanted) {
        made->detached = wanted->detached;
        made->core = wanted->core;
        wanted->made = made;
        wanted = NULL;
    } else {
        cores_of_library = (cores_of_library + 1) % (CORES_ALL - CORES_MOST);
    }
    error = real_create()(thread, attributes, thread_main, made);
    if (error != 0)
        fail("a thread cannot be made");
    made->real = *thread;
    make_ready(made);
    return 0;
}

struct thread *coherence_start(unsigned core, void *(*run)(void *), void *argument, bool detached)
{
    pthread_attr_t attributes;
    struct wanted mine = { core, detached, NULL };
    pthread_t real;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (detached)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    wanted = &mine;
    if (pthread_create(&real, &attributes, run, argument) != 0)
        fail("a thread cannot be made");
    pthread_attr_destroy(&attributes);
    return mine.made;
}

void coherence_join(struct thread *thread)
{
    while (thread->state != DEAD)
        schedule_block(thread, UINT64_MAX);
    pthread_join(thread->real, NULL);
    thread->state = UNUSED;
}

void coherence_begin(unsigned cores, uint64_t seed)
{
    pthread_t keeper;
    struct thread *self;

    random_state = seed;
    model_begin(cores);
    if (real_create()(&keeper, NULL, keeper_main, NULL) != 0)
        fail("a thread cannot be made");
    self = thread_new();
    self->state = READY;
    self->turn = 1;
    self->stack_high = (uintptr_t)__builtin_frame_address(0) + 4096;
    self->stack_low = self->stack_high - (1 << 20);
    limit = UINT64_MAX;
    running = self;
    current = self;
}
