#include "observe/scopes.h"

#include "observe/usage.h"
#include "os/os.h"
#include "pool/huge.h"
#include "superslab/limits.h"

_Static_assert(HAK_SCOPE_NAME_MOST == SCOPE_NAME_MOST, "the header says what there is room for");

struct scope *scopes_from(struct scope *scope)
{
    while (scope && atomic_load(&scope->state) == SCOPE_UNUSED)
        scope = scope->next;
    return scope;
}

/* ---- Rows ---- */

static bool row_of_process(struct hak_scope_stats *row)
{
    struct usage usage;

    observe_usage(&usage);
    row->live = usage.live;
    row->held = usage.live + usage.cached + usage.free_in_slab;
    row->peak = usage.footprint_peak;
    row->cap = limits_hard();
    row->soft = limits_soft();
    __builtin_memcpy(row->name, "process", sizeof "process");
    return usage.mapped != 0;
}

/* Bytes of the heap's slabs and mappings. Mappings have what is not out of slabs. */
static size_t held_bytes(struct scope *scope)
{
    struct heap *heap = scope->heap;
    size_t own = atomic_load(&scope->own), slabs, used;

    lock_acquire(&heap->lock);
    slabs = atomic_load_explicit(&heap->body->slab_bytes, memory_order_relaxed);
    used = atomic_load_explicit(&heap->body->used_bytes, memory_order_relaxed);
    lock_release(&heap->lock);
    return slabs + own - base_min(own, used);
}

bool scopes_row(struct hak_scope_stats *row, struct scope *scope)
{
    *row = (struct hak_scope_stats){ 0 };
    if (scope == NULL)
        return row_of_process(row);
    row->number = scope->number;
    row->parent = scope->parent ? scope->parent->number : 0;
    row->live = atomic_load(&scope->live);
    row->own = atomic_load(&scope->own);
    row->held = held_bytes(scope);
    row->peak = atomic_load(&scope->peak);
    row->cap = atomic_load(&scope->cap);
    row->soft = atomic_load(&scope->soft);
    row->refused = atomic_load(&scope->refused);
    row->threads = atomic_load(&scope->threads);
    row->closed = atomic_load(&scope->state) == SCOPE_CLOSED;
    __builtin_memcpy(row->name, scope->name, sizeof row->name);
    return true;
}

/* ---- Resident bytes ---- */

#define LOOK_PAGES 1024u

static size_t resident_of_range(const char *start, size_t bytes)
{
    unsigned char pages[LOOK_PAGES];
    size_t page = os_page_size(), resident = 0;

    for (size_t done = 0, part; done < bytes; done += part) {
        part = base_min(bytes - done, LOOK_PAGES * page);
        if (!os_resident_pages(start + done, part, pages))
            continue;
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            resident += (pages[i] & 1) * page;
    }
    return resident;
}

/* The slab's share of its SuperSlab's header, by units. *header: the header that was looked at last. */
static size_t resident_of_header(const struct slab *slab, const struct superslab **header, size_t *bytes)
{
    if (*header != superslab_of(slab)) {
        *header = superslab_of(slab);
        *bytes = resident_of_range((const char *)*header, UNIT_SIZE);
    }
    return *bytes * slab->units / (SUPERSLAB_UNITS - 1);
}

static size_t resident_of_list(const struct slab_list *list)
{
    const struct superslab *header = NULL;
    size_t resident = 0, bytes = 0;

    for (const struct slab *slab = list->head; slab; slab = slab->next)
        resident += resident_of_range(slab->start, slab->units * UNIT_SIZE) + resident_of_header(slab, &header, &bytes);
    return resident;
}

static size_t resident_of_heap(struct heap *heap)
{
    size_t resident;

    lock_acquire(&heap->lock);
    resident = resident_of_list(&heap->full);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        resident += resident_of_list(&heap->body->available[class]);
    lock_release(&heap->lock);
    lock_acquire(&huge_lock);
    for (unsigned i = 0; i < HUGE_BUCKETS && heap->huge_blocks; i++)
        for (const struct huge *record = huge_inside.buckets[i]; record; record = record->next)
            if (record->heap == heap)
                resident += resident_of_range(record->address, record->size);
    lock_release(&huge_lock);
    return resident;
}

static bool is_below(const struct scope *scope, const struct scope *above)
{
    while (scope && scope != above)
        scope = scope->parent;
    return scope != NULL;
}

size_t scopes_resident(const struct scope *above)
{
    size_t resident = 0;

    for (struct scope *scope = scopes_first(); scope; scope = scopes_from(scope->next))
        if (is_below(scope, above))
            resident += resident_of_heap(scope->heap);
    return resident;
}
