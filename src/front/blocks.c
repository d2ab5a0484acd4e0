/* Every operation on blocks but the fast paths of malloc and free. */
#include <errno.h>
#include <string.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/thread.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/misuse.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

static void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* One block of the class for a thread without a cache. */
static void *house_allocate(unsigned class, bool *zero)
{
    void *block = NULL;

    if (!front_process_init())
        return NULL;
    lock_acquire(&registry.house->lock);
    heap_take_blocks(registry.house, class, &block, 1, zero);
    lock_release(&registry.house->lock);
    return block;
}

static void *pooled_try(unsigned class, bool *zero)
{
    struct thread_cache *cache = thread_cache_get();

    if (HAK_UNLIKELY(cache == NULL))
        return house_allocate(class, zero);
    *zero = false;
    if (cache_count(cache, class)) {
        struct bin *bin = &cache->bins[class];
        bin_set_top(bin, bin->top - 1u);
        return cache->slots[bin->top + 1];
    }
    return cache_refill(cache, class, zero);
}

/* A block of a class, with all that can be done when memory is short. *zero: it reads as zero. */
static void *pooled_allocate(unsigned class, bool *zero)
{
    void *block = pooled_try(class, zero);

    if (HAK_LIKELY(block != NULL))
        return block;
    if (atomic_load_explicit(&shared_pool.over_soft_limit, memory_order_relaxed) || hak_options.memory_limit)
        thread_purge(true);
    block = pooled_try(class, zero);
    /* The window is full, or its next pages can't be committed: a mapping of its own may still be had, aligned as S2 has it. */
    if (block == NULL && hak_options.memory_limit == 0)
        block = huge_allocate(class_size(class), base_min(class_size(class) & -class_size(class), UNIT_SIZE), zero, NULL);
    return block;
}

static void *allocate(size_t size, bool *zero)
{
    void *block;

    if (HAK_LIKELY(size <= POOLED_MAX)) {
        block = pooled_allocate(class_of_size(size), zero);
    } else {
        if (size > REQUEST_MAX || !front_process_init())
            return out_of_memory();
        thread_tick();
        block = huge_allocate(size, BLOCK_ALIGN, zero, NULL);
    }
    return HAK_LIKELY(block != NULL) ? block : out_of_memory();
}

void *front_malloc_slow(size_t size)
{
    bool zero;
    return allocate(size, &zero);
}

void *front_malloc_medium(size_t size)
{
    struct thread_cache *cache = cache_current();
    unsigned class;
    void *block;

    if (HAK_UNLIKELY(size > POOLED_MAX))
        return front_malloc_slow(size);
    class = class_of_size(size);
    block = cache->slots[cache->bins[class].top];
    if (HAK_UNLIKELY(block == NULL))
        return front_malloc_slow(size);
    cache_move_top(cache, class, -1);
    return block;
}

/* ---- What an address is ---- */

struct block {
    size_t size;       /* usable bytes; 0: no block, and reported */
    struct slab *slab; /* NULL: huge */
    struct heap *heap; /* its first-class heap, or NULL */
};

static struct slab *active_slab(const void *address)
{
    uint32_t number = window_slot_of(address);
    struct slab *slab;

    if (number < window_slots_begin() || shared_pool.slots[number].kind != SLOT_SUPERSLAB ||
        ((uintptr_t)address & (SUPERSLAB_SIZE - 1)) < UNIT_SIZE)
        return NULL;
    slab = slab_of(address);
    return atomic_load_explicit(&slab->state, memory_order_acquire) == SLAB_ACTIVE ? slab : NULL;
}

/* Finds the live block that starts at the address, as far as can be seen: one in a thread's cache looks alive. */
static struct block block_find(const void *address, const char *function)
{
    struct block block = { 0, NULL, NULL };

    if (window_contains(address)) {
        struct slab *slab = active_slab(address);
        unsigned index;
        if (slab && slab_block_index(slab, address, &index) && !slab_block_is_free(slab, index)) {
            struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_relaxed);
            block.size = class_size(slab->class);
            block.slab = slab;
            block.heap = owner && owner->kind == HEAP_FIRST_CLASS ? owner : NULL;
        }
    } else {
        block.size = huge_size(address, &block.heap);
    }
    if (HAK_UNLIKELY(block.size == 0))
        misuse_report(function, address, misuse_of(address));
    return block;
}

/* ---- Freeing ---- */

static void house_free(unsigned class, void *block, const char *function)
{
    size_t remote;

    if (!front_process_init())
        return;
    lock_acquire(&registry.house->lock);
    remote = heap_return_blocks(registry.house, class, &block, 1, function);
    lock_release(&registry.house->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, function);
}

