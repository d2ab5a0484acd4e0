/* The end of a program that misuses memory: one line on stderr, written without allocating, then abort (HAKMEM_ABORT_ON_MISUSE). */
#ifndef HAK_POOL_MISUSE_H
#define HAK_POOL_MISUSE_H

#include "base/base.h"

enum misuse {
    MISUSE_FOREIGN,  /* not an address HAKMEM ever gave out */
    MISUSE_NO_BLOCK, /* inside a block, or between blocks */
    MISUSE_FREED,    /* free already */
    MISUSE_SIZE      /* the size or alignment given cannot be the block's */
};

/* `function` is the public function that was called with `pointer`. Returns only when told not to abort; then the call must have
 * no effect. Any thread, under any lock. */
HAK_HIDDEN HAK_COLD void misuse_report(const char *function, const void *pointer, enum misuse misuse);

/* What is wrong with an address that is no block's start as far as can be seen; for those that know no better. */
HAK_HIDDEN HAK_COLD enum misuse misuse_of(const void *pointer);

#endif
