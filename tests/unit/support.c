#define _GNU_SOURCE
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int stderr_before = -1, captured = -1;
static char text[64 * 1024];

void capture_begin(void)
{
    assert_int_equal(captured, -1);
    captured = memfd_create("stderr", 0);
    stderr_before = dup(STDERR_FILENO);
    assert_true(captured >= 0 && stderr_before >= 0);
    fflush(stderr);
    assert_true(dup2(captured, STDERR_FILENO) >= 0);
}

const char *capture_end(void)
{
    fflush(stderr);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    ssize_t length = pread(captured, text, sizeof text - 1, 0);
    close(captured);
    captured = -1;
    assert_true(length >= 0);
    text[length] = '\0';
    return text;
}

void assert_has(const char *whole, const char *part)
{
    if (strstr(whole, part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, whole);
}

void assert_has_not(const char *whole, const char *part)
{
    if (strstr(whole, part) != NULL)
        fail_msg("\"%s\" is in \"%s\"", part, whole);
}

unsigned count_of(const char *whole, const char *part)
{
    unsigned count = 0;
    for (const char *at = whole; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

void find_mapping(uintptr_t address, struct mapping *mapping)
{
    char line[4400], path[4200] = "", last[4200] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start = 0, end = 0, offset, base = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        path[0] = '\0';
        assert_true(sscanf(line, "%lx-%lx %*s %lx %*s %*s %4199s", &start, &end, &offset, path) >= 3);
        if (strcmp(path, last) != 0 || path[0] != '/')
            base = start;
        strcpy(last, path);
        if (address >= start && address < end) {
            *mapping = (struct mapping){ .start = start, .end = end, .base = base, .offset = offset };
            strcpy(mapping->path, path);
            fclose(maps);
            return;
        }
    }
    fail_msg("%#zx is not mapped", (size_t)address);
}

/* cmocka and sanitizers catch some signals. In a child each signal has its default effect. */
static void default_signals(void)
{
    static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); /* not PR_SET_DUMPABLE, which closes /proc/self to all but root */
}

int status_of(void (*run)(void))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        default_signals();
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int signal_of(void (*run)(void))
{
    int status = status_of(run);
    return status > 1000 ? status - 1000 : 0;
}

void assert_aborts(void (*run)(void), const char *message)
{
    capture_begin();
    int ended_by = signal_of(run);
    const char *said = capture_end();
    assert_int_equal(ended_by, SIGABRT);
    assert_has(said, message);
}

bool thread_sleeps(int thread)
{
    char path[64], kind = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &kind), 1);
    fclose(file);
    return kind == 'S';
}
