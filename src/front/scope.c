#include "front/scope.h"

#include <errno.h>

#include "front/direct.h"
#include "front/front.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/sample.h"
#include "front/sealed.h"
#include "front/thread.h"
#include "harden/large.h"
#include "os/foreign.h"
#include "pool/huge.h"
#include "superslab/window.h"

/* Bytes that a block of that size and alignment will have, with its seal. 0: there can be none. */
static size_t charge_for(size_t alignment, size_t size)
{
    if (!HAK_SECURE)
        return direct_size(alignment, size);
    if (size > REQUEST_MAX - UNIT_SIZE || alignment > REQUEST_MAX / 2)
        return 0;
    return sealed_is_pooled(alignment, size) ? direct_size(alignment, size + SEAL_BYTES)
                                             : huge_size_for(large_mapping(size));
}

/* Bytes of a block that was just allocated. */
static size_t fresh_bytes(const void *block)
{
    if (window_contains(block))
        return class_size(slab_of(block)->class);
    return HAK_SECURE ? huge_size(block, NULL) : front_block_size(block);
}

/* A block of the heap, charged to its scope, if it has one. */
static void *allocate_charged(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    struct scope *scope = heap->scope;
    size_t charged, bytes;
    void *block;

    if (scope == NULL)
        return front_heap_allocate(heap, alignment, size, zero);
    charged = charge_for(alignment, size);
    if (charged == 0 || !scope_charge(scope, charged, false))
        return out_of_memory();
    block = front_heap_allocate(heap, alignment, size, zero);
    bytes = block ? fresh_bytes(block) : 0;
    /* A guarded block is smaller, and a block that was mapped because the window is full may be larger. */
    if (HAK_UNLIKELY(bytes > charged))
        (void)scope_charge(scope, bytes - charged, true);
    else
        scope_discharge(scope, charged - bytes);
    if (block)
        scope_note_live(scope);
    return block;
}

void *scope_allocate_in(struct heap *heap, size_t size)
{
    bool zero;
    return allocate_charged(heap, BLOCK_ALIGN, size, &zero);
}

static HAK_NOINLINE void tell(struct scope *scope)
{
    int saved_errno = errno;

    for (; scope; scope = scope->parent) {
        uint8_t due = SCOPE_DUE, told = SCOPE_TOLD;
        if (atomic_load_explicit(&scope->soft_is, memory_order_relaxed) != SCOPE_DUE ||
            !atomic_compare_exchange_strong(&scope->soft_is, &due, SCOPE_TELLING))
            continue;
        foreign_point();
        scope->over(scope, atomic_load(&scope->live), scope->argument);
        foreign_point();
        /* First TOLD, then the bytes: a thread that takes bytes off first looks at the bytes, then at what it is. */
        atomic_store(&scope->soft_is, told);
        if (atomic_load(&scope->live) <= atomic_load(&scope->soft))
            atomic_compare_exchange_strong(&scope->soft_is, &told, SCOPE_BELOW);
    }
    errno = saved_errno;
}

/* Whether a soft cap of the scope or one above it was passed. */
static bool is_over(const struct scope *scope)
{
    for (; scope; scope = scope->parent)
        if (HAK_UNLIKELY(atomic_load_explicit(&scope->soft_is, memory_order_relaxed) == SCOPE_DUE))
            return true;
    return false;
}

void scope_tell(void)
{
    struct scope *scope = cache_scope();

    if (HAK_UNLIKELY(is_over(scope)))
        tell(scope);
}

void *scope_allocate(size_t alignment, size_t size, bool *zero)
{
    void *block = allocate_charged(hak_cache_scope->scope->heap, alignment, size, zero);

    scope_tell();
    return block;
}

void *scope_huge_resize(struct heap *heap, void *address, size_t size, bool may_move)
{
    struct scope *scope = heap ? heap->scope : NULL;
    size_t old, bytes, growth;
    void *resized;

    if (scope == NULL)
        return sample_huge_resize(address, size, may_move);
    old = huge_size(address, NULL);
    bytes = huge_size_for(size);
    growth = bytes > old ? bytes - old : 0;
    if (growth && !scope_charge(scope, growth, false))
        return NULL;
    resized = sample_huge_resize(address, size, may_move);
    if (resized == NULL)
        scope_discharge(scope, growth);
    else if (bytes < old)
        scope_discharge(scope, old - bytes);
    else
        scope_note_live(scope);
    return resized;
}

/* ---- Life ---- */

struct scope *front_scope_new(const char *name, struct scope *parent, size_t cap)
{
    struct scope *scope = process_init() ? scope_new(name, parent, cap) : NULL;

    return scope ? scope : out_of_memory();
}

int front_scope_enter(struct scope *scope)
{
    /* A cache makes the thread's end known, which leaves the scope. */
    if (cache_own_offset() == WINDOW_RETIRED_CACHE)
        return ENOTSUP;
    if (cache_scope() == NULL && thread_cache_own() == NULL)
        return ENOMEM;
    return within_enter(scope);
}

int front_scope_destroy(struct scope *scope, bool free_blocks)
{
    if (!scope_is_free(scope))
        return EBUSY;
    if (free_blocks) {
        front_heap_reset(scope->heap);
        scope_discharge(scope, atomic_load(&scope->own));
    }
    scope_close(scope);
    housekeep_exit();
    return 0;
}
