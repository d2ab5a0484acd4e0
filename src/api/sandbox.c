/*
 * prctl in front of the C library's: what a process does before a sandbox is put around it (PR_SET_NO_NEW_PRIVS, which
 * a filter needs of a process without privileges, or PR_SET_SECCOMP) tells that files must be read now or never
 * (superslab/limits.h).
 *
 * Part of libhakmem.so alone: a static program reads them as it starts.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/names.h"
#include "front/process.h"
#include "superslab/limits.h"

HAK_DATA_HERE bool limits_await_sandbox = true;

API_EXPORT int prctl(int option, ...)
{
    unsigned long arguments[4];
    va_list list;

    va_start(list, option);
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        arguments[i] = va_arg(list, unsigned long); /* as many as the system call has, whatever the caller passed */
    va_end(list);
    if ((option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) && process_init())
        limits_before_sandbox();
    return (int)syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
}
