#include "observe/stats.h"

#include "observe/faults.h"
#include "observe/scratch.h"
#include "options/options.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "profile/guard.h"
#include "profile/table.h"
#include "superslab/shared_pool.h"
#include "superslab/touched.h"

uint64_t stats_share(uint64_t hits, uint64_t others)
{
    uint64_t all = hits + others;

    if (all == 0)
        return 0;
    return all < UINT64_C(1) << 50 ? hits * 10000 / all : hits / (all / 10000);
}

/* ---- Classes and pools ---- */

/* The members that are sums over classes in the totals, and in a heap. */
#define EACH_CALL(CALL)                                                                                    \
    CALL(refills) CALL(refilled_blocks) CALL(flushes) CALL(flushed_blocks) CALL(returned_blocks)           \
    CALL(malloc_misses) CALL(free_overflows) CALL(malloc_hits) CALL(free_hits)
#define ADD_TO_TOTALS(member) totals->member += row->member;
#define ADD_TO_HEAP(member) row->member += one.member;

static void shoot_class(struct hak_stats_class *row, const struct usage_count *count, unsigned class)
{
    const struct class_counters *counters = &count->classes[class];
    size_t blocks = count->slabs[class] * size_classes[class].blocks;
    size_t cached = usage_cached(count, class);

    *row = (struct hak_stats_class){ .block_size = class_size(class),
                                     .slabs = count->slabs[class],
                                     .live_blocks = count->used[class] - cached,
                                     .cached_blocks = cached,
                                     .free_blocks = blocks - base_min(count->used[class], blocks),
                                     .refills = counters->refills,
                                     .refilled_blocks = counters->refilled_blocks,
                                     .flushes = counters->flushes,
                                     .flushed_blocks = counters->flushed_blocks,
                                     .returned_blocks = counters->returned_blocks,
                                     .malloc_misses = counters->refills - base_min(counters->direct, counters->refills),
                                     .free_overflows = counters->overflows,
                                     .malloc_hits = hak_options.front_stats ? counters->malloc_hits : 0,
                                     .free_hits = hak_options.front_stats ? counters->free_hits : 0,
                                     .slabs_carved = counters->carved,
                                     .slabs_released = counters->released,
                                     .remote_blocks = count->remote[class] };
}

static void add_to_pool(struct hak_stats_pool *pool, const struct hak_stats_class *row, unsigned class)
{
    size_t bytes = row->slabs * size_classes[class].units * UNIT_SIZE, size = row->block_size;

    pool->slabs += row->slabs;
    pool->slab_bytes += bytes;
    pool->live_blocks += row->live_blocks;
    pool->live_bytes += row->live_blocks * size;
    pool->cached_blocks += row->cached_blocks;
    pool->cached_bytes += row->cached_blocks * size;
    pool->free_blocks += row->free_blocks;
    pool->free_bytes += bytes - base_min(bytes, (row->live_blocks + row->cached_blocks) * size);
}

static void add_class(struct hak_stats *totals, const struct hak_stats_class *row, unsigned class)
{
    add_to_pool(class_is_span(class)            ? &totals->spans
                : class_size(class) <= FAST_MAX ? &totals->small
                                                : &totals->medium,
                row, class);
    EACH_CALL(ADD_TO_TOTALS)
    totals->slabs_carved += row->slabs_carved;
    totals->slabs_released += row->slabs_released;
    totals->remote_blocks += row->remote_blocks;
}

/* ---- SuperSlabs ---- */

/* Under pool.lock. A SuperSlab whose free units are all guard units between slabs (V15, V17) is full. */
static enum hak_stats_tier tier_of(uint32_t number)
{
    unsigned free = base_count_bits(shared_pool.slots[number].free);

    if (free == 0 || shared_pool.slots[number].bucket == 0)
        return HAK_STATS_FULL;
    if (free == POOL_BUCKET_EMPTY)
        return HAK_STATS_EMPTY;
    return free >= POOL_BUCKET_EMPTY - POOL_DRAINING_USED ? HAK_STATS_DRAINING : HAK_STATS_HOT;
}

/* The classes of the slabs in the SuperSlab. Slabs may come and go meanwhile, so the result is a snapshot, not a
 * count. */