static void pooled_free(unsigned class, void *block, const char *function)
{
    struct thread_cache *cache = thread_cache_get();
    struct bin *bin;

    if (HAK_UNLIKELY(cache == NULL)) {
        house_free(class, block, function);
        return;
    }
    bin = &cache->bins[class];
    if (bin->top != size_classes[class].slot_base && cache->slots[bin->top] == block)
        misuse_report(function, block, MISUSE_FREED);
    else if (bin->top == bin->limit)
        cache_overflow(cache, class, block);
    else {
        cache->slots[bin->top + 1] = block;
        bin_set_top(bin, bin->top + 1u);
    }
}

void front_free_named(void *block, const char *function)
{
    unsigned class;

    if (block == NULL)
        return;
    if (!window_contains(block)) {
        if (HAK_UNLIKELY(!huge_free(block)))
            misuse_report(function, block, misuse_of(block));
        thread_tick();
        return;
    }
    if (CHECK_EVERY_FREE && block_find(block, function).size == 0)
        return;
    class = window_page_map()[window_unit(block)];
    if (HAK_LIKELY(class != CLASS_NONE))
        pooled_free(class, block, function);
    else if (active_slab(block))
        remote_free_locked(block, function);
    else
        misuse_report(function, block, misuse_of(block));
}

void front_free_slow(void *block) { front_free_named(block, "free"); }

/* Whether a block of `old` usable bytes should stay where it is for `size` bytes: it fits, and not much of it is wasted. */
static bool realloc_stays(size_t old, size_t size)
{
    return size <= old && (size >= old / 2 || old <= 64);
}

void front_free_sized(void *address, size_t size, size_t alignment, const char *function)
{
    struct block block;

    if (address == NULL)
        return;
    block = block_find(address, function);
    if (block.size == 0)
        return;
    /* A block may be larger than its size asks for: it was aligned, or realloc let it stay. It is never smaller. */
    if (size > block.size || ((uintptr_t)address & (alignment - 1)) != 0 ||
        (alignment == 1 && !realloc_stays(block.size, size) &&
         (block.slab ? class_size(class_of_size(size)) < block.size : block.size > 2 * POOLED_MAX))) {
        misuse_report(function, address, MISUSE_SIZE);
        return;
    }
    front_free(address);
}

/* ---- Sizes ---- */

size_t front_usable_size(const void *block, const char *function)
{
    return block ? block_find(block, function).size : 0;
}

size_t front_good_size(size_t size)
{
    if (size <= POOLED_MAX)
        return class_size(class_of_size(size));
    return size > REQUEST_MAX - UNIT_SIZE ? size : base_align_up(size, UNIT_SIZE);
}

size_t front_expand(void *address, size_t size)
{
    struct block block;

    if (address == NULL)
        return 0;
    block = block_find(address, "hak_expand");
    if (size <= block.size)
        return block.size;
    if (block.size == 0 || block.slab || !huge_resize(address, size, false))
        return 0;
    return huge_size(address, NULL);
}

/* ---- calloc, aligned, realloc ---- */

void *front_calloc(size_t count, size_t size)
{
    size_t bytes;
    bool zero;
    void *block;

    if (HAK_UNLIKELY(__builtin_mul_overflow(count, size, &bytes)))
        return out_of_memory();
    if (HAK_LIKELY(bytes <= FAST_MAX)) {
        block = front_malloc(bytes);
        return block ? memset(block, 0, bytes) : NULL;
    }
    block = allocate(bytes, &zero);
    if (block && !zero)
        memset(block, 0, bytes);
    return block;
}

/* The class whose blocks are aligned so and hold size bytes (S2); CLASS_NONE if only a span at a chosen place or a mapping can be. */
static unsigned class_of_aligned(size_t alignment, size_t size)
{
    unsigned class;

    if (size > POOLED_MAX || alignment > UNIT_SIZE)
        return CLASS_NONE;
    class = class_of_size(base_max(size, alignment));
    while (class_size(class) & (alignment - 1))
        class++;
    return class;
}

static void *aligned_in_heap(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    unsigned class;
    void *block = NULL;

    if (size > POOLED_MAX || alignment > POOLED_MAX)
        return huge_allocate(size, alignment, zero, heap->kind == HEAP_FIRST_CLASS ? heap : NULL);
    class = class_of_aligned(alignment, size);
    lock_acquire(&heap->lock);
    if (class != CLASS_NONE)
        heap_take_blocks(heap, class, &block, 1, zero);
    else
        block = heap_take_aligned_span(heap, class_of_size(base_max(size, UNIT_SIZE)), (unsigned)(alignment >> UNIT_SHIFT), zero);
    lock_release(&heap->lock);
    return block;
}

