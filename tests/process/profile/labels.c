/* Allocates under labels, as the mode says. Built with HAK_PROFILE_WEAK it also runs without HAKMEM. */
#include <hakmem/profile.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 50, SIZE = 1000 };

static void *kept[64 * BLOCKS];
static _Atomic unsigned kept_count;

static __attribute__((noinline)) void keep(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        memset(kept[kept_count++] = malloc(SIZE), 1, SIZE);
}

static int check(int error)
{
    if (error) {
        fprintf(stderr, "error %d\n", error);
        exit(3);
    }
    return 0;
}

static void *other_thread(void *argument)
{
    (void)argument;
    keep(BLOCKS); /* without labels: they belong to the other thread */
    check(hak_profile_label("tenant", "thread"));
    keep(BLOCKS);
    return NULL;
}

static void on_signal(int number)
{
    unsigned scope = hak_profile_scope_begin();

    (void)number;
    (void)hak_profile_label("tenant", "handler");
    hak_profile_scope_end(scope);
}

/* A timer interrupts changes at any instruction. Afterwards the labels set last are in force. */
static void interrupted(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    timer_t timer;
    struct itimerspec often = { { 0, 50000 }, { 0, 50000 } }, never = { { 0, 0 }, { 0, 0 } };

    check(hak_profile_label("tenant", "first"));
    sigaction(SIGALRM, &action, NULL);
    timer_create(CLOCK_MONOTONIC, NULL, &timer);
    timer_settime(timer, 0, &often, NULL);
    for (unsigned i = 0; i < 300000; i++) {
        unsigned scope = hak_profile_scope_begin();
        check(hak_profile_label("tenant", i % 2 ? "odd" : "even"));
        hak_profile_scope_end(scope);
    }
    timer_settime(timer, 0, &never, NULL);
    keep(BLOCKS);
    check(hak_profile_label("tenant", "last"));
    keep(BLOCKS);
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    pthread_t thread;

    check(hak_profile_label("tenant", "a"));
    check(hak_profile_label_number("part", 4096, "bytes"));
    if (strcmp(mode, "plain") == 0) {
        unsigned scope;
        keep(BLOCKS);
        scope = hak_profile_scope_begin();
        check(hak_profile_label("tenant", "b"));
        keep(2 * BLOCKS);
        check(hak_profile_label_clear());
        keep(3 * BLOCKS);
        hak_profile_scope_end(scope);
        keep(BLOCKS);
    } else if (strcmp(mode, "threads") == 0) {
        for (unsigned i = 0; i < 4; i++) {
            pthread_create(&thread, NULL, other_thread, NULL);
            pthread_join(thread, NULL);
        }
        keep(BLOCKS);
    } else if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            keep(BLOCKS);
            pthread_create(&thread, NULL, other_thread, NULL);
            pthread_join(thread, NULL);
            return 0;
        }
        waitpid(child, &status, 0);
        return status != 0;
    } else if (strcmp(mode, "interrupted") == 0) {
        interrupted();
    } else if (strcmp(mode, "many") == 0) {
        int lost = 0;
        for (int i = 0; i < 6000; i++) {
            lost += hak_profile_label_number("part", i, "bytes") == ENOSPC;
            keep(1);
            free(kept[--kept_count]);
        }
        printf("%d without room\n", lost);
        keep(BLOCKS);
    } else if (strcmp(mode, "late") == 0) { /* labels set before the profile began are in force */
        if (hak_profile_start == NULL)
            return 4;
        check(hak_profile_start(1));
        keep(BLOCKS); /* the cache serves some: the thread joins at its next slow call */
        for (unsigned i = 0; i < 64; i++)
            free(malloc(100000 + i));
        check(hak_profile_label("tenant", "late"));
        keep(BLOCKS);
        check(hak_profile_write(arguments[2]));
        hak_profile_stop();
    } else if (strcmp(mode, "time") == 0) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (unsigned i = 0; i < 10000000; i++) {
            unsigned scope = hak_profile_scope_begin();
            (void)hak_profile_label("tenant", i % 2 ? "odd" : "even");
            hak_profile_scope_end(scope);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.1f ns\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / 1e7);
    }
    printf("done\n");
    fflush(stdout);
    if (getenv("LABELS_WAIT"))
        (void)getchar();
    return 0;
}