static uint64_t classes_in(uint32_t number, uint32_t used)
{
    struct superslab *superslab = (struct superslab *)window_slot_address(number);
    uint64_t classes = 0;

    for (; used; used &= used - 1) {
        struct slab *slab = &superslab->slabs[base_low_bit(used)];
        if (atomic_load_explicit(&slab->state, memory_order_acquire) == SLAB_ACTIVE &&
            superslab->first_unit[base_low_bit(used)] == base_low_bit(used))
            classes |= UINT64_C(1) << __atomic_load_n(&slab->class, __ATOMIC_RELAXED);
    }
    return classes;
}

bool stats_superslab(struct hak_stats_superslab *row, uint32_t *number)
{
    bool found = false;

    if (window_slots_end() == 0)
        return false;
    lock_acquire(&shared_pool.lock);
    for (*number = (uint32_t)base_max(*number, window_slots_begin()); *number < shared_pool.slots_unused && !found;
         ++*number) {
        const struct slot *slot = &shared_pool.slots[*number];
        unsigned free = base_count_bits(slot->free);
        uint32_t used = ~slot->free & ~(uint32_t)1;
        if (slot->kind != SLOT_SUPERSLAB)
            continue;
        found = true;
        *row = (struct hak_stats_superslab){ .number = *number,
                                             .address = (uintptr_t)window_slot_address(*number),
                                             .tier = tier_of(*number),
                                             .used_units = SUPERSLAB_UNITS - 1 - free,
                                             .free_units = free,
                                             .dirty_units = base_count_bits(slot->free & slot->touched),
                                             .classes = slot->touched ? classes_in(*number, used) : 0,
                                             .huge_pages = slot->huge_pages == PAGES_HUGE };
    }
    lock_release(&shared_pool.lock);
    return found;
}

static void shoot_superslabs(struct hak_stats *totals)
{
    uint64_t tiers[HAK_STATS_EMPTY + 1] = { 0 };

    lock_acquire(&shared_pool.lock);
    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++)
        if (shared_pool.slots[number].kind == SLOT_SUPERSLAB) {
            tiers[tier_of(number)]++;
            if (HAK_DEBUG && shared_pool.slots[number].touched)
                totals->touched_pages += touched_count((struct superslab *)window_slot_address(number));
        }
    totals->lru_entered = shared_pool.lru_entered;
    totals->lru_reused = shared_pool.lru_reused;
    totals->lru_purged = shared_pool.lru_purged;
    totals->prewarmed = shared_pool.prewarmed;
    totals->purged_bytes = shared_pool.purged_bytes;
    lock_release(&shared_pool.lock);
    totals->superslabs = tiers[0] + tiers[1] + tiers[2] + tiers[3];
    totals->superslabs_full = tiers[HAK_STATS_FULL];
    totals->superslabs_hot = tiers[HAK_STATS_HOT];
    totals->superslabs_draining = tiers[HAK_STATS_DRAINING];
    totals->superslabs_empty = tiers[HAK_STATS_EMPTY];
}

/* ---- Totals ---- */

static void shoot_huge(struct hak_stats *totals, const struct huge_usage *huge)
{
    totals->huge = (struct hak_stats_pool){ .slabs = huge->live_blocks,
                                            .slab_bytes = huge->live_bytes + huge->cached_bytes,
                                            .live_blocks = huge->live_blocks,
                                            .live_bytes = huge->live_bytes,
                                            .free_bytes = huge->cached_bytes };
    totals->huge_allocated = huge->allocated;
    totals->huge_freed = huge->freed;
    totals->huge_reused = huge->reused;
}

static void shoot_memory(struct hak_stats *totals, const struct usage_count *count)
{
    struct usage usage;

    observe_usage_of(&usage, count);
    shoot_huge(totals, &usage.huge);
    totals->mapped = usage.mapped;
    totals->live = usage.live;
    totals->cached = usage.cached;
    totals->free_in_slab = usage.free_in_slab;
    totals->retained = usage.retained;
    totals->metadata = usage.metadata;
    totals->heap_profile = usage.heap_profile;
    totals->heap_profile_samples = table_records();
    totals->guard_live = atomic_load_explicit(&guard.live, memory_order_relaxed);
    totals->guard_allocated = atomic_load_explicit(&guard.allocated, memory_order_relaxed);
    totals->guard_reports = atomic_load_explicit(&guard.reports, memory_order_relaxed);
    totals->purged = usage.purged;
    totals->footprint_peak = usage.footprint_peak;
    totals->limit = usage.limit_hard;
    totals->heaps_live = count->heaps;
    totals->heaps_orphan = count->orphans;
    totals->heaps_first_class = count->first_class;
}

