/* Memory for HAKMEM's records: zeroed, in slots of the window. It is never freed; its users recycle their records. */
#ifndef HAK_SUPERSLAB_METADATA_H
#define HAK_SUPERSLAB_METADATA_H

#include "config/limits.h"

/* `alignment`: a power of two up to SUPERSLAB_SIZE; size + alignment at most SUPERSLAB_SIZE. NULL when memory is out.
 * Any thread; takes the metadata lock, then pool.lock. */
HAK_HIDDEN void *metadata_allocate(size_t size, size_t alignment);

/* Bytes of the slots taken. */
HAK_HIDDEN size_t metadata_bytes(void);

HAK_DATA struct lock metadata_lock;

#endif
