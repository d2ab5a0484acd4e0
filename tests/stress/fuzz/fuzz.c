#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 60 };

/* The compiler's coverage counters (-fsanitize=fuzzer), absent in other builds. */
extern uint8_t __start___sancov_cntrs[] __attribute__((weak));
extern uint8_t __stop___sancov_cntrs[] __attribute__((weak));

/* A child's counters, in memory shared with its parent. */
static uint8_t *shared_counters;

static size_t counters_size(void)
{
    return (size_t)((uintptr_t)__stop___sancov_cntrs - (uintptr_t)__start___sancov_cntrs);
}

_Noreturn void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char message[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fprintf(stderr, "FAILED %s:%d: %s: %s\n", file, line, condition, message);
    abort();
}

/* ---- Children ---- */

/* Runs before libFuzzer's own handler, which treats every exit as a fault. */
static void leave(int status, void *argument)
{
    (void)argument;
    if (shared_counters != NULL)
        memcpy(shared_counters, __start___sancov_cntrs, counters_size());
    _exit(status <= 1 ? 0 : status);
}

static _Noreturn void run_child(void (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size)
{
    signal(SIGALRM, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    alarm(CHILD_SECONDS);
    if (on_exit(leave, NULL) != 0)
        _exit(2);
    run(data, size);
    leave(0, NULL);
    _exit(0);
}

void fuzz_in_child(void (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size)
{
    int status;
    pid_t child, ended;

    if (shared_counters == NULL && counters_size() != 0) {
        shared_counters = mmap(NULL, counters_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        FUZZ_CHECK(shared_counters != MAP_FAILED, "mmap: %s", strerror(errno));
    }
    child = fork();
    FUZZ_CHECK(child >= 0, "fork: %s", strerror(errno));
    if (child == 0)
        run_child(run, data, size);
    do
        ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    FUZZ_CHECK(ended == child, "waitpid: %s", strerror(errno));
    FUZZ_CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "the input takes more than %d s",
               (int)CHILD_SECONDS);
    FUZZ_CHECK(!WIFSIGNALED(status), "the input's process ended by signal %d", WTERMSIG(status));
    FUZZ_CHECK(WEXITSTATUS(status) == 0, "the input's process ended with %d", WEXITSTATUS(status));
    if (shared_counters != NULL)
        memcpy(__start___sancov_cntrs, shared_counters, counters_size());
}

/* ---- Inputs ---- */

unsigned fuzz_take(struct fuzz_input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

struct fuzz_input fuzz_take_until(struct fuzz_input *input, uint8_t separator)
{
    struct fuzz_input part = *input;
    const uint8_t *found = part.at < part.end ? memchr(part.at, separator, (size_t)(part.end - part.at)) : NULL;

    if (found != NULL)
        part.end = found;
    input->at = found != NULL ? found + 1 : input->end;
    return part;
}

/* ---- Files ---- */

int fuzz_file(char *path)
{
    int file = memfd_create("fuzz", MFD_CLOEXEC);

    FUZZ_CHECK(file >= 0, "memfd_create: %s", strerror(errno));
    snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), file);
    return file;
}

void fuzz_file_set(int file, const void *bytes, size_t size)
{
    FUZZ_CHECK(ftruncate(file, 0) == 0, "ftruncate: %s", strerror(errno));
    FUZZ_CHECK(pwrite(file, bytes, size, 0) == (ssize_t)size, "pwrite: %s", strerror(errno));
}
