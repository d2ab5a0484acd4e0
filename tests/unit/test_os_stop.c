/* Protects os/stop.c: all other threads are stopped; threads that cannot be stopped, and refusals, are counted. */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "os/stop.h"
#include "refused.h"

/* Each case runs in a child, because a process settles its signal once. A child that fails aborts. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { WANTED = 16 /* SIGSTKFLT, as HAKMEM_SWEEP_SIGNAL has it */, FIRST_OTHER = 62, LAST_OTHER = 40, THREADS = 3 };

static _Alignas(16) char memory[OS_STOP_BYTES];
static struct os_stop stop;
static atomic_int ready, over;
static atomic_uint steps[THREADS];

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

static void *step(void *argument)
{
    atomic_uint *mine = argument;

    atomic_fetch_add(&ready, 1);
    while (!atomic_load_explicit(&over, memory_order_relaxed))
        atomic_fetch_add(mine, 1);
    return NULL;
}

/* As a program blocks all signals: glibc leaves two out. */
static void *step_masked(void *argument)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    return step(argument);
}

static void *step_blocked(void *argument)
{
    uint64_t all = UINT64_MAX;

    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    return step(argument);
}

/* A signalled thread has OS_STOP_PATIENCE_NS to answer, and on a busy machine it may wait longer than that for a
 * processor. Unless time_step is set, time stands still: os_stop_begin waits until each thread has answered. */
static _Atomic uint64_t time_step;
uint64_t __wrap_os_now(void);
uint64_t __wrap_os_now(void)
{
    static _Atomic uint64_t now = 1;

    return atomic_fetch_add(&now, atomic_load(&time_step));
}

static void start(void *(*run)(void *), int count)
{
    pthread_t thread;

    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&thread, NULL, run, &steps[i]) == 0);
    while (atomic_load(&ready) < count)
        sleep_ms(1);
}

static void begin(int number)
{
    errno = 4711;
    os_stop_begin(&stop, number, memory);
    CHECK(errno == 4711);
}

static void begin_with(int number, unsigned stopped, unsigned deaf)
{
    begin(number);
    CHECK(stop.stopped == stopped && stop.deaf == deaf);
}

static void end(void)
{
    errno = 4711;
    os_stop_end(&stop);
    CHECK(errno == 4711);
}

static bool stands_still(unsigned thread)
{
    unsigned before = atomic_load(&steps[thread]);

    sleep_ms(20);
    return atomic_load(&steps[thread]) == before;
}

/* Waits until the thread makes a step: it may be long before a busy machine has a processor for it. */
static bool runs_on(unsigned thread)
{
    unsigned before = atomic_load(&steps[thread]);

    for (int tries = 0; tries < 60000 && atomic_load(&steps[thread]) == before; tries++)
        sleep_ms(1);
    return atomic_load(&steps[thread]) != before;
}

/* Before another stop, too: a thread that has not left the handler of the last one blocks the signal. */
static void expect_running(void)
{
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(runs_on(i));
}

/* ---- Stopping ---- */

static void alone(void)
{
    sigset_t before, during, after;

    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    begin_with(WANTED, 0, 0);
    CHECK(!stop.own);
    sigprocmask(SIG_SETMASK, NULL, &during);
    end();
    sigprocmask(SIG_SETMASK, NULL, &after);
    CHECK(sigismember(&during, SIGTERM) && sigismember(&during, SIGUSR1));
    CHECK(!sigismember(&after, SIGTERM) && sigismember(&after, SIGUSR1));
}

/* Threads that run `what` stand still in each of five stops, and run behind each. */
static void expect_stops(void *(*what)(void *))
{
    start(what, THREADS);
    for (int turn = 0; turn < 5; turn++) {
        begin_with(WANTED, THREADS, 0);
        for (unsigned i = 0; i < THREADS; i++)
            CHECK(stands_still(i));
        end();
        expect_running();
    }
}

