/* The sizes from which all others are derived. In bytes unless the name says otherwise. */
#ifndef HAK_CONFIG_LIMITS_H
#define HAK_CONFIG_LIMITS_H

#include "base/base.h"

/* Slabs and spans consist of units, and the page map has one byte for each. A unit is a multiple of every page size. */
#define UNIT_SHIFT 16
#define UNIT_SIZE ((size_t)1 << UNIT_SHIFT)

/* A SuperSlab is aligned to its size, so that masking a pointer gives its header, which lies in unit 0. */
#define SUPERSLAB_SHIFT 21
#define SUPERSLAB_SIZE ((size_t)1 << SUPERSLAB_SHIFT)
#define SUPERSLAB_UNITS 32u

/* Requests up to FAST_MAX find their class with one table load. Blocks up to POOLED_MAX lie in SuperSlabs; larger ones
 * are huge. */
#define FAST_MAX ((size_t)1024)
/* In libhakmem-secure so many first bytes of every free block in a SuperSlab are zero, and free blocks of a slab are
 * zero throughout that have no more than so many (V7). Larger ones have pages that nobody may have written. */
#define FREE_EDGE ((size_t)32)
#define FREE_EDGE_BEHIND ((size_t)16) /* of a slab's larger blocks the last bytes are zero, too: their seal is there */
#define ZEROED_MOST ((size_t)14336)
#define POOLED_MAX ((size_t)1 << 20)
#define SPAN_MAX_UNITS 16u

/* The smallest block and the alignment of every block. */
#define BLOCK_ALIGN ((size_t)16)

/* One word of a slab's map covers 64 blocks. */
#define SLAB_MAX_BLOCKS 4096u
#define SLAB_MAP_WORDS (SLAB_MAX_BLOCKS / 64)

/* The C standard's limit on one object, which pointer differences rely on. */
#define REQUEST_MAX ((size_t)PTRDIFF_MAX)

_Static_assert(SUPERSLAB_UNITS * UNIT_SIZE == SUPERSLAB_SIZE, "a SuperSlab is a whole number of units");
_Static_assert(SPAN_MAX_UNITS * UNIT_SIZE == POOLED_MAX, "the largest span holds the largest pooled request");
_Static_assert(SLAB_MAX_BLOCKS * BLOCK_ALIGN == UNIT_SIZE, "a unit of the smallest blocks fills the map");

#endif
