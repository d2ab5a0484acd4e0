#include "je/figures.h"

#include <string.h>

#include <hakmem/jemalloc.h>

#include "je/arenas.h"
#include "observe/scratch.h"
#include "observe/usage.h"
#include "os/procfs.h"
#include "pool/registry.h"
#include "superslab/shared_pool.h"

static struct figures figures;

/* Rows of arena 0, of the other arenas, and last of all arenas together. */
static struct figures_arena *rows;
static uint32_t row_count, row_capacity;

/* ---- Room ---- */

static bool make_room(uint32_t arenas)
{
    size_t page = os_page_size();
    void *room;

    if (arenas + 1 > row_capacity) {
        size_t bytes = base_align_up((arenas + 1) * sizeof *rows, page),
               old = base_align_up(row_capacity * sizeof *rows, page);
        room = os_map(bytes, page);
        if (room == NULL)
            return false;
        if (rows)
            os_unmap(rows, old);
        rows = room;
        row_capacity = (uint32_t)(bytes / sizeof *rows);
    }
    row_count = arenas;
    memset(rows, 0, (arenas + 1) * sizeof *rows);
    return true;
}

/* ---- Heaps ---- */

static void add_words(void *sum, const void *words, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
        ((uint64_t *)sum)[i] += ((const uint64_t *)words)[i];
}

static void count_nonfull(struct figures_arena *row, struct heap *heap)
{
    if (!heap_is_readable(heap))
        return;
    lock_acquire(&heap->lock);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        for (const struct slab *slab = heap->body->available[class].head; slab; slab = slab->next)
            row->sizes[class - 1].nonfull_slabs++;
    lock_release(&heap->lock);
}

static void add_sum(struct figures_sum *sum, const struct figures_size *size, size_t bytes)
{
    sum->allocated += size->live * bytes;
    sum->nmalloc += size->nmalloc;
    sum->ndalloc += size->ndalloc;
    sum->nrequests += size->nrequests;
    sum->nfills += size->nfills;
    sum->nflushes += size->nflushes;
}

static void fill_row(struct figures_arena *row, const struct usage_count *count)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        const struct class_counters *counters = &count->classes[class];
        struct figures_size *size = &row->sizes[class - 1];
        size_t cached = usage_cached(count, class);

        size->curregs = count->used[class];
        size->live = count->used[class] - cached;
        size->nmalloc = base_max(counters->refilled_blocks, size->curregs);
        size->ndalloc = size->nmalloc - size->curregs; /* C1 */
        size->nrequests = base_max(counters->malloc_hits + counters->refills,
                                   counters->refilled_blocks - base_min(cached, counters->refilled_blocks));
        size->nfills = counters->refills;
        size->nflushes = counters->flushes;
        size->nslabs = counters->carved;
        size->curslabs = count->slabs[class];
        size->nonfull_slabs = base_min(size->nonfull_slabs, size->curslabs);
        row->tcache_bytes += cached * class_size(class);
        add_sum(class > FIGURES_BINS ? &row->large : &row->small, size, class_size(class));
    }
    row->pactive += count->slab_bytes / os_page_size();
    row->mapped += count->slab_bytes;
    row->resident += count->slab_bytes;
}

/* Adds a huge block. */
static void add_huge(struct figures_arena *row, size_t bytes)
{
    struct figures_size *size = &row->sizes[FIGURES_BINS + FIGURES_LEXTENTS - 1];

    size->curregs++;
    size->live++;
    size->nmalloc++;
    size->curslabs++;
    row->large.allocated += bytes;
    row->large.nmalloc++;
    row->pactive += bytes / os_page_size();
    row->mapped += bytes;
    row->resident += bytes;
}

static void count_huge(void)
{
    lock_acquire(&huge_lock);
    for (unsigned bucket = 0; bucket < HUGE_BUCKETS; bucket++)
        for (const struct huge *huge = huge_inside.buckets[bucket]; huge; huge = huge->next) {
            uint32_t number = arenas_number(huge->heap);
            add_huge(&rows[number < row_count ? number : 0], huge->size);
            add_huge(&rows[row_count], huge->size);
        }
    lock_release(&huge_lock);
}

/* Fills the rows, and `all` with the count of all heaps. `one`: room for a count. Under registry.lock `departed` does
 * not change. */