static void running_threads(void) { expect_stops(step); }

static int pipe_ends[2];
static atomic_int got;

static void *read_pipe(void *unused)
{
    char byte;

    (void)unused;
    atomic_fetch_add(&ready, 1);
    atomic_store(&got, read(pipe_ends[0], &byte, 1) == 1 ? byte : -errno);
    return NULL;
}

/* With SA_RESTART the interrupted call starts again. */
static void sleeping_thread(void)
{
    CHECK(pipe(pipe_ends) == 0);
    start(read_pipe, 1);
    sleep_ms(20);
    begin_with(WANTED, 1, 0);
    end();
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    for (int tries = 0; tries < 60000 && atomic_load(&got) == 0; tries++)
        sleep_ms(1);
    CHECK(atomic_load(&got) == 'x');
}

static void *nothing(void *unused) { return unused; }

static void *start_others(void *unused)
{
    (void)unused;
    atomic_fetch_add(&ready, 1);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
        atomic_fetch_add(&steps[0], 1);
    }
    return NULL;
}

/* A thread that begins during the stop is found, or its maker is stopped before it exists. */
static void threads_that_begin(void)
{
    start(start_others, 1);
    for (int turn = 0; turn < 20; turn++) {
        begin(WANTED);
        CHECK(stop.deaf != 0 || stands_still(0));
        end();
    }
}

/* ---- Threads that run on ---- */

static void deaf_thread(void)
{
    start(step, 2);
    atomic_store(&ready, 0);
    {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, step_blocked, &steps[2]) == 0);
        while (atomic_load(&ready) < 1)
            sleep_ms(1);
    }
    begin_with(WANTED, 2, 1);
    CHECK(stands_still(0) && stands_still(1) && runs_on(2));
    end();
    expect_running();
}

/* A thread that blocks all signals gets the one that glibc does not let it block. */
static void thread_with_a_mask(void) { expect_stops(step_masked); }

static void *wait_to_be_cancelled(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void cancel_a_thread(void)
{
    pthread_t thread;
    void *result;

    CHECK(pthread_create(&thread, NULL, wait_to_be_cancelled, NULL) == 0 && pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

/* The program cancels threads, so the signal is glibc's. The other threads run on, and none is cancelled, nor by a
 * signal that was sent before. */
static void program_that_cancels(void)
{
    start(step_masked, THREADS);
    begin_with(WANTED, THREADS, 0);
    end();
    expect_running();
    cancel_a_thread();
    begin_with(WANTED, 0, THREADS);
    end();
    expect_running();
    {
        siginfo_t late;
        memset(&late, 0, sizeof late);
        late.si_signo = 32;
        late.si_code = SI_QUEUE;
        late.si_pid = getpid();
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), 32, &late) == 0);
    }
    cancel_a_thread();
}

static atomic_int waiter; /* its id */

static void *wait_for_signals(void *unused)
{
    sigset_t all;
    int number = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    atomic_store(&waiter, gettid());
    atomic_fetch_add(&ready, 1);
    CHECK(sigwait(&all, &number) == 0);
    atomic_store(&got, number);
    return unused;
}

/* Whether the calling process's thread of that id is in the system call. */
static bool is_in_call(pid_t thread, long number)
{
    char path[64];
    long call = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)thread);
    file = fopen(path, "r");
    CHECK(file != NULL);
    if (fscanf(file, "%ld", &call) != 1)
        call = -1; /* "running" */
    fclose(file);
    return call == number;
}

/* sigwait() takes each signal that it waits for, and the program must not see one of ours. So the thread gets the one
 * that it cannot wait for. */
static void thread_that_waits_for_signals(void)
{
    start(wait_for_signals, 1);
    while (!is_in_call(atomic_load(&waiter), SYS_rt_sigtimedwait))
        sleep_ms(1);
    begin_with(WANTED, 1, 0);
    end();
    CHECK(syscall(SYS_tgkill, getpid(), atomic_load(&waiter), SIGUSR1) == 0);
    for (int tries = 0; tries < 60000 && atomic_load(&got) == 0; tries++)
        sleep_ms(1);
    CHECK(atomic_load(&got) == SIGUSR1);
}

