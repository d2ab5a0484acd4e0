/* gperftools' MallocExtension in C, with HAKMEM's figures. */
#include <string.h>

#include <hakmem/gperftools.h>
#include <hakmem/stats.h>

#include "api/names.h"
#include "front/front.h"
#include "front/process.h"
#include "front/thread_cache.h"
#include "observe/usage.h"
#include "options/options.h"
#include "os/os.h"

/* ---- Blocks ---- */

/* Only counts all blocks: HAKMEM reports damage when a call meets it. */
API_EXPORT int MallocExtension_VerifyAllMemory(void)
{
    struct usage usage;

    observe_usage(&usage);
    return 1;
}

API_EXPORT int MallocExtension_VerifyMallocMemory(const void *block) { return front_block_size(block) != 0; }

API_EXPORT int MallocExtension_VerifyNewMemory(const void *block) { return front_block_size(block) != 0; }

API_EXPORT int MallocExtension_VerifyArrayNewMemory(const void *block) { return front_block_size(block) != 0; }

API_EXPORT size_t MallocExtension_GetEstimatedAllocatedSize(size_t size) { return front_good_size(size); }

API_EXPORT size_t MallocExtension_GetAllocatedSize(const void *block)
{
    return front_usable_size(block, "MallocExtension_GetAllocatedSize");
}

API_EXPORT MallocExtension_Ownership MallocExtension_GetOwnership(const void *block)
{
    return front_block_size(block) ? MallocExtension_kOwned : MallocExtension_kNotOwned;
}

/* ---- Threads ---- */

API_EXPORT void MallocExtension_MarkThreadIdle(void) { front_thread_idle(); }

API_EXPORT void MallocExtension_MarkThreadTemporarilyIdle(void) { (void)front_collect(false); }

/* The thread's next call gives it a cache again. */
API_EXPORT void MallocExtension_MarkThreadBusy(void) {}

API_EXPORT size_t MallocExtension_GetThreadCacheSize(void)
{
    const struct thread_cache *cache = cache_own();
    size_t bytes = 0;

    for (unsigned class = 1; cache->heap && class < CLASS_COUNT; class++)
        bytes += cache_blocks(cache, class) * class_size(class);
    return bytes;
}

/* ---- Giving back ---- */

API_EXPORT void MallocExtension_ReleaseFreeMemory(void) { (void)front_collect(true); }

API_EXPORT void MallocExtension_ReleaseToSystem(size_t bytes)
{
    if (bytes)
        (void)front_collect(true);
}

static struct {
    _Atomic bool set; /* Order: any; one thread keeps the delay */
    _Atomic uint64_t start_delay; /* milliseconds. Order: any */
    double rate;
} release = { .rate = 1 };

#define DELAY_MOST UINT64_C(3600000)

API_EXPORT void MallocExtension_SetMemoryReleaseRate(double rate)
{
    double delay;

    if (!process_init())
        return;
    if (!atomic_exchange(&release.set, true))
        release.start_delay = hak_options.purge_delay;
    __atomic_store(&release.rate, &rate, __ATOMIC_RELAXED);
    delay = rate > 0 ? (double)release.start_delay / rate : (double)DELAY_MOST;
    __atomic_store_n(&hak_options.purge_delay, delay < (double)DELAY_MOST ? (uint64_t)delay : DELAY_MOST,
                     __ATOMIC_RELAXED);
}

API_EXPORT double MallocExtension_GetMemoryReleaseRate(void)
{
    double rate;

    __atomic_load(&release.rate, &rate, __ATOMIC_RELAXED);
    return rate;
}

/* ---- Figures ---- */

struct text {
    char *buffer;
    size_t room;
};

static int write_text(void *argument, const char *text, size_t length)
{
    struct text *out = argument;
    size_t part = base_min(length, out->room);

    memcpy(out->buffer, text, part);
    out->buffer += part;
    out->room -= part;
    return 0;
}

API_EXPORT void MallocExtension_GetStats(char *buffer, int length)
{
    struct text out = { buffer, (size_t)length - 1 };

    if (length <= 0)
        return;
    hak_stats_print(HAK_STATS_TEXT, write_text, &out);
    *out.buffer = '\0';
}

