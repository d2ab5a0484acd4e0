#include "observe/scratch.h"

#include <errno.h>

#include "os/os.h"

/* The first caller gets it. If another thread held it during a fork, it stays taken in the child, and mappings serve
 * instead. */
static _Alignas(HAK_CACHE_LINE) char first_room[SCRATCH_BYTES];
static _Atomic bool first_taken; /* Order: acquire as it is taken, release as it is given back */

static size_t mapping_size(void)
{
    return base_align_up(SCRATCH_BYTES, os_page_size());
}

void *scratch_take(void)
{
    void *mapping;

    if (!atomic_exchange_explicit(&first_taken, true, memory_order_acquire))
        return first_room;
    mapping = os_map(mapping_size(), os_page_size());
    if (mapping == NULL)
        errno = ENOMEM;
    return mapping;
}

void scratch_give(void *scratch)
{
    if (scratch == first_room)
        atomic_store_explicit(&first_taken, false, memory_order_release);
    else if (scratch != NULL)
        os_unmap(scratch, mapping_size());
}