static void *wait_in_vfork(void *unused)
{
    pid_t child = vfork();
    char byte;

    if (child == 0) {
        close(pipe_ends[1]); /* so that this process ends with its parent */
        atomic_fetch_add(&ready, 1);
        _exit(read(pipe_ends[0], &byte, 1) != 1);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    atomic_store(&got, 'x');
    return unused;
}

/* A parent in vfork takes no signal. When it goes on, the late signal finds no stop. */
static void thread_that_does_not_answer(void)
{
    CHECK(pipe(pipe_ends) == 0);
    start(wait_in_vfork, 1);
    atomic_store(&time_step, OS_STOP_PATIENCE_NS);
    begin_with(WANTED, 0, 1);
    end();
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    for (int tries = 0; tries < 60000 && atomic_load(&got) == 0; tries++)
        sleep_ms(1);
    CHECK(atomic_load(&got) == 'x');
}

static void no_signal(void)
{
    start(step, THREADS);
    begin(0);
    CHECK(stop.stopped == 0 && stop.deaf == THREADS);
    CHECK(runs_on(0));
    end();
}

static void *own_thread(void *argument)
{
    os_stop_pass_over_me();
    return step_blocked(argument);
}

static void thread_of_our_own(void)
{
    start(own_thread, 1);
    begin_with(WANTED, 0, 0);
    CHECK(stop.own);
    CHECK(runs_on(0));
    end();
}

static void *end_after_main(void *unused)
{
    char path[40], state[256] = "";

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    while (strstr(state, ") Z ") == NULL) {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fgets(state, sizeof state, file) != NULL);
        fclose(file);
        sleep_ms(1);
    }
    begin_with(WANTED, 1, 0);
    CHECK(stands_still(0));
    end();
    _exit(0);
    return unused;
}

/* The main thread has ended and the process goes on: the kernel lists the thread still. Nobody waits for its answer. */
static void main_thread_is_gone(void)
{
    pthread_t thread;

    start(step, 1);
    CHECK(pthread_create(&thread, NULL, end_after_main, NULL) == 0);
    pthread_exit(NULL);
}

/* ---- The signal ---- */

static atomic_int handled;
static void on_signal(int number) { atomic_store(&handled, number); }

static void signal_of_the_program(void)
{
    struct sigaction action;

    signal(WANTED, on_signal);
    start(step, THREADS);
    begin_with(WANTED, THREADS, 0);
    CHECK(stands_still(0));
    end();
    expect_running();
    CHECK(sigaction(WANTED, NULL, &action) == 0 && action.sa_handler == on_signal);
    CHECK(sigaction(FIRST_OTHER, NULL, &action) == 0 && action.sa_handler != SIG_DFL && (action.sa_flags & SA_RESTART));
    /* The program takes the next signal too. */
    signal(FIRST_OTHER, on_signal);
    begin_with(WANTED, THREADS, 0);
    CHECK(stands_still(0));
    end();
    CHECK(atomic_load(&handled) == 0);
    raise(FIRST_OTHER);
    CHECK(atomic_load(&handled) == FIRST_OTHER);
}

static void no_signal_left(void)
{
    signal(WANTED, SIG_IGN);
    for (int number = LAST_OTHER; number <= FIRST_OTHER; number++)
        signal(number, on_signal);
    start(step, THREADS);
    begin_with(WANTED, 0, THREADS);
    CHECK(runs_on(0));
    end();
    CHECK(atomic_load(&handled) == 0);
}

/* ---- Refusals ---- */