API_EXPORT int MallocExtension_MallocMemoryStats(int *blocks, size_t *total,
                                                 int histogram[kMallocExtensionHistogramSize])
{
    struct usage_class rows[CLASS_COUNT];
    struct usage usage;
    size_t classes;

    observe_usage(&usage);
    classes = observe_usage_classes(rows, CLASS_COUNT);
    memset(histogram, 0, kMallocExtensionHistogramSize * sizeof *histogram);
    *blocks = (int)usage.huge_blocks;
    *total = usage.live;
    for (size_t i = 0; i < classes; i++) {
        *blocks += (int)rows[i].live_blocks;
        histogram[base_high_bit(rows[i].block_size)] += (int)rows[i].live_blocks;
    }
    if (usage.huge_blocks)
        histogram[base_high_bit(usage.huge_live / usage.huge_blocks)] += (int)usage.huge_blocks;
    return 1;
}

/* ---- Properties ---- */

enum property {
    PROPERTY_LIVE,
    PROPERTY_HEAP,
    PROPERTY_PHYSICAL,
    PROPERTY_CACHED,
    PROPERTY_IN_SLABS,
    PROPERTY_FREE,
    PROPERTY_PURGED,
    PROPERTY_CACHE_MOST,
    PROPERTY_LIMIT,
    PROPERTY_SAMPLE,
    PROPERTY_NONE, /* always 0 */
};

static const struct {
    const char *name;
    enum property property;
} properties[] = {
    { "generic.current_allocated_bytes", PROPERTY_LIVE },
    { "generic.heap_size", PROPERTY_HEAP },
    { "generic.total_physical_bytes", PROPERTY_PHYSICAL },
    { "tcmalloc.current_total_thread_cache_bytes", PROPERTY_CACHED },
    { "tcmalloc.thread_cache_free_bytes", PROPERTY_CACHED },
    { "tcmalloc.central_cache_free_bytes", PROPERTY_IN_SLABS },
    { "tcmalloc.transfer_cache_free_bytes", PROPERTY_NONE },
    { "tcmalloc.pageheap_free_bytes", PROPERTY_FREE },
    { "tcmalloc.slack_bytes", PROPERTY_FREE },
    { "tcmalloc.pageheap_unmapped_bytes", PROPERTY_PURGED },
    { "tcmalloc.pageheap_committed_bytes", PROPERTY_PHYSICAL },
    { "tcmalloc.max_total_thread_cache_bytes", PROPERTY_CACHE_MOST },
    { "tcmalloc.heap_limit_mb", PROPERTY_LIMIT },
    { "tcmalloc.sampling_period_bytes", PROPERTY_SAMPLE },
    { "tcmalloc.aggressive_memory_decommit", PROPERTY_NONE },
};

static size_t property_of(enum property property, const struct usage *usage)
{
    size_t dirty = usage->retained - base_min(usage->retained, usage->purged);

    switch (property) {
    case PROPERTY_LIVE:
        return usage->live;
    case PROPERTY_HEAP:
        return usage->mapped;
    case PROPERTY_PHYSICAL:
        return usage->mapped - base_min(usage->mapped, usage->purged);
    case PROPERTY_CACHED:
        return usage->cached;
    case PROPERTY_IN_SLABS:
        return usage->free_in_slab;
    case PROPERTY_FREE:
        return dirty;
    case PROPERTY_PURGED:
        return usage->purged;
    case PROPERTY_CACHE_MOST:
        return hak_options.cache_bytes;
    case PROPERTY_LIMIT:
        return usage->limit_hard / HAK_MIB;
    case PROPERTY_SAMPLE:
        return hak_options.heap_profile ? hak_options.heap_profile_rate : 0;
    default:
        return 0;
    }
}

API_EXPORT int MallocExtension_GetNumericProperty(const char *name, size_t *value)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (strcmp(properties[i].name, name) == 0) {
            struct usage usage;
            observe_usage(&usage);
            *value = property_of(properties[i].property, &usage);
            return 1;
        }
    return 0;
}

/* No property can be set while a program runs. */
API_EXPORT int MallocExtension_SetNumericProperty(const char *name, size_t value)
{
    (void)name;
    (void)value;
    return 0;
}
