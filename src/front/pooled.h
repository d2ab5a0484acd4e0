/* Blocks of slabs beyond the fast path, for any thread that holds no lock. */
#ifndef HAK_FRONT_POOLED_H
#define HAK_FRONT_POOLED_H

#include "base/base.h"

/* A block of the class, for a call that wants `wanted` bytes at this alignment. *zero: it reads as zero. NULL when
 * memory is out. */
HAK_HIDDEN void *pooled_allocate(unsigned class, size_t alignment, size_t wanted, bool *zero);

/* Frees a block of the class, which no thread holds. `function` is the public name. */
HAK_HIDDEN void pooled_free(unsigned class, void *block, const char *function);

#endif
