/* Files that HAKMEM writes. No call allocates, uses stdio, changes errno or is a cancellation point. */
#ifndef HAK_OS_FILE_H
#define HAK_OS_FILE_H

#include "base/base.h"

/* Makes the file, or empties it, for writing (mode 0644 less the umask). Returns its descriptor, or the negated errno. */
HAK_HIDDEN int os_file_create(const char *path);

/* Writes all of it. Returns 0, or the errno. */
HAK_HIDDEN int os_file_write(int file, const void *data, size_t size);

/* Returns 0, or the errno that the system had kept for the end. */
HAK_HIDDEN int os_file_close(int file);

/* What an errno means, in the C library's words; "an unknown error" for one that files and signals do not give. The C
 * library's own functions for it allocate or translate. */
HAK_HIDDEN const char *os_error_text(int error);

/* The process's number, also in a child of a fork that libc knows nothing of. */
HAK_HIDDEN uint32_t os_process_id(void);

#endif
