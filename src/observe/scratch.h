/* Memory in which statistics are made. Their tables would fill the stack of a small thread: no function that a
 * program can call needs more than 8 KiB of stack. */
#ifndef HAK_OBSERVE_SCRATCH_H
#define HAK_OBSERVE_SCRATCH_H

#include "base/base.h"

#define SCRATCH_BYTES ((size_t)24576)

/* SCRATCH_BYTES of any content, aligned to a cache line. Any thread, and again by a thread that has some (the
 * program's write function may ask for statistics). NULL, errno ENOMEM: others have the static part, and no mapping
 * could be had. Takes no lock, so that a child of fork never waits for a thread that it has not. */
HAK_HIDDEN void *scratch_take(void);
HAK_HIDDEN void scratch_give(void *scratch);

#endif
