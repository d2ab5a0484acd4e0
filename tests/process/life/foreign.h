/* Calls of every kind that foreign code makes in fork, signal and pressure handlers and destructors; and the watch over
 * a child that may hang. */
#ifndef TESTS_LIFE_FOREIGN_H
#define TESTS_LIFE_FOREIGN_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>

#include "work.h"

/* A child counts as hung after this many seconds. One that does not hang needs milliseconds. */
enum { HUNG_SECONDS = 60 };

/* Sizes from 1 byte to 1 MiB, at least one in each size class, then 100 KB and 5 MB. */
enum { ALL_SIZES = 114 };
static inline size_t size_number(unsigned i)
{
    if (i >= ALL_SIZES - 2)
        return i == ALL_SIZES - 2 ? 100000 : 5000000;
    return i < 16 ? 16 * i + 1 : ((size_t)256 << ((i - 16) / 8)) + ((size_t)32 << ((i - 16) / 8)) * ((i - 16) % 8) + 1;
}

static inline void mark_block(unsigned char *block, size_t size)
{
    if (!block)
        fail("malloc");
    block[0] = block[size - 1] = (unsigned char)(size * 7 + 1);
}

static inline void check_block(const unsigned char *block, size_t size)
{
    if (block[0] != (unsigned char)(size * 7 + 1) || block[size - 1] != (unsigned char)(size * 7 + 1))
        fail("contents of a block");
}

/* Allocates, reallocates and frees blocks of all sizes. */
static inline void use_all_sizes(void)
{
    unsigned char *blocks[ALL_SIZES];

    for (unsigned i = 0; i < ALL_SIZES; i++)
        mark_block(blocks[i] = malloc(size_number(i)), size_number(i));
    for (unsigned i = 0; i < ALL_SIZES; i++)
        check_block(blocks[i], size_number(i));
    for (unsigned i = 0; i < ALL_SIZES; i += 3) {
        unsigned char *moved = realloc(blocks[i], size_number(i) * 2);
        if (!moved || moved[0] != (unsigned char)(size_number(i) * 7 + 1))
            fail("realloc");
        blocks[i] = moved;
    }
    for (unsigned i = 0; i < ALL_SIZES; i++)
        free(blocks[i]);
}

/* Waits for a child, which must end with status 0 in time. Kills it otherwise. `what` names it in the message. */
static inline void expect_child(pid_t pid, const char *what)
{
    long pause = 10, waited = 0; /* us */
    char message[200];
    int status = -1;

    if (pid < 0)
        fail("fork");
    for (; waited < HUNG_SECONDS * 1000000L; waited += pause) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) {
            if (status == 0)
                return;
            snprintf(message, sizeof(message), "%s ended with status %#x", what, (unsigned)status);
            fail(message);
        }
        if (ended < 0 && errno != EINTR)
            fail("waitpid");
        usleep((useconds_t)pause);
        pause = pause < 1000 ? pause * 2 : 1000;
    }
    kill(pid, SIGKILL);
    snprintf(message, sizeof(message), "%s hangs", what);
    fail(message);
}

static inline pthread_t begin_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument))
        fail("pthread_create");
    return thread;
}

#endif
