/* The names of hakmem/scope.h. */
#include "hakmem/scope.h"

#include <errno.h>

#include "api/rows.h"
#include "front/block.h"
#include "front/front.h"
#include "front/scope.h"
#include "observe/scopes.h"

/* hak_scope_t, which is never defined, is the program's view of struct scope. */
static struct scope *scope_inner(hak_scope_t *scope) { return (struct scope *)scope; }
static hak_scope_t *scope_outer(struct scope *scope) { return (hak_scope_t *)scope; }

static bool name_is_good(const char *name)
{
    size_t bytes = 0;

    for (; name && name[bytes]; bytes++)
        if (bytes == SCOPE_NAME_MOST || name[bytes] < ' ' || name[bytes] > '~' || name[bytes] == '"' ||
            name[bytes] == '\\')
            return false;
    return bytes != 0;
}

hak_scope_t *hak_scope_new(const char *name, hak_scope_t *parent, size_t cap)
{
    if (!name_is_good(name)) {
        errno = EINVAL;
        return NULL;
    }
    return scope_outer(front_scope_new(name, scope_inner(parent), cap));
}

void hak_scope_set_cap(hak_scope_t *scope, size_t cap)
{
    atomic_store_explicit(&scope_inner(scope)->cap, cap, memory_order_relaxed);
}

void hak_scope_on_soft(hak_scope_t *scope, size_t soft, hak_scope_over over, void *argument)
{
    union {
        hak_scope_over outer;
        scope_over inner;
    } function = { over };

    scope_inner(scope)->over = function.inner;
    scope_inner(scope)->argument = argument;
    atomic_store(&scope_inner(scope)->soft_is, SCOPE_BELOW);
    atomic_store(&scope_inner(scope)->soft, over ? soft : 0);
}

int hak_scope_enter(hak_scope_t *scope) { return front_scope_enter(scope_inner(scope)); }

void hak_scope_leave(hak_scope_t *scope) { (void)within_leave(scope_inner(scope)); }

hak_scope_t *hak_scope_current(void) { return scope_outer(cache_scope()); }

hak_scope_t *hak_scope_of(const void *block)
{
    struct heap *heap = front_heap_of(block);
    struct scope *scope = heap ? heap->scope : NULL;

    return scope && atomic_load(&scope->state) == SCOPE_OPEN ? scope_outer(scope) : NULL;
}

int hak_scope_destroy(hak_scope_t *scope, enum hak_scope_blocks blocks)
{
    if (blocks != HAK_SCOPE_FREE && blocks != HAK_SCOPE_KEEP)
        return EINVAL;
    return scope ? front_scope_destroy(scope_inner(scope), blocks == HAK_SCOPE_FREE) : 0;
}

size_t hak_scope_get(hak_scope_t *scope, struct hak_scope_stats *stats, size_t size)
{
    struct hak_scope_stats row;

    if (!row_size_is_good(stats ? size : 0))
        return 0;
    if (!scopes_row(&row, scope_inner(scope))) {
        errno = ENOMEM;
        return 0;
    }
    row_give(stats, size, &row, sizeof row);
    return base_min(size, sizeof row);
}

size_t hak_scope_list(struct hak_scope_stats *rows, size_t row_size, size_t capacity)
{
    size_t count = 0;

    if (!row_size_is_good(row_size))
        return 0;
    for (struct scope *scope = scopes_first(); scope; scope = scopes_from(scope->next), count++)
        if (count < capacity) {
            struct hak_scope_stats row;
            (void)scopes_row(&row, scope);
            row_give((char *)rows + count * row_size, row_size, &row, sizeof row);
        }
    return count;
}

size_t hak_scope_resident(hak_scope_t *scope) { return scopes_resident(scope_inner(scope)); }
