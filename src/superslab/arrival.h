/*
 * Arrival: what becomes resident before the program touches it.
 *
 * N8: a SuperSlab and a huge block get huge pages only by proof of density: of what is used of those looked at last, no
 *     more than one byte in ARRIVAL_PART is not resident. Of SuperSlabs, only slabs of blocks above a page can prove
 *     the contrary: smaller blocks fill theirs.
 * N9: what has huge pages or was faulted in ahead proves nothing. So one in ARRIVAL_PERIOD begins with small pages, and
 *     slabs of blocks above a page are not faulted in ahead.
 * N11: clearing a large block makes no page resident, but for pages that it has a part of. In a sandbox that may forbid
 *     mincore, all of it is written.
 */
#ifndef HAK_SUPERSLAB_ARRIVAL_H
#define HAK_SUPERSLAB_ARRIVAL_H

#include "base/base.h"

#define ARRIVAL_PART 8u
#define ARRIVAL_PERIOD 16u
/* Blocks of up to so many bytes touch each page of a slab that they fill. */
#define ARRIVAL_SMALL_BLOCK 4096u

struct arrival_evidence {
    size_t used, missing; /* bytes of slabs or blocks in use; of these, not resident */
};

HAK_INLINE bool arrival_is_dense(struct arrival_evidence evidence)
{
    return evidence.missing <= evidence.used / ARRIVAL_PART;
}

/* Whether the `count`th that begins is to begin with small pages (N9). */
HAK_INLINE bool arrival_is_probe(uint32_t count) { return count % ARRIVAL_PERIOD == 0; }

/* ---- SuperSlabs ---- */

/* Whether the last look found density. Any thread, no lock. */
HAK_HIDDEN bool arrival_superslabs_dense(void);
/* Whether a SuperSlab that begins is to get huge pages. Looks at the last that began with small pages. Under
 * pool.lock, as the next function. */
HAK_HIDDEN bool arrival_superslab_begins(void);
/* Notes a SuperSlab that begins with small pages. */
HAK_HIDDEN void arrival_note_small(uint32_t number);

/* ---- Huge blocks ---- */

/* Whether a huge block that is mapped is to get huge pages. Any thread that does not hold huge_lock. */
HAK_HIDDEN bool arrival_huge_begins(void *block, size_t size);
/* A huge block is about to become free or to move. Under huge_lock. */
HAK_HIDDEN void arrival_huge_ends(const void *block);

/* ---- Zeroed blocks ---- */

/* A look at smaller blocks would be felt beside the writing. */
#define ARRIVAL_CLEAR_LEAST (256 * HAK_KIB)

/* arrival_clear of larger blocks. */
HAK_HIDDEN void arrival_clear_pages(void *block, size_t size);

/* Makes a block read as zero that nobody else uses: writes to pages that are resident, and has the system drop what the
 * others may have in swap. Any thread, no lock. */
HAK_INLINE void arrival_clear(void *block, size_t size)
{
    if (HAK_LIKELY(size < ARRIVAL_CLEAR_LEAST))
        __builtin_memset(block, 0, size);
    else
        arrival_clear_pages(block, size);
}

/* False: mincore may be forbidden. Any thread. */
HAK_HIDDEN bool arrival_may_look(void);
/* The process enters a sandbox, which may forbid mincore: from now on the last looks hold. Any thread. */
HAK_HIDDEN void arrival_before_sandbox(void);

#endif
