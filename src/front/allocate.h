/* What the files above allocate.c share with it. */
#ifndef HAK_FRONT_ALLOCATE_H
#define HAK_FRONT_ALLOCATE_H

#include "pool/heap.h"

/* direct_allocate with all that can be done when memory is short. Any thread that holds no lock. */
HAK_HIDDEN void *allocate_direct(struct heap *heap, size_t alignment, size_t size, bool *zero);

#endif
