/*
 * Takes a heap profile and obeys lines on stdin. It answers each with a line when it is done.
 *
 *   keep SIZE COUNT   allocate COUNT blocks at one site and keep them
 *   spread COUNT      allocate and keep COUNT blocks of 3000 bytes, each at its own site
 *   drop COUNT        free the COUNT blocks kept last
 *   churn THREADS     start threads that allocate at thousands of sites, and free
 *   start MEAN, stop  hak_profile_start, hak_profile_stop
 *   write PATH        hak_profile_write
 *   again             restart the same program without a profile
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hakmem/profile.h>

#define MOST 400000
#define DIGITS 6
static void *held[MOST];
static size_t count_held;

#pragma weak hak_profile_start
#pragma weak hak_profile_stop
#pragma weak hak_profile_write
#pragma weak hak_collect

/* Neither inlined nor ended by a tail call, so that the return address is on the stack. */
#define APART __attribute__((noinline))

static APART void *keep_hay(size_t size)
{
    void *volatile block = malloc(size);
    if (block)
        memset(block, 1, size);
    return block;
}

static APART void *descend(size_t number, unsigned left, size_t size);

#define STEP(digit)                                                                                                    \
    static APART void *step_##digit(size_t number, unsigned left, size_t size)                                         \
    {                                                                                                                  \
        void *volatile block = descend(number, left, size);                                                            \
        return block;                                                                                                  \
    }
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)

/* Makes a stack from the number's digits. */
static APART void *descend(size_t number, unsigned left, size_t size)
{
    static void *(*const steps[])(size_t, unsigned, size_t) = { step_0, step_1, step_2, step_3,
                                                                step_4, step_5, step_6, step_7 };
    void *volatile block = left ? steps[number % 8](number / 8, left - 1, size) : malloc(size);
    return block;
}

static void *churn(void *unused)
{
    enum { RING = 500 };
    void **ring = calloc(RING, sizeof *ring);
    size_t number = (size_t)gettid() * 7919;

    (void)unused;
    for (size_t at = 0;; at = (at + 1) % RING) {
        free(ring[at]);
        number++;
        ring[at] = descend(number % 4096, DIGITS, 100 + number % 5000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char line[512], word[16], rest[400];

    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int fields = sscanf(line, "%15s %399s", word, rest), result = 0;
        size_t first = fields > 1 ? strtoull(rest, NULL, 10) : 0, second = 0;
        sscanf(line, "%*s %*s %zu", &second);
        if (strcmp(word, "keep") == 0) {
            for (size_t i = 0; i < second && count_held < MOST; i++)
                held[count_held++] = keep_hay(first);
        } else if (strcmp(word, "spread") == 0) {
            for (size_t i = 0; i < first && count_held < MOST; i++)
                held[count_held++] = descend(i, DIGITS, 3000);
        } else if (strcmp(word, "drop") == 0) {
            for (size_t i = 0; i < first && count_held; i++)
                free(held[--count_held]);
        } else if (strcmp(word, "churn") == 0) {
            for (pthread_t thread; first; first--)
                result |= pthread_create(&thread, NULL, churn, NULL);
        } else if (strcmp(word, "start") == 0) {
            result = hak_profile_start(first);
            hak_collect(false);
        } else if (strcmp(word, "stop") == 0) {
            hak_profile_stop();
            hak_collect(false);
        } else if (strcmp(word, "write") == 0) {
            result = hak_profile_write(rest);
        } else if (strcmp(word, "again") == 0) {
            unsetenv("HAKMEM_HEAP_PROFILE");
            execv("/proc/self/exe", argv);
            result = 1;
        } else {
            result = 2;
        }
        printf("%d\n", result);
    }
    return 0;
}
