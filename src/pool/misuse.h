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

/* `function` is the public function that was called with `pointer`. Prints the line; the call must have no effect. Any thread, under any
 * lock. The process ends in misuse_settle(), which the caller reaches before the public function returns. */
HAK_HIDDEN HAK_COLD void misuse_report(const char *function, const void *pointer, enum misuse misuse);

/* The os_thread_token() of a thread that reported misuse which ends the process; 0: none. */
HAK_DATA _Atomic uintptr_t misuse_culprit;

HAK_HIDDEN HAK_COLD void misuse_end(void);

/* Ends the process by abort() if the calling thread reported misuse. A foreign point then (os/foreign.h): the program's SIGABRT handler
 * may allocate, and may leave by longjmp. */
HAK_INLINE void misuse_settle(void)
{
    if (HAK_UNLIKELY(atomic_load_explicit(&misuse_culprit, memory_order_relaxed) != 0))
        misuse_end();
}

/* What is wrong with an address that is no block's start as far as can be seen; for those that know no better. */
HAK_HIDDEN HAK_COLD enum misuse misuse_of(const void *pointer);

#endif
