/* Reports misuse of memory: prints one line without allocating, then aborts the process (HAKMEM_ABORT_ON_MISUSE). */
#ifndef HAK_POOL_MISUSE_H
#define HAK_POOL_MISUSE_H

#include "base/base.h"

enum misuse {
    MISUSE_FOREIGN,  /* an address that is not HAKMEM's */
    MISUSE_NO_BLOCK, /* an address inside a block, or between blocks */
    MISUSE_FREED,    /* the block is free already */
    MISUSE_SIZE      /* the given size or alignment cannot be the block's */
};

/* Prints the line. `function` is the public function that was called with `pointer`; its call must have no effect. Any
 * thread, under any lock. The caller must reach misuse_settle(), which ends the process, before `function` returns. */
HAK_HIDDEN HAK_COLD void misuse_report(const char *function, const void *pointer, enum misuse misuse);

/* The os_thread_token() of the thread whose reported misuse ends the process; 0: none. */
HAK_DATA _Atomic uintptr_t misuse_culprit; /* Order: relaxed; a thread looks for its own token */

HAK_HIDDEN HAK_COLD void misuse_end(void);

/* Like misuse_report, with the caller's own words. */
HAK_HIDDEN HAK_COLD void misuse_report_words(const char *function, const void *pointer, const char *words);

/* Ends the process by abort() if the calling thread reported misuse. This is then a foreign point (os/foreign.h): the
 * program's SIGABRT handler may allocate, and may leave by longjmp. */
HAK_INLINE void misuse_settle(void)
{
    if (HAK_UNLIKELY(atomic_load_explicit(&misuse_culprit, memory_order_relaxed) != 0))
        misuse_end();
}

/* What seems to be wrong with an address that is not the start of a block, for callers that know nothing more. */
HAK_HIDDEN HAK_COLD enum misuse misuse_of(const void *pointer);

#endif
