/* Makes os/'s calls of syscall() fail on demand: --wrap=syscall sends them through here. Include it once. */
#ifndef HAK_TESTS_UNIT_REFUSED_H
#define HAK_TESTS_UNIT_REFUSED_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>

/* Calls of `number` fail with `error`; of openat, only those whose path ends with `ending`. `let_pass` calls succeed
 * first. Then `fails` calls fail, or all of them if `fails` is 0. */
struct refusal {
    long number;
    const char *ending; /* NULL: any */
    int error;          /* 0: no refusal */
    int let_pass, fails;
};

enum { REFUSALS = 4 };
static struct refusal refusals[REFUSALS];
static atomic_int calls_of[512]; /* by number */

static void refuse_nothing(void)
{
    memset(refusals, 0, sizeof refusals);
    for (size_t i = 0; i < sizeof calls_of / sizeof calls_of[0]; i++)
        atomic_store(&calls_of[i], 0);
}

static bool is_refused(struct refusal *refusal, long number, const char *path)
{
    size_t length = number == SYS_openat ? strlen(path) : 0, ending = refusal->ending ? strlen(refusal->ending) : 0;

    if (refusal->error == 0 || refusal->number != number)
        return false;
    if (refusal->ending && (length < ending || strcmp(path + length - ending, refusal->ending) != 0))
        return false;
    if (refusal->let_pass > 0) {
        refusal->let_pass--;
        return false;
    }
    if (refusal->fails > 0 && --refusal->fails == 0)
        refusal->error = 0;
    return true;
}

/* Counts the call. False: it is refused, and errno says why. */
static bool look_at_call(long number, const long arguments[6])
{
    if (number >= 0 && number < (long)(sizeof calls_of / sizeof calls_of[0]))
        atomic_fetch_add(&calls_of[number], 1);
    for (int i = 0; i < REFUSALS; i++) {
        int error = refusals[i].error;
        if (is_refused(&refusals[i], number, (const char *)arguments[1])) {
            errno = error;
            return false;
        }
    }
    return true;
}

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
