/*
 * Where code that is not HAKMEM's may run during a call: the program's pressure handler, its SIGABRT handler, a signal
 * of the thread library, the unwinder. Such code may call the allocator again, fork, or wait for another thread that
 * allocates.
 *
 * F1: at a foreign point the thread holds no lock (L2), and no function below it relies on what it read of a thread
 *     cache or a slab: an operation reads them anew afterwards. Debug builds check it, and tests run a hook there that
 *     does the worst.
 */
#ifndef HAK_OS_FOREIGN_H
#define HAK_OS_FOREIGN_H

#include "base/base.h"

/* Debug builds: runs at each foreign point, unless this thread is already in it. Tests set it before threads start. */
HAK_DATA void (*foreign_hook)(void);

HAK_HIDDEN void foreign_check(void);
HAK_HIDDEN void foreign_count(int by);

/* A foreign point. Costs nothing in release builds. */
HAK_INLINE void foreign_point(void)
{
    if (HAK_DEBUG)
        foreign_check();
}

/* Between the two calls the thread relies on what it read of its cache, so it must reach no foreign point. Calls
 * nest. */
HAK_INLINE void foreign_forbid(void)
{
    if (HAK_DEBUG)
        foreign_count(1);
}
HAK_INLINE void foreign_allow(void)
{
    if (HAK_DEBUG)
        foreign_count(-1);
}

#endif
