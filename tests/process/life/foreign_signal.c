/*
 * foreign_signal CHILD SIGNALS [THREADS [all]]: a timer interrupts main, which allocates and frees all sizes. The
 * signal handler forks, like a crash handler that starts a debugger. THREADS other threads allocate meanwhile. With
 * `all` they are interrupted too, and fork in their handlers.
 *
 * CHILD: exit    the child ends at once
 *        exec    the child becomes another program
 *        return  the child returns from the handler, completes the interrupted call, goes on, and ends by exit
 */
#define _GNU_SOURCE
#include <sys/time.h>

#include "foreign.h"

enum { LIVE = 300 };

static const char *how;
static int wanted;
static atomic_int signals;
static bool all_fork;
static volatile bool is_child;
static atomic_bool done;
static pthread_t main_thread;
static _Thread_local struct work_block of_thread[LIVE];

/* Sets a single shot, so that the interrupted call makes progress between two signals. */
static void set_timer(void)
{
    static unsigned jitter;
    struct itimerval timer = { .it_value = { .tv_usec = 50 + jitter++ * 7 % 101 } };
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    if (is_child || atomic_load(&signals) >= wanted)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        if (strcmp(how, "exec") == 0)
            execl("/bin/true", "true", NULL);
        if (strcmp(how, "return") == 0) {
            is_child = true;
            errno = saved;
            return;
        }
        _exit(0);
    }
    expect_child(pid, "a child of a signal handler");
    atomic_fetch_add(&signals, 1);
    if (pthread_equal(pthread_self(), main_thread))
        set_timer();
    errno = saved;
}

/* A step of work_steps(), and one with the sizes that work_steps() leaves out. */
static void step(struct work_block *blocks, uint64_t *state)
{
    static unsigned next;

    work_steps(blocks, LIVE, 50, state);
    for (unsigned i = 0; i < 10; i++, next++) {
        size_t size = size_number(next % ALL_SIZES);
        unsigned char *block = malloc(size);
        mark_block(block, size);
        block = realloc(block, size + 1000);
        if (block[0] != (unsigned char)(size * 7 + 1))
            fail("contents after realloc");
        free(block);
    }
}

/* Ends the child that returned from the handler and completed the interrupted call. */
static void end_child(struct work_block *blocks, uint64_t *state)
{
    for (int i = 0; i < 20; i++)
        step(blocks, state);
    work_drop_all(blocks, LIVE);
    exit(0);
}

static void *allocate(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument;
    sigset_t timer;

    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    if (all_fork)
        pthread_sigmask(SIG_UNBLOCK, &timer, NULL);
    while (!atomic_load(&done)) {
        if (is_child)
            end_child(of_thread, &state);
        work_steps(of_thread, LIVE, 1000, &state);
        usleep(100);
    }
    work_drop_all(of_thread, LIVE);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct work_block blocks[LIVE];
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    int count = argc > 3 ? atoi(argv[3]) : 0;
    pthread_t threads[8];
    uint64_t state = 1;

    if (argc < 3 || count > 8)
        return 2;
    main_thread = pthread_self();
    all_fork = argc > 4;
    how = argv[1];
    wanted = atoi(argv[2]);
    sigset_t timer;
    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &timer, NULL);
    for (int i = 0; i < count; i++)
        threads[i] = begin_thread(allocate, (void *)(uintptr_t)(i + 1));
    pthread_sigmask(SIG_UNBLOCK, &timer, NULL);
    sigaction(SIGALRM, &action, NULL);
    set_timer();
    while (atomic_load(&signals) < wanted && !is_child) {
        step(blocks, &state);
        for (int i = 0; all_fork && i < count && !is_child; i++)
            pthread_kill(threads[i], SIGALRM);
    }
    if (is_child)
        end_child(blocks, &state);
    work_drop_all(blocks, LIVE);
    atomic_store(&done, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
