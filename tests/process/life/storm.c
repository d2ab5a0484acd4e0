/*
 * storm KIND: many signals, many threads, and code that leaves its stack.
 *
 * KIND: signals  signals hit threads that allocate; the handlers change errno and read live blocks
 *       jumps    handlers jump out of code that is not in the allocator
 *       crowd    3,000 threads at once, each with blocks of all its sizes, which its neighbours free
 *       brief    10,000 threads, some of which never allocate, some of which only free
 *       vfork    children of vfork allocate, in their parent's memory
 *       raw      children of _Fork and of the system call, which run no fork handlers, in a program of one thread
 *       stacks   coroutines on their own stacks move from thread to thread
 *       alone    all descriptors are closed, and signals are blocked
 */
#define _GNU_SOURCE
#include <limits.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "foreign.h"

static atomic_bool done;

/* ---- Signals ---- */

static _Thread_local volatile unsigned signals;
static _Thread_local unsigned char *volatile seen;

static void on_signal(int number)
{
    (void)number;
    if (seen && seen[0] != (unsigned char)(1000 * 7 + 1))
        fail("contents in a signal handler");
    signals++;
    errno = 99;
}

static void *allocate_in_the_rain(void *argument)
{
    struct work_block blocks[200] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;
    unsigned char *block = malloc(1000);

    mark_block(block, 1000);
    seen = block;
    while (signals < 300)
        work_steps(blocks, 200, 100, &state);
    seen = NULL;
    free(block);
    work_drop_all(blocks, 200);
    return NULL;
}

static void rain(void)
{
    enum { THREADS = 6 };
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    pthread_t threads[THREADS];

    sigaction(SIGUSR1, &action, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = begin_thread(allocate_in_the_rain, (void *)(i + 1));
    for (int n = 0; n < THREADS;) {
        for (int i = n; i < THREADS; i++)
            pthread_kill(threads[i], SIGUSR1);
        usleep(20);
        if (pthread_tryjoin_np(threads[n], NULL) == 0)
            n++;
    }
}

/* ---- Jumps ---- */

static sigjmp_buf back;
static volatile sig_atomic_t outside;

static void jump(int number)
{
    (void)number;
    if (outside) {
        outside = 0;
        siglongjmp(back, 1);
    }
}

static void jump_about(void)
{
    static struct work_block blocks[200];
    static volatile int jumps;
    static uint64_t state = 3;
    struct sigaction action = { .sa_handler = jump };
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
    struct itimerspec every = { .it_value = { .tv_nsec = 100000 }, .it_interval = { .tv_nsec = 100000 } };

    sigaction(SIGUSR2, &action, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL))
        fail("timer_create");
    if (sigsetjmp(back, 1) != 0)
        jumps++;
    while (jumps < 1000) {
        work_steps(blocks, 200, 50, &state);
        outside = 1;
        for (volatile int i = 0; i < 2000; i++)
            continue;
        outside = 0;
    }
    timer_delete(timer);
    work_drop_all(blocks, 200);
}

/* ---- Threads ---- */

enum { CROWD = 3000, EACH = 4 };
static unsigned char *crowd_blocks[CROWD][EACH];
static pthread_barrier_t all_are_there;

static size_t crowd_size(unsigned i)
{
    return 1 + (size_t)i * i * i * 300;
}

static void *stand_in_the_crowd(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument, neighbour = (number + 1) % CROWD;

    for (unsigned i = 0; i < EACH; i++)
        mark_block(crowd_blocks[number][i] = malloc(crowd_size(i)), crowd_size(i));
    pthread_barrier_wait(&all_are_there);
    for (unsigned i = 0; i < EACH; i++) {
        check_block(crowd_blocks[neighbour][i], crowd_size(i));
        free(crowd_blocks[neighbour][i]);
    }
    return NULL;
}

static void crowd(void)
{
    static pthread_t threads[CROWD];
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all_are_there, NULL, CROWD);
    for (uintptr_t i = 0; i < CROWD; i++)
        if (pthread_create(&threads[i], &attributes, stand_in_the_crowd, (void *)i))
            fail("pthread_create");
    for (unsigned i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
}

static void *live_briefly(void *argument)
{
    static _Atomic(void *) left;
    uintptr_t number = (uintptr_t)argument;

    if (number % 4 == 1)
        atomic_store(&left, NULL);
    if (number % 4 == 2)
        free(atomic_exchange(&left, malloc(1 + number % 3000)));
    if (number % 4 == 3)
        free(atomic_exchange(&left, NULL));
    return NULL;
}

