/* Memory to make statistics in. Their tables would overflow a small stack, and no function that a program can call
 * may need more than 8 KiB of stack. */
#ifndef HAK_OBSERVE_SCRATCH_H
#define HAK_OBSERVE_SCRATCH_H

#include "base/base.h"

#define SCRATCH_BYTES ((size_t)24576)

/* SCRATCH_BYTES of any content, aligned to a cache line. Any thread, also one that has some already: the program's
 * write function may ask for statistics. NULL, errno ENOMEM: another thread has the static part, and the system
 * refused a mapping. Takes no lock, so that the child of a fork never waits for a thread that is gone. */
HAK_HIDDEN void *scratch_take(void);
HAK_HIDDEN void scratch_give(void *scratch);

#endif
