/*
 * Checks of blocks as others move between a thread and its slabs. They cost each call little, and find what no free of
 * the block itself finds: writes to blocks that wait, and past the ends of blocks that stay.
 */
#ifndef HAK_HARDEN_PATROL_H
#define HAK_HARDEN_PATROL_H

#include "superslab/superslab.h"

/* As the process ends: reports free blocks of slabs that were written, and blocks before them whose ends were. `found`
 * says when it was seen. For the thread that has the blocks, holding no lock, as the next two functions. */
HAK_HIDDEN void patrol_exit(void *const *blocks, unsigned count, unsigned class, const char *found);

/* Before blocks go back to their slabs: each must be as it was left. Looks at other blocks by chance. */
HAK_HIDDEN void patrol_flushed(void *const *blocks, unsigned count, unsigned class, uint64_t *chance);

/* Looks at blocks in use beside those of a thread's next run, by chance. */
HAK_HIDDEN void patrol_taken(void *const *blocks, unsigned count, unsigned class, uint64_t *chance);

/* The first block of the slab that was written while it was free, or whose end was while it is in use. NULL: there is
 * none. Under the lock of the slab's heap. */
HAK_HIDDEN char *patrol_slab(struct slab *slab, bool *in_use);

/* Reports that the end of a block in use was written. Holding no lock, as the next. */
HAK_HIDDEN HAK_COLD void patrol_report_end(char *block, const char *function, const char *found);

/* Reports that a free block was written, and clears it. */
HAK_HIDDEN HAK_COLD void patrol_report_written(char *block, size_t slot, const char *function, const char *found);

#endif
