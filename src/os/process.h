/* Signals, files' names and the time of day. No call allocates or changes errno. */
#ifndef HAK_OS_PROCESS_H
#define HAK_OS_PROCESS_H

#include "base/base.h"

/* The signal of a number or a name, with or without SIG before it; 0 if there is none or it cannot be handled. */
HAK_HIDDEN int os_signal_number(const char *text);

/* Makes the signal call the handler, unless the process does anything but the default with it already. Returns 0 or an errno (EBUSY). */
HAK_HIDDEN int os_signal_take(int number, void (*handler)(int number));

/* Renames over what is there. Returns 0 or the errno. */
HAK_HIDDEN int os_file_rename(const char *from, const char *to);
HAK_HIDDEN void os_file_remove(const char *path);

/* Nanoseconds since 1970. */
HAK_HIDDEN uint64_t os_time_of_day(void);

#endif
