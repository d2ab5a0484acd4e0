/* Chooses the way to find samples' stacks, by HAKMEM_HEAP_PROFILE_UNWIND. */
#ifndef HAK_FRONT_UNWINDER_H
#define HAK_FRONT_UNWINDER_H

#include "base/base.h"

/* Finds the way, once, and a Python interpreter. Allocates nothing. Hold no lock: the search takes one of the loader's,
 * under which a program may call malloc. In the child of a fork it takes none, because the thread that held it may be
 * gone. */
HAK_HIDDEN void unwinder_prepare(void);

/* In the child of a fork: keeps what the parent found, and lets the rest be looked for without a lock. */
HAK_HIDDEN void unwinder_reset_in_child(void);

#endif
