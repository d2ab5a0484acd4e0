/* What the unit tests share. Include it first: it brings cmocka and what cmocka needs before it. */
#ifndef HAK_TESTS_UNIT_SUPPORT_H
#define HAK_TESTS_UNIT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- What is written to stderr ---- */

/* Sends file descriptor 2 into memory until capture_end, which returns the text (static, cut at 64 KiB). */
void capture_begin(void);
const char *capture_end(void);

/* Fails the test when `text` has no `part`, or has it, and prints both. */
void assert_has(const char *text, const char *part);
void assert_has_not(const char *text, const char *part);

/* How often `part` is in `text`. */
unsigned count_of(const char *text, const char *part);

/* ---- Children ---- */

/* Runs the function in a forked child. It must end in SIGABRT, with `message` in what it wrote to stderr. */
void assert_aborts(void (*run)(void), const char *message);

/* Runs the function in a forked child; returns the signal that ended it, or 0 when it came back. */
int signal_of(void (*run)(void));

#endif