static void no_list_of_threads(void)
{
    start(step, THREADS);
    refusals[0] = (struct refusal){ SYS_openat, "/task", EACCES, 0, 0 };
    begin_with(WANTED, 0, 1);
    end();
    expect_running();
    refusals[0] = (struct refusal){ SYS_getdents64, NULL, EIO, 0, 0 };
    begin_with(WANTED, 0, 1);
    end();
    expect_running();
    /* The list breaks off after the first names: those threads are stopped, and the failure counts. */
    refusals[0] = (struct refusal){ SYS_getdents64, NULL, EIO, 1, 0 };
    begin(WANTED);
    CHECK(stop.deaf == 1);
    end();
    expect_running();
    refuse_nothing();
    begin_with(WANTED, THREADS, 0);
    end();
    expect_running();
}

static void no_state_of_threads(void)
{
    start(step, THREADS);
    refusals[0] = (struct refusal){ SYS_openat, "/status", EACCES, 0, 0 };
    begin_with(WANTED, 0, THREADS);
    end();
    expect_running();
    refusals[0] = (struct refusal){ SYS_read, NULL, EIO, 0, 0 };
    begin_with(WANTED, 0, THREADS);
    end();
    expect_running();
    /* The thread ended after it was listed. */
    refusals[0] = (struct refusal){ SYS_openat, "/status", ENOENT, 0, 0 };
    begin_with(WANTED, 0, 0);
    end();
}

static void signal_cannot_be_sent(void)
{
    start(step, THREADS);
    refusals[0] = (struct refusal){ SYS_tgkill, NULL, ESRCH, 0, 0 };
    begin_with(WANTED, 0, 0);
    end();
    expect_running();
    /* The queue of signals is full: all threads are asked again, in vain. */
    refusals[0] = (struct refusal){ SYS_tgkill, NULL, EAGAIN, 0, 0 };
    begin_with(WANTED, 0, THREADS);
    end();
    expect_running();
    /* The second attempt reaches them. */
    refusals[0] = (struct refusal){ SYS_tgkill, NULL, EAGAIN, 0, 1 };
    begin_with(WANTED, THREADS, 0);
    CHECK(refusals[0].error == 0);
    end();
    expect_running();
}

/* ---- Processes ---- */

static void fork_of_the_process(void)
{
    start(step, THREADS);
    begin_with(WANTED, THREADS, 0);
    {
        pid_t child = fork();
        int status;
        CHECK(child >= 0);
        if (child == 0) {
            struct os_stop of_child;
            os_stop_end(&stop);
            /* The stop was prepared for another process: this one may share memory with threads that it cannot see. */
            os_stop_begin(&of_child, WANTED, memory);
            CHECK(of_child.stopped == 0 && of_child.deaf == 1);
            os_stop_reset_in_child();
            CHECK(of_child.deaf == 1);
            os_stop_begin(&of_child, WANTED, memory);
            CHECK(of_child.stopped == 0 && of_child.deaf == 0);
            os_stop_end(&of_child);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(stands_still(0));
    end();
    expect_running();
}

static void (*current)(void);

static void run_current(void)
{
    refuse_nothing();
    os_stop_prepare();
    current();
}

static void test_in_child(void **state)
{
    current = *(void (**)(void))*state;
    assert_int_equal(signal_of(run_current), 0);
}

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
        #name, test_in_child, NULL, NULL, &(void (*)(void)) { name }                                                  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(alone),
        CASE(running_threads),
        CASE(sleeping_thread),
        CASE(threads_that_begin),
        CASE(deaf_thread),
        CASE(thread_with_a_mask),
        CASE(program_that_cancels),
        CASE(thread_that_waits_for_signals),
        CASE(thread_that_does_not_answer),
        CASE(no_signal),
        CASE(thread_of_our_own),
        CASE(main_thread_is_gone),
        CASE(signal_of_the_program),
        CASE(no_signal_left),
        CASE(no_list_of_threads),
        CASE(no_state_of_threads),
        CASE(signal_cannot_be_sent),
        CASE(fork_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