static void shoot_counters(struct hak_stats *totals, const struct usage_count *count)
{
    const struct heap_counters *counters = &count->counters;

    totals->slabs_adopted = counters->slabs_adopted;
    totals->warm_hits = counters->warm_hits;
    totals->warm_misses = counters->warm_misses;
    totals->warm_prefilled = counters->warm_prefilled;
    totals->remote_out = counters->remote_blocks;
    totals->remote_in = counters->remote_collected;
    totals->remote_locked = counters->locked_blocks;
    totals->pending = count->pending;
    totals->pending_enqueued = counters->pending_drained + count->pending;
    totals->pending_drained = counters->pending_drained;
    totals->pending_requeued = counters->pending_requeued;
    if (hak_options.front_stats) {
        totals->malloc_coverage = stats_share(totals->malloc_hits, totals->malloc_misses);
        totals->free_coverage = stats_share(totals->free_hits, totals->free_overflows);
    }
}

static void shoot_faults(struct hak_stats *totals)
{
    struct faults now, first, reported;

    faults_begin();
    now = faults_now();
    first = faults_first();
    reported = faults_reported();
    totals->faults_soft = now.soft;
    totals->faults_hard = now.hard;
    totals->resident = now.resident;
    totals->resident_change = (int64_t)(now.resident - first.resident);
    /* In the child of a fork the kernel's counts begin at 0. */
    totals->faults_soft_recent = now.soft - (now.soft >= reported.soft ? reported.soft : 0);
    totals->faults_hard_recent = now.hard - (now.hard >= reported.hard ? reported.hard : 0);
    totals->resident_change_recent = (int64_t)(now.resident - reported.resident);
}

void stats_shoot(struct stats_shot *shot)
{
    struct usage_count *count = &shot->count;

    __builtin_memset(shot, 0, sizeof *shot);
    shot->totals.size = sizeof shot->totals;
    shot->totals.version = HAK_STATS_VERSION;
    shoot_faults(&shot->totals);
    if (window_slots_end() == 0)
        return;
    observe_count_all(count);
    shoot_memory(&shot->totals, count);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        shoot_class(&shot->classes[class], count, class);
        add_class(&shot->totals, &shot->classes[class], class);
    }
    shoot_counters(&shot->totals, count);
    shoot_superslabs(&shot->totals);
}

struct stats_shot *stats_take(void)
{
    struct stats_shot *shot = scratch_take();

    _Static_assert(sizeof *shot <= SCRATCH_BYTES, "a shot fits into the scratch memory");
    if (shot != NULL)
        stats_shoot(shot);
    return shot;
}

void stats_give(struct stats_shot *shot)
{
    scratch_give(shot);
}

void stats_heap(struct hak_stats_heap *row, struct heap *heap, struct usage_count *count)
{
    __builtin_memset(count, 0, sizeof *count);
    observe_count_heap(count, heap);
    *row = (struct hak_stats_heap){ .number = heap->id,
                                    .thread = __atomic_load_n(&heap->thread_id, __ATOMIC_RELAXED),
                                    .kind = heap->kind,
                                    .live = count->heaps,
                                    .slab_bytes = count->slab_bytes,
                                    .warm_slabs = count->warm_slabs,
                                    .remote_out = count->counters.remote_blocks,
                                    .remote_in = count->counters.remote_collected,
                                    .remote_locked = count->counters.locked_blocks,
                                    .pending = count->pending,
                                    .pending_drained = count->counters.pending_drained,
                                    .pending_requeued = count->counters.pending_requeued,
                                    .slabs_adopted = count->counters.slabs_adopted };
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        struct hak_stats_class one;
        shoot_class(&one, count, class);
        row->slabs += one.slabs;
        row->used_bytes += count->used[class] * class_size(class);
        row->cached_bytes += count->cached[class] * class_size(class);
        EACH_CALL(ADD_TO_HEAP)
    }
}
