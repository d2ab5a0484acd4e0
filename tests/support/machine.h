/*
 * What this machine lets a test do, for unit tests and programs of stress tests. tests/machine.py is for Python.
 * An ability is tried by the call that the test makes. A test is skipped only for what the machine cannot do. The line
 * that says so names the system call and its error.
 */
#ifndef HAK_TESTS_SUPPORT_MACHINE_H
#define HAK_TESTS_SUPPORT_MACHINE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A program that can run none of its tests ends with this status (SKIP_RETURN_CODE in CMake). */
#define MACHINE_SKIPPED 77

/* NULL: the machine has it. Else the reason why not (static). */
static inline const char *machine_lacks_process_vm_readv(void)
{
    static char reason[64];
    char from = 1, into = 0;
    struct {
        void *start;
        size_t size;
    } local = { &into, 1 }, remote = { &from, 1 };

    if (syscall(SYS_process_vm_readv, getpid(), &local, 1UL, &remote, 1UL, 0UL) == 1)
        return NULL;
    snprintf(reason, sizeof reason, "process_vm_readv: %s", strerror(errno));
    return reason;
}

/* Whether a test can run; if not, prints the line. */
static inline int machine_has(const char *test, const char *reason)
{
    if (reason != NULL)
        printf("skipped: %s: %s\n", test, reason);
    fflush(stdout);
    return reason == NULL;
}

/* Call first in a cmocka test: skips it if the machine lacks the ability. */
#define MACHINE_NEEDS(ability)                                  \
    do {                                                        \
        if (!machine_has(__func__, machine_lacks_##ability()))  \
            skip();                                             \
    } while (0)

#endif
