/* Chooses and loads the unwinder that finds samples' stacks, by HAKMEM_HEAP_PROFILE_UNWIND. */
#ifndef HAK_FRONT_UNWINDER_H
#define HAK_FRONT_UNWINDER_H

#include "base/base.h"

/* Finds the unwinder, once. Its allocations are served as usual. Holding no lock, and never within malloc or free. In
 * the child of a fork it loads nothing, as loading takes the linker's lock, whose holder may be gone. */
HAK_HIDDEN void unwinder_prepare(void);

/* As unwinder_prepare, when the process starts, for samples of that mean. Loads nothing if HAKMEM's own walk serves:
 * loading would cost a short program more than all else that it does. */
HAK_HIDDEN void unwinder_prepare_at_start(uint64_t mean);

/* As unwinder_prepare, within malloc or free, where no library may be loaded: takes the program's unwinder. Hold no
 * lock: the search for a Python interpreter takes one of the loader's, under which a program may call malloc. In the
 * child of a fork it takes none, because the thread that held it may be gone. */
HAK_HIDDEN void unwinder_prepare_inside(void);

/* In the child of a fork: keeps what the parent found, and lets the rest be looked for without a lock. */
HAK_HIDDEN void unwinder_reset_in_child(void);

#endif
