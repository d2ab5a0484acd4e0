/* Functions that malloc and free may call leave errno as it was. */
#ifndef HAK_BASE_ERRNO_H
#define HAK_BASE_ERRNO_H

#include <errno.h>

#include "base/base.h"

HAK_INLINE void base_errno_restore(const int *kept) { errno = *kept; }

/* A declaration: errno has its value of now again when the scope ends, after `return` has computed its value. Not in a
 * file with -fexceptions: there the end of the scope calls libgcc, which libhakmem-je for musl lacks. */
#define BASE_KEEP_ERRNO __attribute__((cleanup(base_errno_restore), unused)) int kept_errno = errno

#endif
