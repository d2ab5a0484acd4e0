/*
 * prctl in front of the C library's. PR_SET_SECCOMP, or PR_SET_NO_NEW_PRIVS, which an unprivileged process needs before
 * a filter, tells that a sandbox follows. Files that HAKMEM needs are read now, because later reads may be forbidden
 * (superslab/limits.h).
 *
 * Only libhakmem.so has this file: a static program reads the files as it starts.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/names.h"
#include "front/process.h"
#include "os/os.h"
#include "superslab/arrival.h"
#include "superslab/limits.h"

API_EXPORT int prctl(int option, ...)
{
    unsigned long arguments[4];
    va_list list;

    va_start(list, option);
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        arguments[i] = va_arg(list, unsigned long); /* all that the system call has; the caller may have passed fewer */
    va_end(list);
    if ((option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) && process_init()) {
        limits_before_sandbox();
        arrival_before_sandbox();
    }
    return (int)syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
}
