/*
 * measure OUTPUT WARM_MIB PRELOAD PROGRAM [ARGUMENT...]
 *
 * Runs one program and writes what it used to OUTPUT as a line of key=value. A process of its own because the kernel
 * hands the peak RSS of the process that calls execve on to the program: this one is small and linked statically, so
 * that the figure is the program's alone down to about 1 MiB (run.py itself has 30).
 *
 * First WARM_MIB of memory are written and released by another process: on a virtual machine that gave free memory back
 * to its host, the first touch of such a page costs milliseconds, which would be charged to whoever runs first. PRELOAD
 * is the LD_PRELOAD of the program alone, empty for none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void fail(const char *what)
{
    dprintf(STDERR_FILENO, "measure: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void warm(size_t mebibytes)
{
    size_t size = mebibytes << 20;
    if (size == 0)
        return;
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fail("mmap to warm memory");
        for (size_t at = 0; at < size; at += 4096)
            ((volatile char *)memory)[at] = 1;
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        dprintf(STDERR_FILENO, "measure: warming %zu MiB failed\n", mebibytes);
        _exit(125);
    }
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        dprintf(STDERR_FILENO, "usage: measure OUTPUT WARM_MIB PRELOAD PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    int output = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (output < 0)
        fail(argv[1]);
    warm(strtoul(argv[2], NULL, 10));

    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        if (argv[3][0] != '\0')
            setenv("LD_PRELOAD", argv[3], 1);
        else
            unsetenv("LD_PRELOAD");
        execvp(argv[4], argv + 4);
        fail(argv[4]);
    }
    struct rusage usage;
    int status;
    if (wait4(child, &status, 0, &usage) != child)
        fail("wait4");
    clock_gettime(CLOCK_MONOTONIC, &after);

    double wall = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    dprintf(output,
            "wall_s=%.6f user_s=%.6f sys_s=%.6f peak_rss_kib=%ld soft_faults=%ld hard_faults=%ld "
            "waits=%ld preemptions=%ld status=%d\n",
            wall, seconds(usage.ru_utime), seconds(usage.ru_stime), usage.ru_maxrss, usage.ru_minflt, usage.ru_majflt,
            usage.ru_nvcsw, usage.ru_nivcsw, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
