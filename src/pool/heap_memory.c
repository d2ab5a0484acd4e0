#include "pool/heap_memory.h"

#include "superslab/footprint.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

/* A group's page holds the group's record, and behind it the heaps. */
#define GROUP_BYTES ((size_t)4096)
#define GROUP_HEAPS (GROUP_BYTES / sizeof(struct heap) - 1)

struct heap_group {
    struct heap_group *next; /* in one of the lists below */
    char *bodies, *caches; /* arrays for all heaps of the group */
    uint32_t made; /* heaps handed out */
    bool listed;   /* in one of the lists */
};
_Static_assert(sizeof(struct heap_group) <= sizeof(struct heap), "a group's record takes a heap's place");

/* Lists of groups: with dead memory, with dead memory that is due, with memory that the system refused to take. */
static struct heap_group *buried, *due, *refused;
static struct heap_group *newest;

/* The heap whose cache has a size of its own, and lies apart from its group's caches. */
static struct heap *first_cached;
static size_t first_bytes, cache_stride;

static struct heap *group_heap(struct heap_group *group, unsigned index) { return (struct heap *)group + 1 + index; }
static struct heap_group *group_of(struct heap *heap)
{
    return (struct heap_group *)((uintptr_t)heap & ~(GROUP_BYTES - 1));
}
static unsigned group_index(struct heap *heap) { return (unsigned)(heap - group_heap(group_of(heap), 0)); }
static size_t page_multiple(size_t size) { return base_align_up(size, os_page_size()); }

static struct heap_group *group_make(void)
{
    struct heap_group *group = metadata_allocate(GROUP_BYTES, GROUP_BYTES);

    if (group)
        group->bodies = metadata_allocate(GROUP_HEAPS * page_multiple(sizeof(struct heap_body)), os_page_size());
    return group && group->bodies ? group : NULL;
}

struct heap *heap_memory_make(void)
{
    struct heap *heap;

    if (!newest || newest->made == GROUP_HEAPS) {
        struct heap_group *group = group_make();
        if (!group)
            return NULL;
        newest = group;
    }
    heap = group_heap(newest, newest->made);
    heap->body = (struct heap_body *)(newest->bodies + newest->made * page_multiple(sizeof *heap->body));
    heap->classes = heap->body->classes;
    lock_init(&heap->lock, LOCK_RANK_HEAP);
    newest->made++;
    return heap;
}

bool heap_memory_is_first(const struct heap *heap) { return heap == first_cached; }

/* Statistics read the pointer without registry.lock. */
static void *heap_publish_cache(struct heap *heap, void *cache)
{
    __atomic_store_n(&heap->cache, cache, __ATOMIC_RELEASE);
    return cache;
}

bool heap_memory_add_cache(struct heap *heap, size_t size, size_t first_size)
{
    struct heap_group *group = group_of(heap);

    /* Written before it is read, as a new slab header is (pool_take_run). No slab has the class. */
    heap->body->available[CLASS_NONE].head = NULL;
    cache_stride = page_multiple(size);
    if (!first_cached) {
        first_bytes = page_multiple(first_size);
        if (heap_publish_cache(heap, metadata_allocate(first_bytes, os_page_size()))) {
            footprint_metadata_purged(first_bytes - cache_stride); /* few of these bytes are ever touched */
            first_cached = heap;
            return true;
        }
    }
    if (!group->caches)
        group->caches = metadata_allocate(GROUP_HEAPS * cache_stride, os_page_size());
    if (group->caches)
        heap_publish_cache(heap, group->caches + group_index(heap) * cache_stride);
    return heap->cache != NULL;
}

void heap_memory_purge_rest(struct heap *heap)
{
    char *rest = (char *)heap->cache + cache_stride;

    shared_pool_split_at(rest); /* P7 */
    os_purge(rest, first_bytes - cache_stride);
}