static void count_heaps(struct usage_count *all, struct usage_count *one)
{
    memset(all, 0, sizeof *all);
    lock_acquire(&registry.lock);
    add_words(all->classes, registry.departed.classes, sizeof all->classes);
    add_words(&all->counters, &registry.departed.counters, sizeof all->counters);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        if (arenas_number(heap) == 0) {
            observe_count_heap(all, heap);
            count_nonfull(&rows[0], heap);
        }
    fill_row(&rows[0], all);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        uint32_t number = arenas_number(heap);
        if (number && number < row_count) {
            memset(one, 0, sizeof *one);
            observe_count_heap(one, heap);
            count_nonfull(&rows[number], heap);
            fill_row(&rows[number], one);
            add_words(all, one, sizeof *all);
        }
    }
    lock_release(&registry.lock);
    for (uint32_t i = 0; i < row_count; i++)
        for (unsigned size = 0; size < FIGURES_BINS + FIGURES_LEXTENTS; size++)
            rows[row_count].sizes[size].nonfull_slabs += rows[i].sizes[size].nonfull_slabs;
    fill_row(&rows[row_count], all);
}

_Static_assert(sizeof(struct usage_count) % sizeof(uint64_t) == 0, "add_words adds all of it");

/* ---- The process ---- */

static void add_rest(struct figures_arena *row, const struct usage *usage)
{
    row->retained = usage->purged;
    row->pdirty = (usage->retained - base_min(usage->retained, usage->purged)) / os_page_size();
    row->base = usage->metadata;
    row->mapped += usage->metadata + row->pdirty * os_page_size();
    row->resident += usage->metadata + row->pdirty * os_page_size();
    row->dirty_purged = shared_pool.purged_bytes / os_page_size();
}

/* Adds the huge blocks of the past, which no row has counted. */
static void add_huge_past(struct figures_arena *row, const struct huge_usage *huge)
{
    struct figures_size *size = &row->sizes[FIGURES_BINS + FIGURES_LEXTENTS - 1];
    uint64_t past =
        huge->allocated - base_min(huge->allocated, rows[row_count].sizes[FIGURES_BINS + FIGURES_LEXTENTS - 1].curregs);

    size->nmalloc += past;
    size->ndalloc += past;
    size->nrequests = size->nmalloc;
    row->large.nmalloc += past;
    row->large.ndalloc += past;
    row->large.nrequests += size->nmalloc;
}

static void fill_totals(const struct usage_count *all)
{
    struct usage usage;
    size_t anonymous;

    observe_usage_of(&usage, all);
    count_huge();
    for (uint32_t i = 0; i <= row_count; i += row_count) { /* arena 0 and all */
        add_huge_past(&rows[i], &usage.huge);
        add_rest(&rows[i], &usage);
    }
    figures.allocated = usage.live;
    figures.active = usage.live + usage.cached + usage.free_in_slab;
    figures.metadata = usage.metadata;
    figures.retained = usage.purged;
    figures.mapped = usage.mapped - base_min(usage.mapped, usage.purged);
    /* Metadata is mapped before use, so the system's figure bounds resident. Slabs count whole, as in active. */
    anonymous = procfs_anonymous_pages("/proc/self/statm") * os_page_size();
    figures.resident = anonymous ? base_max(figures.active, base_min(figures.mapped, anonymous)) : figures.mapped;
    rows[row_count].resident = base_min(rows[row_count].resident, figures.resident);
}

bool figures_take(void)
{
    struct usage_count *all = scratch_take(), *one = scratch_take();
    bool taken = all && one && make_room(arenas_count());

    if (taken) {
        count_heaps(all, one);
        fill_totals(all);
        figures.taken_ns = os_now();
        if (figures.epoch++ == 0)
            figures.started_ns = figures.taken_ns;
    }
    scratch_give(one);
    scratch_give(all);
    return taken;
}

const struct figures *figures_get(void)
{
    return figures.epoch || figures_take() ? &figures : NULL;
}

const struct figures_arena *figures_of_arena(uint32_t number)
{
    if (figures_get() == NULL)
        return NULL;
    return number == MALLCTL_ARENAS_ALL ? &rows[row_count] : number < row_count ? &rows[number] : NULL;
}
