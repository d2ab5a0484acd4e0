/*
 * A look at the seals of blocks in use as their slab is scrubbed, while threads may be at work on those blocks. It
 * finds a write past the end of a block that is not freed for long.
 *
 * V18: while a block has a live seal, its slack has only zeros and bytes of the pattern, unless the program wrote to
 *     it. So if another byte is there, and the block had the same seal before and after it was read, the program did.
 */
#ifndef HAK_HARDEN_LOOK_H
#define HAK_HARDEN_LOOK_H

#include "pool/slab.h"

/* The first finding of some looks. */
struct look {
    struct slab_look slab_look;
    const char *block; /* NULL: none */
    size_t requested;  /* SIZE_MAX: not known */
    size_t changed;    /* offset of the first byte in the block that changed, as far as can be told */
    bool before;       /* the place before `block`, the first of its slab, was written */
};

/* For registry_trim_idle. */
HAK_HIDDEN struct slab_look *look_begin(struct look *look);

/* Reports the finding as misuse, if there is one. Holding no lock. */
HAK_HIDDEN void look_report(const struct look *look);

#endif
