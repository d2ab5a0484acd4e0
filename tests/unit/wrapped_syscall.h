/* --wrap=syscall sends os/'s calls of syscall() through here. Include it once, and define look_at_call. */
#ifndef HAK_TESTS_UNIT_WRAPPED_SYSCALL_H
#define HAK_TESTS_UNIT_WRAPPED_SYSCALL_H

#include <stdarg.h>
#include <stdbool.h>

/* Sees each call before the kernel does. If it returns false, the call is not made: it fails with the errno that
 * look_at_call has set. */
static bool look_at_call(long number, const long arguments[6]);

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long arguments[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    if (!look_at_call(number, arguments))
        return -1;
    return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

#endif
