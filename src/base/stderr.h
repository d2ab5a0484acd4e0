/* Standard error, which some programs close before HAKMEM's last word: GNU's tools do so as they end, to see whether all was written. */
#ifndef HAK_BASE_STDERR_H
#define HAK_BASE_STDERR_H

#include "base/base.h"

/* Keeps standard error as it is now under a second, high number, closed at exec. Once, by the thread that initialises the process, and
 * only where something is to be said at its end: who waits until all have closed a pipe waits for this number too. */
HAK_HIDDEN void base_stderr_keep(void);

/* Closes that number, in the child of a fork: what outlives the process that was started holds nothing of it. */
HAK_HIDDEN void base_stderr_drop(void);

/* The number to write to: standard error's, or the kept one while that is closed. Any thread; errno stays. */
HAK_HIDDEN int base_stderr(void);

#endif
