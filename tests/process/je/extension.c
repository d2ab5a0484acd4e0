/* gperftools' names in C: MallocExtension and tc_*. */
#include <pthread.h>
#include <string.h>

#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>
#include <hakmem/stats.h>

#include "check.h"

static size_t property(const char *name)
{
    size_t value = 0;

    CHECK(MallocExtension_GetNumericProperty(name, &value) == 1);
    return value;
}

static void properties(void)
{
    struct hak_stats stats;
    size_t value;

    CHECK(hak_stats_get(&stats, sizeof stats) == sizeof stats);
    CHECK(property("generic.current_allocated_bytes") == stats.live && property("generic.heap_size") == stats.mapped);
    CHECK(property("generic.total_physical_bytes") == stats.mapped - stats.purged);
    CHECK(property("tcmalloc.thread_cache_free_bytes") == stats.cached &&
          property("tcmalloc.current_total_thread_cache_bytes") == stats.cached);
    CHECK(property("tcmalloc.central_cache_free_bytes") == stats.free_in_slab);
    CHECK(property("tcmalloc.pageheap_free_bytes") == stats.retained - stats.purged);
    CHECK(property("tcmalloc.pageheap_unmapped_bytes") == stats.purged);
    CHECK(property("tcmalloc.max_total_thread_cache_bytes") > 0 && property("tcmalloc.heap_limit_mb") == 0);
    CHECK(MallocExtension_GetNumericProperty("no.such", &value) == 0 &&
          MallocExtension_SetNumericProperty("no.such", 1) == 0);
}

static void gives_back(void)
{
    char *blocks[24];

    for (int i = 0; i < 24; i++) {
        blocks[i] = tc_malloc(500000);
        memset(blocks[i], 1, 500000);
    }
    for (int i = 0; i < 24; i++)
        tc_free(blocks[i]);
    CHECK(property("tcmalloc.pageheap_free_bytes") + property("tcmalloc.thread_cache_free_bytes") > 8000000);
    MallocExtension_ReleaseToSystem(1);
    MallocExtension_ReleaseFreeMemory();
    CHECK(property("tcmalloc.pageheap_free_bytes") == 0);
    CHECK(MallocExtension_GetMemoryReleaseRate() == 1);
    MallocExtension_SetMemoryReleaseRate(10);
    CHECK(MallocExtension_GetMemoryReleaseRate() == 10);
    MallocExtension_SetMemoryReleaseRate(0);
}

static void blocks(void)
{
    void *block = tc_malloc(100), *aligned;
    int count, histogram[kMallocExtensionHistogramSize], major, minor;
    size_t total;
    const char *patch;

    CHECK(MallocExtension_GetOwnership(block) == MallocExtension_kOwned &&
          MallocExtension_GetOwnership(&total) == MallocExtension_kNotOwned);
    CHECK(MallocExtension_GetAllocatedSize(block) == 112 && MallocExtension_GetEstimatedAllocatedSize(100) == 112);
    CHECK(MallocExtension_VerifyAllMemory() && MallocExtension_VerifyMallocMemory(block) &&
          MallocExtension_VerifyNewMemory(block) && MallocExtension_VerifyArrayNewMemory(block) &&
          !MallocExtension_VerifyMallocMemory(&total));
    CHECK(MallocExtension_MallocMemoryStats(&count, &total, histogram) == 1);
    CHECK(total == property("generic.current_allocated_bytes") && count >= 1 && histogram[6] >= 1);
    for (int i = 0; i < kMallocExtensionHistogramSize; i++)
        count -= histogram[i];
    CHECK(count == 0 && tc_malloc_size(block) == 112 && tc_nallocx(100, 0) == 112);
    tc_free_sized(tc_realloc(block, 1000), 1000);
    CHECK(tc_posix_memalign(&aligned, 4096, 10) == 0 && ((size_t)aligned & 4095) == 0);
    tc_cfree(aligned);
    tc_free(tc_memalign(64, 100));
    tc_free(tc_valloc(10));
    tc_free(tc_pvalloc(10));
    block = tc_calloc(10, 10);
    CHECK(*(int *)block == 0);
    tc_free(block);
    tc_free(tc_malloc_skip_new_handler(10));
    CHECK(strstr(tc_version(&major, &minor, &patch), "HAKMEM") && major == 2 && minor == 10 && strstr(patch, "HAKMEM"));
}

static void threads_and_text(void)
{
    char text[65536], small[10];

    free(malloc(500));
    CHECK(MallocExtension_GetThreadCacheSize() > 0);
    MallocExtension_MarkThreadTemporarilyIdle();
    CHECK(MallocExtension_GetThreadCacheSize() == 0);
    MallocExtension_MarkThreadIdle();
    MallocExtension_MarkThreadBusy();
    MallocExtension_GetStats(text, sizeof text);
    CHECK(strstr(text, "live") && strstr(text, "mapped"));
    MallocExtension_GetStats(small, sizeof small);
    CHECK(strlen(small) == 9 && strncmp(text, small, 5) == 0);
}

int main(void)
{
    properties();
    blocks();
    threads_and_text();
    gives_back();
    properties();
    puts("done");
    return 0;
}
