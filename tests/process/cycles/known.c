/* known KIND COUNT: known calls between two reports (malloc_stats). */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "counter.h"

enum { HELD = 1000 };

static void *held[HELD];

/* `count` mallocs and frees, with HELD blocks live at a time. */
static void churn(size_t count, size_t size)
{
    for (size_t done = 0; done < count; done += HELD) {
        size_t batch = count - done < HELD ? count - done : HELD;
        for (size_t i = 0; i < batch; i++)
            held[i] = malloc(size);
        for (size_t i = 0; i < batch; i++)
            free(held[i]);
    }
}

static void *pairs(void *argument)
{
    for (size_t i = 0; i < *(size_t *)argument; i++)
        free(malloc(48));
    return NULL;
}

static void *allocate_all(void *argument)
{
    (void)argument;
    for (size_t i = 0; i < HELD; i++)
        held[i] = malloc(256);
    return NULL;
}

static void run_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, argument) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}

/* The clock's seconds and the counter at one moment: the closest of many pairs, as other programs may interrupt. */
static double read_both(uint64_t *ticks)
{
    double seconds = 0;
    uint64_t closest = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        struct timespec now;
        uint64_t before = read_counter();
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t after = read_counter();
        if (after - before < closest) {
            closest = after - before;
            *ticks = before;
            seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
        }
    }
    return seconds;
}

/* The counter's ticks in a second, measured here. */
static double measure_rate(void)
{
    uint64_t first, last;
    double start = read_both(&first);
    usleep(200000);
    double end = read_both(&last);
    return (double)(last - first) / (end - start);
}

static void *at_end(void *argument)
{
    pthread_key_t key;
    if (pthread_key_create(&key, free) != 0 || pthread_setspecific(key, malloc(*(size_t *)argument)) != 0)
        abort();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *kind = argv[1];
    size_t count = strtoul(argv[2], NULL, 10), size = 100;
    if (strcmp(kind, "threads") == 0) /* otherwise the thread library's own calls count twice */
        run_thread(pairs, &(size_t){ 0 });
    malloc_stats();
    if (strcmp(kind, "small") == 0) {
        churn(count, 200);
    } else if (strcmp(kind, "large") == 0) {
        for (size_t i = 0; i < count; i++)
            held[i] = malloc(900000);
        for (size_t i = 0; i < count; i++)
            free(held[i]);
    } else if (strcmp(kind, "huge") == 0) {
        for (size_t i = 0; i < count; i++)
            free(malloc(3000000));
    } else if (strcmp(kind, "null") == 0) {
        for (size_t i = 0; i < count; i++)
            free(NULL);
    } else if (strcmp(kind, "threads") == 0) {
        for (unsigned i = 0; i < 20; i++)
            run_thread(pairs, &count);
    } else if (strcmp(kind, "thread") == 0) {
        run_thread(pairs, &count);
    } else if (strcmp(kind, "rate") == 0) {
        dprintf(STDOUT_FILENO, "%.0f\n", measure_rate());
    } else if (strcmp(kind, "end") == 0) {
        run_thread(at_end, &size);
    } else if (strcmp(kind, "remote") == 0) {
        churn(1, 256);
        run_thread(allocate_all, NULL);
        for (size_t i = 0; i < HELD; i++)
            free(held[i]);
    } else if (strcmp(kind, "fork") == 0) {
        churn(5000, 200);
        pid_t child = fork();
        if (child == 0) {
            malloc_stats();
            churn(count, 200);
            malloc_stats();
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
    } else {
        return 2;
    }
    malloc_stats();
    fflush(NULL);
    _exit(0); /* without a report at exit */
}
