// One function for each way to allocate, whose blocks stay in use. The profile must name these functions.
#include <hakmem/hakmem.h>

#include <cstdlib>
#include <new>

#include <malloc.h>

#define SITE extern "C" __attribute__((noinline)) void

namespace {
constexpr int COUNT = 400;
void *volatile kept;
}

SITE site_malloc() { kept = malloc(2000); }
SITE site_malloc_medium() { kept = malloc(20000); }
SITE site_malloc_huge() { kept = malloc(2000000); }
SITE site_calloc() { kept = calloc(20, 100); }
SITE site_calloc_medium() { kept = calloc(20, 1000); }
SITE site_realloc() { kept = realloc(realloc(nullptr, 500), 2000); }
SITE site_reallocarray() { kept = reallocarray(nullptr, 20, 100); }
SITE site_aligned_alloc() { kept = aligned_alloc(64, 2048); }
SITE site_memalign() { kept = memalign(64, 2048); }
SITE site_valloc() { kept = valloc(2000); }
SITE site_posix_memalign()
{
    void *block;
    if (posix_memalign(&block, 256, 2000) != 0)
        abort();
    kept = block;
}
SITE site_new() { kept = operator new(2000); }
SITE site_new_array() { kept = new char[2000]; }
SITE site_new_nothrow() { kept = operator new(2000, std::nothrow); }
SITE site_new_aligned() { kept = operator new(2000, std::align_val_t(128)); }
SITE site_hak_malloc() { kept = hak_malloc(2000); }
SITE site_hak_calloc() { kept = hak_calloc(2, 1000); }
SITE site_hak_aligned_alloc() { kept = hak_aligned_alloc(64, 2000); }
SITE site_hak_alloc_at() { kept = hak_alloc_at(2000, nullptr); }
SITE site_batch()
{
    void *blocks[8];
    if (hak_malloc_batch(2000, 8, blocks) != 8)
        abort();
    kept = blocks[0];
}

SITE site_malloc_after_batch() { kept = malloc(2000); }

int main()
{
    for (int i = 0; i < COUNT; i++) {
        site_malloc(), site_malloc_medium(), site_calloc(), site_calloc_medium(), site_realloc(), site_reallocarray();
        site_aligned_alloc(), site_memalign(), site_valloc(), site_posix_memalign(), site_new(), site_new_array();
        site_new_nothrow(), site_new_aligned(), site_hak_malloc(), site_hak_calloc(), site_hak_aligned_alloc();
        site_hak_alloc_at();
        if (i % 20 == 0)
            site_malloc_huge();
    }
    for (int i = 0; i < COUNT; i++)
        site_batch();
    for (int i = 0; i < COUNT; i++)
        site_malloc_after_batch();
    return 0;
}
