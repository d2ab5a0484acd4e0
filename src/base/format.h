/* printf-like output for messages from inside the allocator. It never allocates, takes no lock and leaves errno
 * alone. */
#ifndef HAK_BASE_FORMAT_H
#define HAK_BASE_FORMAT_H

#include <stdarg.h>

#include "base/base.h"

/* Formats into buffer[0..capacity), always NUL-terminated, and cuts longer text. Understands %s %c %d %i %u %x %p %%,
 * with the lengths l, ll and z, 0-padding, '-', width (also '*'), and for %s a precision (also '*'). %p always prints
 * 0x and the digits. Returns the characters written, without the NUL. */
HAK_HIDDEN size_t base_format(char *buffer, size_t capacity, const char *format, ...) HAK_PRINTF(3, 4);
HAK_HIDDEN size_t base_format_v(char *buffer, size_t capacity, const char *format, va_list arguments);

/* Writes one line "hakmem: <message>\n" to stderr with a single write(2); preserves errno. */
HAK_HIDDEN void base_message(const char *format, ...) HAK_PRINTF(1, 2);

/* Reads the decimal digits at *text, and moves it behind them. False: there are none, or the number exceeds 64 bits. */
HAK_HIDDEN bool base_number(const char **text, uint64_t *value);

#endif
