/* The write behind all of HAKMEM's output. A write to a pipe without a reader, or past the process's limit of a file's
 * size, sends the thread a signal that ends the process. A program is not to end by a message of its allocator. */
#ifndef HAK_BASE_WRITE_H
#define HAK_BASE_WRITE_H

#include "base/base.h"

/* As write(2), but repeated where a signal interrupts it, no cancellation point, and SIGPIPE and SIGXFSZ do not come.
 * -1: errno is set. */
HAK_HIDDEN long base_write(int file, const void *data, size_t size);

#endif
