/*
 * quiet_thread WHAT: the program does not notice the allocator's own thread.
 *
 * WHAT: signal  all of the program's threads block a signal; sigtimedwait gets it, and no other thread takes it
 *       ids     setresuid, which glibc runs in each thread, returns
 *       single  a program that joined its threads has one thread again, as namespaces and sandboxes require
 */
#define _GNU_SOURCE
#include <dirent.h>

#include "foreign.h"

static void *free_much(void *unused)
{
    enum { BLOCKS = 40 };
    void *blocks[BLOCKS];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = memset(malloc(1 << 20), 1, 1 << 20);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        use_all_sizes();
        usleep(1000);
    }
    return unused;
}

static void run_threads(void)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        threads[i] = begin_thread(free_much, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void take_signals(void)
{
    struct timespec limit = { .tv_sec = HUNG_SECONDS };
    sigset_t wanted;

    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    for (int i = 0; i < 10; i++) {
        free_much(NULL);
        kill(getpid(), i % 2 ? SIGTERM : SIGUSR1);
        usleep(2000);
        if (sigtimedwait(&wanted, NULL, &limit) != (i % 2 ? SIGTERM : SIGUSR1))
            fail("a signal that another thread takes");
        if (i == 5)
            run_threads();
    }
}

static void change_ids(void)
{
    for (int i = 0; i < 8; i++) {
        pthread_t thread = begin_thread(free_much, NULL);
        for (int k = 0; k < 10; k++)
            if (setresuid(getuid(), geteuid(), (uid_t)-1) || setresgid(getgid(), getegid(), (gid_t)-1))
                fail("setresuid");
        pthread_join(thread, NULL);
    }
}

static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    if (!tasks)
        fail("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

static void become_single(void)
{
    for (int round = 0; round < 2; round++) {
        int waited = 0;
        run_threads();
        while (count_threads() > 1)
            if (usleep(10000), ++waited > HUNG_SECONDS * 100)
                fail("a thread of the allocator is left");
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "signal") == 0)
        take_signals();
    else if (strcmp(argv[1], "ids") == 0)
        change_ids();
    else if (strcmp(argv[1], "single") == 0)
        become_single();
    else
        return 2;
    puts("done");
    return 0;
}
