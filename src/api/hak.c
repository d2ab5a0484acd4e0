/* The hak_* names of the public header. */
#include "hakmem/hakmem.h"

#include "api/contracts.h"
#include "base/version.h"
#include "front/cohort.h"
#include "front/fast.h"
#include "front/front.h"
#include "front/pressure.h"
#include "os/cycles.h"

_Static_assert(BASE_VERSION_MAJOR == HAK_VERSION_MAJOR && BASE_VERSION_MINOR == HAK_VERSION_MINOR &&
                   BASE_VERSION_PATCH == HAK_VERSION_PATCH,
               "base/version.h and the public header tell one version");

/* hak_heap_t, which is never defined, is the program's view of struct heap. */
static struct heap *inner(hak_heap_t *heap)
{
    return (struct heap *)heap;
}

static hak_heap_t *outer(struct heap *heap)
{
    return (hak_heap_t *)heap;
}

const char *hak_version(void)
{
    return BASE_VERSION_STRING;
}

/* ---- Blocks ---- */

void *hak_malloc(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_malloc(size));
}

static void hak_free_slow(void *block)
{
    front_free_named(block, "hak_free");
}

void hak_free(void *block)
{
    CYCLES_CALL(CYCLES_FREE_HIT, front_free_or(block, hak_free_slow); return);
}

void *hak_calloc(size_t count, size_t size)
{
    return contract_calloc(count, size);
}

void *hak_realloc(void *block, size_t size)
{
    return contract_realloc(block, size, "hak_realloc");
}

void *hak_reallocarray(void *block, size_t count, size_t size)
{
    return contract_reallocarray(block, count, size);
}

void *hak_aligned_alloc(size_t alignment, size_t size)
{
    return contract_aligned_alloc(alignment, size);
}

int hak_posix_memalign(void **block, size_t alignment, size_t size)
{
    return contract_posix_memalign(block, alignment, size);
}

size_t hak_usable_size(const void *block)
{
    return front_usable_size(block, "hak_usable_size");
}

size_t hak_good_size(size_t size)
{
    return front_good_size(size);
}

void hak_free_sized(void *block, size_t size)
{
    contract_free_sized(block, size, 1, "hak_free_sized");
}

void hak_free_aligned_sized(void *block, size_t alignment, size_t size)
{
    contract_free_sized(block, size, alignment, "hak_free_aligned_sized");
}

/* For alloc_as_malloc: only sampled calls record the site, and they miss the fast path. */
static void *miss(size_t size)
{
    (void)size;
    return NULL;
}

HAK_INLINE void *alloc_as_malloc(size_t size, const void *site)
{
    void *block = front_malloc_or(size, miss, miss);
    return HAK_LIKELY(block != NULL) ? block : front_malloc_at(size, site);
}

static HAK_NOINLINE void *alloc_by_cohort(size_t size, const void *site, uint32_t key)
{
    void *block = front_malloc_cohort(size, key, site);
    return block ? block : alloc_as_malloc(size, site);
}

/* `caller`: its cohort. `site`: as the profile is to show it. */
HAK_INLINE void *alloc_for(const void *caller, size_t size, const void *site)
{
    uint32_t key = cohort_key(caller);

    if (!HAK_SECURE && HAK_UNLIKELY(cohort_calls(key)))
        return alloc_by_cohort(size, site, key);
    return alloc_as_malloc(size, site);
}

static HAK_NOINLINE void *alloc_for_caller(const void *caller, size_t size) { return alloc_for(caller, size, NULL); }

void *hak_alloc_at(size_t size, const void *site)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return HAK_LIKELY(site != NULL)
                                              ? alloc_for(site, size, site)
                                              : alloc_for_caller(__builtin_return_address(0), size));
}

size_t hak_expand(void *block, size_t size)
{
    if (block == NULL)
        return 0;
    CYCLES_CALL(CYCLES_REALLOC_STAY, return front_expand(block, size));
}

size_t hak_malloc_batch(size_t size, size_t count, void **blocks)
{
    CYCLES_CALL(CYCLES_MALLOC_BATCH, count = front_malloc_batch(size, count, blocks);
                CYCLES_CALL_IS(CYCLES_MALLOC_BATCH); return count);
}

void hak_free_batch(void *const *blocks, size_t count)
{
    CYCLES_CALL(CYCLES_FREE_BATCH, front_free_batch(blocks, count); CYCLES_CALL_IS(CYCLES_FREE_BATCH); return);
}

/* ---- Giving memory back ---- */

size_t hak_collect(bool purge)
{
    return front_collect(purge);
}

void hak_thread_idle(void)
{
    front_thread_idle();
}

hak_pressure_handler hak_set_pressure_handler(hak_pressure_handler handler)
{
    return pressure_set_handler(handler);
}

/* ---- First-class heaps ---- */

static void *heap_allocate(hak_heap_t *heap, size_t alignment, size_t size, bool zero)
{
    CYCLES_CALL(CYCLES_HEAP_MALLOC, void *block = front_heap_aligned_alloc(inner(heap), alignment, size, zero);
                CYCLES_CALL_IS(CYCLES_HEAP_MALLOC); return block);
}

hak_heap_t *hak_heap_new(void)
{
    return outer(front_heap_new());
}

void *hak_heap_malloc(hak_heap_t *heap, size_t size)
{
    return heap_allocate(heap, BLOCK_ALIGN, size, false);
}

void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size)
{
    size_t total;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &total))) {
        errno = ENOMEM;
        return NULL;
    }
    return heap_allocate(heap, BLOCK_ALIGN, total, true);
}

void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return heap_allocate(heap, alignment, size, false);
}

void *hak_heap_realloc(hak_heap_t *heap, void *block, size_t size)
{
    if (block == NULL)
        return heap_allocate(heap, BLOCK_ALIGN, size, false);
    CYCLES_CALL(contract_realloc_kind(block, size), uintptr_t before = (uintptr_t)block;
                block = front_heap_realloc(inner(heap), block, size); contract_realloc_done(before, block, size);
                return block);
}

hak_heap_t *hak_heap_of(const void *block)
{
    struct heap *heap = block == NULL ? NULL : front_heap_of(block);

    return heap && heap->scope == NULL ? outer(heap) : NULL;
}

void hak_heap_destroy(hak_heap_t *heap)
{
    if (heap != NULL)
        front_heap_destroy(inner(heap));
}
