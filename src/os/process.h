/* Signals, files' names and the time of day. No call allocates or changes errno. */
#ifndef HAK_OS_PROCESS_H
#define HAK_OS_PROCESS_H

#include "base/base.h"

/* The signal with that number or name (with or without SIG). 0: there is none, or a process cannot handle it. */
HAK_HIDDEN int os_signal_number(const char *text);

/* Makes the signal call the handler. Returns 0 or an errno; EBUSY if the process already handles or ignores the
 * signal. */
HAK_HIDDEN int os_signal_take(int number, void (*handler)(int number));

/* Renames. Returns 0 or the errno. Unless it may replace an existing file: EEXIST if there is one, EINVAL if the file
 * system does not tell. */
HAK_HIDDEN int os_file_rename(const char *from, const char *to, bool replace);
HAK_HIDDEN void os_file_remove(const char *path);

/* Nanoseconds since 1970. */
HAK_HIDDEN uint64_t os_time_of_day(void);

#endif
