/*
 * The bytes in use, counted exactly: what heaps have handed out, without what caches keep. The heap profile takes the
 * moment of the peak from them.
 *
 * Z10: between two looks the calls that a slow path counts ask for at most the bytes that were missing for a new peak
 *      and 1/64 of it, or LIVE_STEP for each heap if that is more. So the true peak is higher by no more than that, by
 *      one run of each thread (T8), and by what caches keep.
 */
#ifndef HAK_FRONT_LIVE_H
#define HAK_FRONT_LIVE_H

#include "base/base.h"

/* The bytes in use. Exact while no other thread is inside the allocator; blocks on their way between the parts of
 * another thread's cache count, too. Holding no lock. */
HAK_HIDDEN size_t live_total(void);

/* While the profile is on: the calling thread took up to `bytes` bytes from heaps. Looks at the total if the peak may
 * have risen. live_look does so in any case. Holding no lock. */
HAK_HIDDEN void live_note(size_t bytes);
HAK_HIDDEN void live_look(void);

#endif