static void brief(void)
{
    pthread_t threads[20];

    for (uintptr_t n = 0; n < 500; n++) {
        for (uintptr_t i = 0; i < 20; i++)
            threads[i] = begin_thread(live_briefly, (void *)(n * 20 + i));
        for (int i = 0; i < 20; i++)
            pthread_join(threads[i], NULL);
    }
}

/* ---- Processes that share memory ---- */

static void *allocate(void *argument)
{
    struct work_block blocks[100] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&done))
        work_steps(blocks, 100, 200, &state);
    work_drop_all(blocks, 100);
    return NULL;
}

static __attribute__((noinline)) pid_t start_child(unsigned char *volatile *from_child)
{
    pid_t pid = vfork();
    if (pid == 0) {
        use_all_sizes();
        mark_block(*from_child = malloc(5000), 5000);
        _exit(0);
    }
    return pid;
}

static void share_memory(void)
{
    pthread_t threads[2];

    for (uintptr_t i = 0; i < 2; i++)
        threads[i] = begin_thread(allocate, (void *)(i + 1));
    for (int i = 0; i < 50; i++) {
        unsigned char *volatile block = NULL;
        expect_child(start_child(&block), "a child of vfork");
        check_block(block, 5000);
        free(block);
        use_all_sizes();
    }
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static pid_t fork_raw(int kind)
{
    return kind ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : _Fork();
}

static void fork_without_handlers(void)
{
    struct work_block blocks[200] = { 0 };
    uint64_t state = 5;

    for (int i = 0; i < 60; i++) {
        work_steps(blocks, 200, 300, &state);
        pid_t pid = fork_raw(i % 2);
        if (pid == 0) {
            use_all_sizes();
            work_drop_all(blocks, 200);
            pid_t grandchild = i % 3 ? fork() : fork_raw(0);
            if (grandchild == 0) {
                use_all_sizes();
                exit(0);
            }
            expect_child(grandchild, "a child of a raw child");
            exit(0);
        }
        expect_child(pid, "a raw child");
    }
    work_drop_all(blocks, 200);
}

/* ---- Stacks ---- */

enum { ROUTINES = 20, SWITCHES = 50, STACK = 65536 };
static ucontext_t routines[ROUTINES], scheduler;

static void routine(int number)
{
    struct work_block blocks[30] = { 0 };
    uint64_t state = (uint64_t)number;

    for (int i = 0; i < SWITCHES; i++) {
        work_steps(blocks, 30, 50, &state);
        swapcontext(&routines[number], &scheduler);
    }
    work_drop_all(blocks, 30);
}

static void *run_all_once(void *unused)
{
    for (int i = 0; i < ROUTINES; i++)
        swapcontext(&scheduler, &routines[i]);
    return unused;
}

static void change_stacks(void)
{
    char *stacks[ROUTINES];

    for (int i = 0; i < ROUTINES; i++) {
        getcontext(&routines[i]);
        routines[i].uc_stack.ss_sp = stacks[i] = malloc(STACK);
        routines[i].uc_stack.ss_size = STACK;
        routines[i].uc_link = &scheduler;
        makecontext(&routines[i], (void (*)(void))(uintptr_t)routine, 1, i);
    }
    for (int i = 0; i <= SWITCHES; i++) {
        if (i % 2)
            run_all_once(NULL);
        else
            pthread_join(begin_thread(run_all_once, NULL), NULL);
    }
    for (int i = 0; i < ROUTINES; i++)
        free(stacks[i]);
}

static void be_alone(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t all;
        closefrom(0);
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        for (int i = 0; i < 50; i++)
            use_all_sizes();
        pthread_join(begin_thread(live_briefly, (void *)2), NULL);
        _exit(0);
    }
    expect_child(pid, "a child without descriptors");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } kinds[] = { { "signals", rain },       { "jumps", jump_about },     { "crowd", crowd },    { "brief", brief },
                  { "vfork", share_memory }, { "raw", fork_without_handlers },
                  { "stacks", change_stacks }, { "alone", be_alone } };

    for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(kinds[i].name, argv[1]) == 0) {
            kinds[i].run();
            puts("done");
            return 0;
        }
    return 2;
}
