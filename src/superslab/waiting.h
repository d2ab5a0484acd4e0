/*
 * How much free memory may wait to be used again.
 *
 * N7: where a purge thread runs, memory that waits leaves after the purge delay, whatever the program does. Elsewhere
 *     only the program's calls can give it back, and none may come. So what is more than waiting_most() leaves at the
 *     free that made it wait, unless the program wanted such memory again within a purge delay before (N6).
 * N10: blocks in a thread's cache pin slabs, and blocks in use pin pages. Where N7 lets memory leave at a free, the
 *      thread flushes its cache each time that a quarter of its blocks came back while more waits than may, that in its
 *      slabs too. Each time that half came back, it also scrubs the slabs (pool/slab.h), so many at a call. If blocks
 *      of such slabs are wanted within a purge delay, as much may wait in them as N2 allows (N6).
 */
#ifndef HAK_SUPERSLAB_WAITING_H
#define HAK_SUPERSLAB_WAITING_H

#include "base/base.h"

/* What may wait in a process that uses little. */
#define WAITING_SPARE (16 * HAK_MIB)
/* This part of live memory may wait, too. */
#define WAITING_SHARE 4u
/* So much more must wait before blocks in use are looked at. */
#define UNPIN_SPARE (8 * HAK_MIB)
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

/* The most bytes that were out of a thread's slabs since it flushed its cache for N10, and since it scrubbed. */
struct waiting_peaks {
    size_t flush, scrub;
};

enum waiting_unpin { UNPIN_NOTHING, UNPIN_CACHE, UNPIN_PAGES /* too */ };

/* Whether too few of a thread's blocks came back for it to do anything. */
HAK_INLINE bool waiting_is_held(size_t live, struct waiting_peaks *peaks)
{
    peaks->flush = base_max(peaks->flush, live);
    peaks->scrub = base_max(peaks->scrub, live);
    return live > peaks->flush - peaks->flush / 4;
}

/* What a thread does of whose slabs inputs.live bytes are out, while `waiting` bytes wait. Because the program wanted
 * pages between its blocks again, as much as `holes` may wait there. */
HAK_INLINE enum waiting_unpin waiting_unpin(struct waiting_inputs inputs, size_t holes, size_t waiting,
                                            struct waiting_peaks *peaks)
{
    if (waiting_is_held(inputs.live, peaks) || inputs.attended || waiting <= waiting_most(inputs) + UNPIN_SPARE)
        return UNPIN_NOTHING;
    peaks->flush = inputs.live;
    if (inputs.live > peaks->scrub / 2 || waiting <= holes)
        return UNPIN_CACHE;
    peaks->scrub = inputs.live;
    return UNPIN_PAGES;
}

#endif
