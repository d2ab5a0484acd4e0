/*
 * fork_storm THREADS CHILDREN: each thread allocates all the time, and forks CHILDREN children between its calls while
 * the other threads are in the middle of theirs. A child uses and frees what it inherited, allocates, and starts a
 * thread that does the same. No thread begins before all are made: under qemu 7.2, a child that was forked while its
 * parent made a thread cannot make one.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "work.h"

enum { LIVE = 200 };

static int children;
static pthread_barrier_t all_made;

static void *in_child_thread(void *seed)
{
    struct work_block blocks[50] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)seed;

    work_steps(blocks, 50, 500, &state);
    work_drop_all(blocks, 50);
    return NULL;
}

/* with_child: this child forks once more, and ends through exit and its handlers. */
static void child(struct work_block *inherited, uint64_t state, int with_child)
{
    pthread_t thread;

    work_drop_all(inherited, LIVE / 2);
    work_steps(inherited, LIVE, 500, &state);
    if (pthread_create(&thread, NULL, in_child_thread, (void *)(uintptr_t)state))
        fail("pthread_create in a child");
    work_steps(inherited, LIVE, 500, &state);
    if (pthread_join(thread, NULL))
        fail("pthread_join in a child");
    if (with_child) {
        pid_t grandchild = fork();
        if (grandchild < 0)
            fail("fork in a child");
        if (grandchild == 0) {
            work_steps(inherited, LIVE, 500, &state);
            work_drop_all(inherited, LIVE);
            _exit(0);
        }
        int status = -1;
        if (waitpid(grandchild, &status, 0) != grandchild || status != 0)
            fail("a grandchild");
    }
    work_drop_all(inherited, LIVE);
    if (with_child)
        exit(0);
    _exit(0);
}

static void *run(void *seed)
{
    static _Thread_local struct work_block blocks[LIVE];
    uint64_t state = (uint64_t)(uintptr_t)seed;

    pthread_barrier_wait(&all_made);
    for (int i = 0; i < children; i++) {
        work_steps(blocks, LIVE, 1000, &state);
        pid_t pid = fork();
        if (pid < 0)
            fail("fork");
        if (pid == 0)
            child(blocks, state + (uint64_t)i, i % 4 == 0);
        work_steps(blocks, LIVE, 1000, &state);
        int status = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        if (status != 0)
            fail("a child");
    }
    work_drop_all(blocks, LIVE);
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[256];
    int count;

    if (argc != 3 || atoi(argv[1]) > (int)(sizeof threads / sizeof threads[0]))
        return 2;
    count = atoi(argv[1]);
    children = atoi(argv[2]);
    pthread_barrier_init(&all_made, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(i + 1)))
            fail("pthread_create");
    pthread_barrier_wait(&all_made);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%d children\n", count * children);
    return 0;
}
