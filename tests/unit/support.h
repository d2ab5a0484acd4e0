/* What the unit tests share. Include it first: it includes cmocka and the headers that cmocka needs before it. */
#ifndef HAK_TESTS_UNIT_SUPPORT_H
#define HAK_TESTS_UNIT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Whether an emulator runs the tests: qemu-user passes not every advice on to the kernel, and tells less of memory. */
#ifndef UNIT_EMULATED
#define UNIT_EMULATED 0
#endif

/* Seconds after which a test may take itself for hung: far more than it needs, however busy the machine is. */
enum { UNIT_HANG = 1200 };

/* ---- What is written to stderr ---- */

/* Sends file descriptor 2 into memory until capture_end, which returns the text (static, cut at 64 KiB). */
void capture_begin(void);
const char *capture_end(void);

/* assert_has fails the test if `text` lacks `part`, assert_has_not if it contains it. Each prints both texts. */
void assert_has(const char *text, const char *part);
void assert_has_not(const char *text, const char *part);

/* The number of times that `part` occurs in `text`. */
unsigned count_of(const char *text, const char *part);

/* Whether the thread with this kernel id sleeps. */
bool thread_sleeps(int thread);

/* ---- Mappings ---- */

/* A row of /proc/self/maps. */
struct mapping {
    uintptr_t start, end;
    uintptr_t base;  /* where the unbroken sequence of this file's rows begins; `start` without a file */
    uint64_t offset; /* in the file */
    char path[4200]; /* "" if it has none */
};

/* Finds the mapping of the address. The test fails if there is none. */
void find_mapping(uintptr_t address, struct mapping *mapping);

/* ---- Children ---- */

/* Runs the function in a forked child, which must end in SIGABRT and write `message` to stderr. */
void assert_aborts(void (*run)(void), const char *message);

/* Run the function in a forked child. status_of returns the child's exit status, or 1000 more than the signal that
 * ended it. signal_of returns that signal, or 0 if there was none. */
int status_of(void (*run)(void));
int signal_of(void (*run)(void));

#endif
