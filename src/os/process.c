#define _GNU_SOURCE
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/errno.h"
#include "base/format.h"

/* ---- Signals ---- */

struct signal_name {
    const char *name;
    int number;
};

/* The signals that a process can do without. Real-time signals are given by number. */
static const struct signal_name signal_names[] = {
    { "HUP", SIGHUP },     { "INT", SIGINT },   { "QUIT", SIGQUIT }, { "USR1", SIGUSR1 },     { "USR2", SIGUSR2 },
    { "ALRM", SIGALRM },   { "TERM", SIGTERM }, { "CHLD", SIGCHLD }, { "CONT", SIGCONT },     { "TSTP", SIGTSTP },
    { "TTIN", SIGTTIN },   { "TTOU", SIGTTOU }, { "URG", SIGURG },   { "VTALRM", SIGVTALRM }, { "PROF", SIGPROF },
    { "WINCH", SIGWINCH }, { "IO", SIGIO },     { "PWR", SIGPWR },
};

int os_signal_number(const char *text)
{
    const char *at = text;
    uint64_t number;

    if (base_number(&at, &number) && *at == '\0')
        return number >= 1 && number <= (uint64_t)SIGRTMAX && number != SIGKILL && number != SIGSTOP ? (int)number : 0;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof signal_names / sizeof signal_names[0]; i++)
        if (strcasecmp(text, signal_names[i].name) == 0)
            return signal_names[i].number;
    return 0;
}

int os_signal_take(int number, void (*handler)(int number))
{
    BASE_KEEP_ERRNO;
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, before;
    bool known = sigaction(number, NULL, &before) == 0;

    sigemptyset(&action.sa_mask);
    if (known && ((before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL))
        return EBUSY;
    return known && sigaction(number, &action, NULL) == 0 ? 0 : errno;
}

/* ---- Files' names ---- */

int os_file_rename(const char *from, const char *to, bool replace)
{
    enum { NO_REPLACE = 1 };
    BASE_KEEP_ERRNO;

    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, replace ? 0 : NO_REPLACE) == 0 ? 0 : errno;
}

void os_file_remove(const char *path)
{
    BASE_KEEP_ERRNO;

    (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* ---- Time ---- */

uint64_t os_time_of_day(void)
{
    BASE_KEEP_ERRNO;
    struct timespec now = { 0, 0 };

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
