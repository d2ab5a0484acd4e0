/* All of HAKMEM's output goes through this function. A write to a pipe without a reader sends the thread SIGPIPE, and a
 * write past RLIMIT_FSIZE sends it SIGXFSZ. Both end the process by default, and a message of the allocator must not
 * end the program. */
#ifndef HAK_BASE_WRITE_H
#define HAK_BASE_WRITE_H

#include "base/base.h"

/* As write(2), with three differences: it repeats a write that a signal interrupts, it is no cancellation point, and it
 * raises neither SIGPIPE nor SIGXFSZ. -1: errno is set. */
HAK_HIDDEN long base_write(int file, const void *data, size_t size);

#endif
