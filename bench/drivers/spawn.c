/* Start-up: starts PROGRAM STARTS times and waits for it each time. PROGRAM gets this program's environment, and so the
 * same LD_PRELOAD. One operation is one start. CPU time and page faults are mostly the children's.
 *
 * An allocator that is linked into this program does not serve PROGRAM. */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children.h"

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 2,
        "[STARTS] [PROGRAM]\n  starts PROGRAM, STARTS times, with the LD_PRELOAD that is set (default 300 true)");
    uint64_t starts = bench_argument(argc, argv, 1, "STARTS", 300, 0, UINT64_MAX);
    char true_program[] = "true";
    char *program = argc > 2 ? argv[2] : true_program;
    char *arguments[] = { program, NULL };
    struct bench_run bench;

    bench_begin(&bench, "spawn");
    for (uint64_t i = 0; i < starts; i++) {
        pid_t child;
        int status;
        int error = posix_spawnp(&child, program, NULL, NULL, arguments, environ);
        if (error != 0)
            bench_fail("PROGRAM: cannot start %s: %s", program, strerror(error));
        while (waitpid(child, &status, 0) < 0)
            if (errno != EINTR)
                bench_fail("waitpid: %s", strerror(errno));
        if (WIFSIGNALED(status))
            bench_fail("PROGRAM: %s ended by signal %d", program, WTERMSIG(status));
        if (WEXITSTATUS(status) != 0)
            bench_fail("PROGRAM: %s ended with status %d", program, WEXITSTATUS(status));
    }
    bench_end(&bench, starts);
    children_add(&bench);
    bench_report(&bench);
    return 0;
}
