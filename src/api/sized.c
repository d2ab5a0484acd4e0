/* The two jemalloc names that programs look for in any allocator. libhakmem-je.so has those of je/blocks.c instead. */
#include "api/sized.h"

#include "api/names.h"

API_EXPORT void sdallocx(void *block, size_t size, int flags)
{
    sized_free(INTERPOSED_SDALLOCX, block, size, sized_flags_alignment(flags), "sdallocx");
}

API_EXPORT size_t nallocx(size_t size, int flags)
{
    return sized_with_flags(size, flags);
}

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
