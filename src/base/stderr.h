/* Standard error for HAKMEM's last messages. Some programs close it earlier: GNU's tools do so at exit, to see whether
 * all was written. */
#ifndef HAK_BASE_STDERR_H
#define HAK_BASE_STDERR_H

#include "base/base.h"

/* Duplicates standard error to a second, high number that exec closes. The thread that initialises the process calls it
 * once, and only if HAKMEM will print something at exit: the duplicate keeps a pipe open for a reader that waits until
 * every writer has closed it. */
HAK_HIDDEN void base_stderr_keep(void);

/* Closes that number in the child of a fork, so that a child which outlives its parent does not keep the parent's pipe
 * open. */
HAK_HIDDEN void base_stderr_drop(void);

/* fstat, also with a glibc before 2.33. */
struct stat;
HAK_HIDDEN bool base_file_status(int file, struct stat *status);

/* The number to write to: standard error's, or the kept one while standard error is closed. Any thread; errno stays. */
HAK_HIDDEN int base_stderr(void);

#endif