void *front_aligned_alloc(size_t alignment, size_t size)
{
    struct thread_cache *cache;
    unsigned class;
    void *block;
    bool zero;

    if (alignment <= BLOCK_ALIGN)
        return front_malloc(size);
    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2)
        return out_of_memory();
    class = class_of_aligned(alignment, size);
    if (class != CLASS_NONE)
        return front_malloc(class_size(class));
    cache = thread_cache_get();
    if (!cache && !front_process_init())
        return out_of_memory();
    thread_tick();
    block = aligned_in_heap(cache ? cache->heap : registry.house, alignment, size, &zero);
    return block ? block : out_of_memory();
}

static void *move_block(void *old, size_t old_size, void *fresh, size_t size)
{
    if (!fresh)
        return NULL;
    memcpy(fresh, old, base_min(old_size, size));
    front_free(old);
    return fresh;
}

static void *realloc_in(struct heap *heap, void *address, size_t size, const char *function)
{
    struct block block = block_find(address, function);

    if (block.size == 0)
        return NULL;
    if (size > REQUEST_MAX)
        return out_of_memory();
    if (realloc_stays(block.size, size))
        return address;
    if (heap == NULL)
        heap = block.heap;
    if (block.slab == NULL && size > POOLED_MAX && block.heap == heap) {
        void *resized = huge_resize(address, size, true);
        if (resized)
            return resized;
    }
    return move_block(address, block.size, heap ? front_heap_aligned_alloc(heap, BLOCK_ALIGN, size, false) : front_malloc(size),
                      size);
}

void *front_realloc(void *block, size_t size, const char *function)
{
    if (block == NULL)
        return front_malloc(size);
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(NULL, block, size, function);
}

/* ---- Batches ---- */

size_t front_malloc_batch(size_t size, size_t count, void **blocks)
{
    struct thread_cache *cache = thread_cache_get();
    size_t got = 0;

    if (cache && size <= POOLED_MAX && !class_is_span(class_of_size(size))) {
        unsigned class = class_of_size(size);
        bool zero;
        while (got < count) {
            size_t taken;
            lock_acquire(&cache->heap->lock);
            taken = heap_take_blocks(cache->heap, class, blocks + got, base_min(count - got, 256), &zero);
            lock_release(&cache->heap->lock);
            if (taken == 0)
                break;
            got += taken;
        }
        thread_tick();
    }
    for (; got < count; got++) {
        blocks[got] = front_malloc(size);
        if (!blocks[got])
            break;
    }
    return got;
}

void front_free_batch(void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        front_free(blocks[i]);
}

/* ---- Giving back ---- */

size_t front_collect(bool purge)
{
    struct thread_cache *cache = cache_current();

    if (!front_process_init())
        return 0;
    if (cache->heap) {
        cache_flush_all(cache, true);
        lock_acquire(&cache->heap->lock);
        remote_drain(cache->heap);
        if (purge)
            heap_release_warm(cache->heap);
        lock_release(&cache->heap->lock);
    }
    return purge ? thread_purge(true) : 0;
}

void front_thread_idle(void)
{
    thread_release();
    thread_tick();
}

/* ---- First-class heaps ---- */

struct heap *front_heap_new(void)
{
    struct heap *heap = front_process_init() ? registry_new_first_class() : NULL;

    return heap ? heap : out_of_memory();
}

void *front_heap_aligned_alloc(struct heap *heap, size_t alignment, size_t size, bool zeroed)
{
    bool zero = false;
    void *block;

    if (size > REQUEST_MAX || alignment > REQUEST_MAX / 2)
        return out_of_memory();
    thread_tick();
    block = aligned_in_heap(heap, base_max(alignment, BLOCK_ALIGN), size, &zero);
    if (!block)
        return out_of_memory();
    if (zeroed && !zero)
        memset(block, 0, size);
    return block;
}

void *front_heap_realloc(struct heap *heap, void *block, size_t size)
{
    if (block == NULL)
        return front_heap_aligned_alloc(heap, BLOCK_ALIGN, size, false);
    if (size == 0) {
        front_free(block);
        return NULL;
    }
    return realloc_in(heap, block, size, "hak_heap_realloc");
}

struct heap *front_heap_of(const void *block) { return block ? block_find(block, "hak_heap_of").heap : NULL; }

void front_heap_destroy(struct heap *heap)
{
    if (heap == NULL)
        return;
    huge_free_heap(heap);
    lock_acquire(&heap->lock);
    heap_release_all(heap);
    lock_release(&heap->lock);
    registry_drop_first_class(heap);
}
