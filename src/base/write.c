#define _GNU_SOURCE
#include "base/write.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's set of signals. */
typedef uint64_t signal_set;
#define SIGNAL_BIT(number) (UINT64_C(1) << ((number)-1))

static bool change_mask(int how, const signal_set *set, signal_set *before)
{
    return syscall(SYS_rt_sigprocmask, how, set, before, sizeof *set) == 0;
}

/* Removes the SIGPIPE that is pending for this thread. */
static void take_sigpipe(void)
{
    static const signal_set set = SIGNAL_BIT(SIGPIPE);
    static const long at_once[2] = { 0, 0 };

    while (syscall(SYS_rt_sigtimedwait, &set, NULL, at_once, sizeof set) < 0 && errno == EINTR)
        continue;
}

long base_write(int file, const void *data, size_t size)
{
    static const signal_set ours = SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGXFSZ);
    signal_set before;
    bool masked = change_mask(SIG_BLOCK, &ours, &before);
    long written;
    int error;

    do
        written = syscall(SYS_write, file, data, size);
    while (written < 0 && errno == EINTR);
    error = errno;
    if (masked) {
        if (written < 0 && error == EPIPE && !(before & SIGNAL_BIT(SIGPIPE)))
            take_sigpipe();
        /* SIGXFSZ stays blocked: sandboxes set RLIMIT_FSIZE to 0, and end a process that calls rt_sigtimedwait. */
        if (written < 0 && error == EFBIG)
            before |= SIGNAL_BIT(SIGXFSZ);
        change_mask(SIG_SETMASK, &before, NULL);
    }
    errno = error;
    return written;
}
