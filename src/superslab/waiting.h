/*
 * How much free memory may wait to be used again.
 *
 * N7: where a purge thread runs, memory that waits leaves after the purge delay, whatever the program does. Elsewhere
 *     only the program's calls can give it back, and none may come. So what is more than waiting_most() leaves at the
 *     free that made it wait, unless the program wanted such memory again within a purge delay before (N6).
 */
#ifndef HAK_SUPERSLAB_WAITING_H
#define HAK_SUPERSLAB_WAITING_H

#include "base/base.h"

/* What may wait in a process that uses little. */
#define WAITING_SPARE (16 * HAK_MIB)
/* This part of live memory may wait, too. */
#define WAITING_SHARE 4u
/* Where too much waits, this part leaves at once. */
#define WAITING_STEP 4u

struct waiting_inputs {
    size_t live;   /* bytes in use */
    size_t wanted; /* bytes that may wait because the program wanted them again (N6); 0: none */
    bool attended; /* there is a purge thread */
};

/* The bytes that may wait. */
HAK_INLINE size_t waiting_most(struct waiting_inputs inputs)
{
    if (inputs.attended)
        return SIZE_MAX;
    return base_max(inputs.live / WAITING_SHARE + WAITING_SPARE, inputs.wanted);
}

/* The bytes that must leave of `waiting`; 0: none. Then at least a part leaves, so that few frees call the system. */
HAK_INLINE size_t waiting_excess(struct waiting_inputs inputs, size_t waiting)
{
    size_t most = waiting_most(inputs);

    return waiting > most ? base_max(waiting - most, waiting / WAITING_STEP) : 0;
}

#endif
