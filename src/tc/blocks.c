/* The standard names with tc_ before them. */
#include <stdlib.h>

#include <hakmem/gperftools.h>

#include "api/names.h"
#include "api/sized.h"
#include "base/version.h"
#include "front/fast.h"
#include "os/os.h"

/* The version of the interface. `patch` names HAKMEM. */
API_EXPORT const char *tc_version(int *major, int *minor, const char **patch)
{
    if (major)
        *major = 2;
    if (minor)
        *minor = 10;
    if (patch)
        *patch = " (HAKMEM " BASE_VERSION_STRING ")";
    return "gperftools 2.10 (HAKMEM " BASE_VERSION_STRING ")";
}

API_EXPORT void *tc_malloc(size_t size) { return front_malloc(size); }

API_EXPORT void *tc_malloc_skip_new_handler(size_t size) { return front_malloc(size); }

API_EXPORT void tc_free(void *block) { front_free(block); }

API_EXPORT void tc_cfree(void *block) { front_free(block); }

API_EXPORT void tc_free_sized(void *block, size_t size) { contract_free_sized(block, size, 1, "tc_free_sized"); }

API_EXPORT void *tc_realloc(void *block, size_t size) { return contract_realloc(block, size, "tc_realloc"); }

API_EXPORT void *tc_calloc(size_t count, size_t size) { return contract_calloc(count, size); }

API_EXPORT void *tc_memalign(size_t alignment, size_t size) { return contract_aligned_alloc(alignment, size); }

API_EXPORT int tc_posix_memalign(void **block, size_t alignment, size_t size)
{
    return contract_posix_memalign(block, alignment, size);
}

API_EXPORT void *tc_valloc(size_t size) { return contract_aligned(os_page_size(), size); }

API_EXPORT void *tc_pvalloc(size_t size)
{
    size_t page = os_page_size();

    return contract_aligned(page, size > REQUEST_MAX ? size : base_align_up(size, page));
}

API_EXPORT size_t tc_malloc_size(void *block) { return front_usable_size(block, "tc_malloc_size"); }

API_EXPORT size_t tc_nallocx(size_t size, int flags) { return sized_with_flags(size, flags); }
