/* Functions that malloc and free may call leave errno as it was. */
#ifndef HAK_BASE_ERRNO_H
#define HAK_BASE_ERRNO_H

#include <errno.h>

#include "base/base.h"

HAK_INLINE void base_errno_restore(const int *kept) { errno = *kept; }

/* A declaration: errno has its value of now again when the scope ends, behind what `return` computes. */
#define BASE_KEEP_ERRNO __attribute__((cleanup(base_errno_restore), unused)) int kept_errno = errno

#endif
