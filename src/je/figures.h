/*
 * The figures of jemalloc's stats.*: those of the process and of each arena at the moment of the last epoch.
 *
 * All members that mallctl gives are 64 bits wide.
 */
#ifndef HAK_JE_FIGURES_H
#define HAK_JE_FIGURES_H

#include "config/classes.h"

#define FIGURES_BINS ((unsigned)CLASS_16384)               /* classes up to 16 KiB: at least four blocks a slab */
#define FIGURES_LEXTENTS ((unsigned)CLASS_COUNT - FIGURES_BINS) /* the other classes, and all larger blocks */

/* Of one size: a bin or a lextent of jemalloc's. */
struct figures_size {
    uint64_t nmalloc, ndalloc; /* blocks that left slabs, and that came back; their difference is curregs */
    uint64_t nrequests;        /* calls of malloc that slow calls have counted */
    uint64_t nfills, nflushes; /* batches */
    uint64_t nslabs, nreslabs; /* slabs made; nreslabs stays 0 */
    uint64_t curregs;          /* blocks outside slabs: the program's, and those in thread caches */
    uint64_t live;             /* the program's blocks */
    uint64_t curslabs, nonfull_slabs;
};

/* Of all bins, or of all lextents. */
struct figures_sum {
    uint64_t allocated; /* bytes of the program's blocks */
    uint64_t nmalloc, ndalloc, nrequests, nfills, nflushes;
};

/* Of one arena, or of all. */
struct figures_arena {
    uint64_t pactive, pdirty;  /* pages of slabs and huge blocks; free pages with memory behind them */
    uint64_t mapped, retained, resident, base, tcache_bytes; /* bytes */
    uint64_t dirty_purged;     /* pages */
    struct figures_sum small, large;
    struct figures_size sizes[FIGURES_BINS + FIGURES_LEXTENTS];
};

struct figures {
    uint64_t epoch;
    uint64_t allocated, active, metadata, resident, mapped, retained; /* bytes */
    uint64_t started_ns, taken_ns; /* os_now() */
};

/* Takes new figures. False: there is no memory for them. Under control_lock, as the functions below. */
HAK_HIDDEN bool figures_take(void);

/* The figures of the last epoch; takes the first ones if there are none. NULL: no memory. */
HAK_HIDDEN const struct figures *figures_get(void);

/* Those of the arena, or of MALLCTL_ARENAS_ALL. NULL: the arena did not exist at the last epoch, or no memory. */
HAK_HIDDEN const struct figures_arena *figures_of_arena(uint32_t number);

#endif
