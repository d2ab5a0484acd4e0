/*
 * Forks beside threads that hold an allocator lock most of the time. A child waits for ever if the fork did not take
 * the locks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, FORKS = 200, BLOCKS = 40 };

static atomic_bool over;

/* From small blocks to ranges of their own: 100 bytes to 100 MiB. */
static void use(void)
{
    void *blocks[BLOCKS];

    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = malloc((size_t)100 << (i % 20));
    for (unsigned i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static void *work(void *unused)
{
    while (!over)
        use();
    return unused;
}

static void fail(const char *what, int number)
{
    dprintf(2, "%s: %d\n", what, number);
    abort();
}

int main(void)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            abort();
    for (unsigned i = 0; i < FORKS; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            use();
            _exit(7);
        }
        if (child < 0)
            fail("fork", errno);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fail("the child's status", status);
    }
    over = true;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
