/* Blocks past the thread's cache, for the files of front/. */
#ifndef HAK_FRONT_HEAPS_H
#define HAK_FRONT_HEAPS_H

#include "pool/heap.h"

/* direct_allocate that makes room when memory is short, and maps as a last resort. Any thread that holds no lock. */
HAK_HIDDEN void *allocate_direct(struct heap *heap, size_t alignment, size_t size, bool *zero);

#endif
