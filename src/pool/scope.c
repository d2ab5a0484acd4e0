#include "pool/scope.h"

#include "pool/registry.h"
#include "superslab/metadata.h"

HAK_DATA_HERE struct scope *_Atomic scopes;

static struct scope *unused_scopes; /* under registry.lock */
static uint64_t numbers;            /* scopes made; under registry.lock */

/* ---- Life ---- */

/* A scope in no state, with a number. */
static struct scope *take_record(void)
{
    struct scope *scope;

    lock_acquire(&registry.lock);
    scope = unused_scopes;
    if (scope)
        unused_scopes = scope->unused;
    else
        scope = metadata_allocate(sizeof *scope, _Alignof(struct scope));
    if (scope)
        scope->number = ++numbers;
    lock_release(&registry.lock);
    return scope;
}

static void give_back(struct scope *scope)
{
    lock_acquire(&registry.lock);
    scope->unused = unused_scopes;
    unused_scopes = scope;
    lock_release(&registry.lock);
}

static void set_name(struct scope *scope, const char *name)
{
    size_t bytes = 0;

    for (; bytes < SCOPE_NAME_MOST && name[bytes]; bytes++)
        scope->name[bytes] = name[bytes];
    scope->name[bytes] = '\0';
}

static void list(struct scope *scope)
{
    lock_acquire(&registry.lock);
    if (scope->heap == NULL) { /* it is new */
        scope->next = atomic_load_explicit(&scopes, memory_order_relaxed);
        atomic_store_explicit(&scopes, scope, memory_order_release);
    }
    lock_release(&registry.lock);
}

struct scope *scope_new(const char *name, struct scope *parent, size_t cap)
{
    struct scope *scope = take_record();
    struct heap *heap = scope ? registry_new_first_class() : NULL;

    if (heap == NULL) {
        if (scope)
            give_back(scope);
        return NULL;
    }
    set_name(scope, name);
    scope->parent = parent;
    atomic_store(&scope->live, 0); /* it is more in the child of a fork (O10) */
    atomic_store(&scope->soft_is, SCOPE_BELOW);
    atomic_store(&scope->cap, cap);
    atomic_store(&scope->soft, 0);
    atomic_store(&scope->peak, 0);
    atomic_store(&scope->refused, 0);
    scope->over = NULL;
    if (parent) {
        atomic_fetch_add(&parent->open, 1);
        atomic_fetch_add(&parent->scopes, 1);
    }
    list(scope);
    scope->heap = heap;
    heap->scope = scope;
    atomic_store(&scope->state, SCOPE_OPEN);
    return scope;
}

bool scope_is_free(struct scope *scope) { return atomic_load(&scope->threads) == 0 && atomic_load(&scope->open) == 0; }

/* Whether a closed scope has nothing left, and the caller is the thread that ends it. Of two threads that take its last
 * block and its last scope away, at least one sees that both are gone; the exchange chooses one. */
static bool ends(struct scope *scope)
{
    uint8_t closed = SCOPE_CLOSED;

    return atomic_load(&scope->state) == SCOPE_CLOSED && atomic_load(&scope->own) == 0 &&
           atomic_load(&scope->scopes) == 0 && atomic_compare_exchange_strong(&scope->state, &closed, SCOPE_UNUSED);
}

static void end_if_empty(struct scope *scope)
{
    while (scope && ends(scope)) {
        struct scope *parent = scope->parent;
        scope->heap->scope = NULL;
        registry_drop_first_class(scope->heap);
        give_back(scope);
        if (parent)
            atomic_fetch_sub(&parent->scopes, 1);
        scope = parent;
    }
}

void scope_close(struct scope *scope)
{
    if (scope->parent)
        atomic_fetch_sub(&scope->parent->open, 1);
    atomic_store(&scope->cap, 0);
    atomic_store(&scope->soft, 0);
    atomic_store(&scope->state, SCOPE_CLOSED);
    end_if_empty(scope);
}

void scope_reset_in_child(void)
{
    for (struct scope *scope = atomic_load(&scopes); scope; scope = scope->next) {
        atomic_store(&scope->threads, 0);
        atomic_store(&scope->soft_is, SCOPE_BELOW);
    }
}

/* ---- Bytes ---- */

/* Adds the bytes to the scope's `live` alone (O11). */
static bool charge_one(struct scope *scope, size_t bytes, bool any)
{
    size_t cap = any ? 0 : atomic_load_explicit(&scope->cap, memory_order_relaxed);
    size_t live = atomic_load_explicit(&scope->live, memory_order_relaxed);

    do {
        if (cap && (bytes > cap || live > cap - bytes)) {
            atomic_fetch_add_explicit(&scope->refused, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&scope->live, &live, live + bytes));
    return true;
}

/* Takes the bytes off `live` from the scope up to `end`, which stays as it is. */
static void discharge_up_to(struct scope *scope, const struct scope *end, size_t bytes)
{
    for (; scope != end; scope = scope->parent) {
        size_t live = atomic_fetch_sub(&scope->live, bytes) - bytes;
        uint8_t is = atomic_load(&scope->soft_is);
        if (HAK_UNLIKELY(is != SCOPE_BELOW) && is != SCOPE_TELLING && live <= atomic_load(&scope->soft))
            atomic_compare_exchange_strong(&scope->soft_is, &is, SCOPE_BELOW);
    }
}

void scope_note_live(struct scope *scope)
{
    for (; scope; scope = scope->parent) {
        size_t live = atomic_load_explicit(&scope->live, memory_order_relaxed);
        size_t soft = atomic_load_explicit(&scope->soft, memory_order_acquire);
        uint8_t below = SCOPE_BELOW;

        if (live > atomic_load_explicit(&scope->peak, memory_order_relaxed))
            atomic_store_explicit(&scope->peak, live, memory_order_relaxed);
        if (HAK_UNLIKELY(soft != 0 && live > soft))
            atomic_compare_exchange_strong(&scope->soft_is, &below, SCOPE_DUE);
    }
}

bool scope_charge(struct scope *scope, size_t bytes, bool any)
{
    for (struct scope *at = scope; at; at = at->parent)
        if (HAK_UNLIKELY(!charge_one(at, bytes, any))) {
            discharge_up_to(scope, at, bytes);
            return false;
        }
    atomic_fetch_add(&scope->own, bytes);
    return true;
}

void scope_discharge(struct scope *scope, size_t bytes)
{
    if (bytes == 0)
        return;
    discharge_up_to(scope, NULL, bytes);
    if (atomic_fetch_sub(&scope->own, bytes) == bytes)
        end_if_empty(scope);
}