void heap_memory_use(struct heap *heap, bool cache)
{
    if (heap->body_purged == MEMORY_PURGED)
        footprint_metadata_touched(page_multiple(sizeof *heap->body));
    heap->body_purged = MEMORY_IN_USE;
    if (cache && heap->cache_purged == MEMORY_PURGED)
        footprint_metadata_touched(cache_stride);
    if (cache)
        heap->cache_purged = MEMORY_IN_USE;
}

void heap_memory_bury(struct heap *heap)
{
    struct heap_group *group = group_of(heap);

    if (group->listed)
        return;
    group->listed = true;
    group->next = buried;
    buried = group;
}

void heap_memory_reset_in_child(struct heap *heaps)
{
    buried = due = refused = NULL;
    for (struct heap *heap = heaps; heap; heap = heap->next)
        group_of(heap)->listed = false;
    for (struct heap *heap = heaps; heap; heap = heap->next)
        if (heap->body_purged == MEMORY_DEAD || heap->cache_purged == MEMORY_DEAD)
            heap_memory_bury(heap);
}

static void list_move(struct heap_group **to, struct heap_group **from)
{
    while (*to)
        to = &(*to)->next;
    *to = *from;
    *from = NULL;
}

void heap_memory_ripen(void)
{
    list_move(&buried, &refused);
    list_move(&buried, &due);
    list_move(&due, &buried);
}

bool heap_memory_is_due(void) { return due != NULL; }

/* ---- Purging: one call for each run of dead neighbours ---- */

static _Atomic uint8_t *state_of(struct heap *heap, bool bodies)
{
    return bodies ? &heap->body_purged : &heap->cache_purged;
}

/* Purges the `bytes` of `count` records, of which each counts as `stride`. Sets *all to false if the system refused. */
static size_t records_purge(char *memory, size_t bytes, size_t stride, unsigned count, bool *all)
{
    shared_pool_split_at(memory); /* P7 */
    if (!os_purge(memory, bytes)) {
        *all = false;
        return 0;
    }
    footprint_metadata_purged(count * stride);
    return count * stride;
}

static bool is_dead(struct heap *heap, bool bodies)
{
    return *state_of(heap, bodies) == MEMORY_DEAD && (bodies || heap != first_cached);
}

static size_t group_purge(struct heap_group *group, bool bodies, bool *all)
{
    char *memory = bodies ? group->bodies : group->caches;
    size_t stride = bodies ? page_multiple(sizeof(struct heap_body)) : cache_stride, purged = 0, done;

    for (unsigned index = 0, begin; index < group->made; index++) {
        for (begin = index; index < group->made && is_dead(group_heap(group, index), bodies); index++)
            ;
        if (index == begin)
            continue;
        done = records_purge(memory + begin * stride, (index - begin) * stride, stride, index - begin, all);
        purged += done;
        for (unsigned i = begin; done && i < index; i++)
            *state_of(group_heap(group, i), bodies) = MEMORY_PURGED;
    }
    if (!bodies && first_cached && group_of(first_cached) == group && *state_of(first_cached, false) == MEMORY_DEAD) {
        done = records_purge(first_cached->cache, first_bytes, stride, 1, all);
        purged += done;
        if (done)
            *state_of(first_cached, false) = MEMORY_PURGED;
    }
    return purged;
}

size_t heap_memory_purge(unsigned groups, void (*begin)(struct heap *heap))
{
    size_t purged = 0;

    for (; groups > 0 && due; groups--) {
        struct heap_group *group = due;
        bool all = true;
        due = group->next;
        for (unsigned index = 0; index < group->made; index++)
            if (group_heap(group, index)->body_purged == MEMORY_DEAD)
                begin(group_heap(group, index));
        purged += group_purge(group, true, &all) + group_purge(group, false, &all);
        group->listed = !all;
        if (!all) {
            group->next = refused;
            refused = group;
        }
    }
    return purged;
}
