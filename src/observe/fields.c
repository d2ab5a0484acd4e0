#include "observe/fields.h"

#include <hakmem/scope.h>

#define FIELD(struct_, name, kind, help) { offsetof(struct struct_, name), FIELD_##kind, #name, help },
/* The list covers every word from the member `first` to the member `last`. */
#define LIST(name, struct_, first, last)                                                                               \
    _Static_assert(sizeof name##_fields / sizeof name##_fields[0] * sizeof(uint64_t) ==                                \
                       offsetof(struct struct_, last) + sizeof(uint64_t) - offsetof(struct struct_, first),            \
                   "a member of " #struct_ " is missing in its list");                                                 \
    FIELDS(name)
#define FIELDS(name)                                                                                                   \
    HAK_DATA_HERE const struct field_list fields_##name = { name##_fields,                                             \
                                                            sizeof name##_fields / sizeof name##_fields[0] };

/* Members that the totals, a class and a heap have alike. */
#define SLOW_CALLS(struct_)                                                                                            \
    FIELD(struct_, refills, COUNTER, "Batches of blocks taken out of slabs")                                           \
    FIELD(struct_, refilled_blocks, COUNTER, "Blocks taken out of slabs")                                              \
    FIELD(struct_, flushes, COUNTER, "Batches of blocks given back by threads")                                        \
    FIELD(struct_, flushed_blocks, COUNTER, "Blocks given back by threads")                                            \
    FIELD(struct_, returned_blocks, COUNTER, "Blocks that came back to slabs")                                         \
    FIELD(struct_, malloc_misses, COUNTER, "Allocations of pooled blocks that found the thread's cache empty")         \
    FIELD(struct_, free_overflows, COUNTER, "Frees of pooled blocks that found the thread's cache full")
#define HITS(struct_)                                                                                                  \
    FIELD(struct_, malloc_hits, HITS, "Allocations that the thread caches served")                                     \
    FIELD(struct_, free_hits, HITS, "Frees that the thread caches took")

static const struct field memory_fields[] = {
    FIELD(hak_stats, mapped, BYTES,
          "Committed address space in bytes: live + cached + free_in_slab + retained + metadata")
    FIELD(hak_stats, live, BYTES, "Bytes of blocks that the program holds, as rounded up to their size class")
    FIELD(hak_stats, cached, BYTES, "Bytes of free blocks in threads' caches")
    FIELD(hak_stats, free_in_slab, BYTES, "Bytes of free blocks and tails in slabs in use")
    FIELD(hak_stats, retained, BYTES, "Bytes of free units, spans and huge ranges that are kept")
    FIELD(hak_stats, metadata, BYTES, "Bytes of HAKMEM's own records")
    FIELD(hak_stats, purged, BYTES, "Of mapped: bytes given back to the system and not touched since")
    FIELD(hak_stats, footprint_peak, BYTES, "Most bytes of slabs, free units with memory and huge blocks at one time")
    FIELD(hak_stats, limit, BYTES, "HAKMEM_MEMORY_LIMIT in bytes; 0: none")
    FIELD(hak_stats, superslabs, GAUGE, "SuperSlabs made")
    FIELD(hak_stats, superslabs_full, GAUGE, "SuperSlabs without a free unit")
    FIELD(hak_stats, superslabs_hot, GAUGE, "SuperSlabs with 1 to 26 free units")
    FIELD(hak_stats, superslabs_draining, GAUGE, "SuperSlabs with 27 to 30 free units")
    FIELD(hak_stats, superslabs_empty, GAUGE, "SuperSlabs with nothing in use")
    FIELD(hak_stats, heaps_live, GAUGE, "Heaps in use, first-class ones too")
    FIELD(hak_stats, heaps_orphan, GAUGE, "Heaps whose thread has ended")
    FIELD(hak_stats, heaps_first_class, GAUGE, "First-class heaps in use")
};

static const struct field counters_fields[] = {
    SLOW_CALLS(hak_stats)
    FIELD(hak_stats, slabs_carved, COUNTER, "Slabs cut into blocks")
    FIELD(hak_stats, slabs_released, COUNTER, "Slabs that emptied and left their heap")
    FIELD(hak_stats, slabs_adopted, COUNTER, "Slabs that changed their heap")
    FIELD(hak_stats, warm_hits, COUNTER, "Slabs taken from a warm pool that had one")
    FIELD(hak_stats, warm_misses, COUNTER, "Times that a warm pool had none")
    FIELD(hak_stats, warm_prefilled, COUNTER, "Slabs brought to warm pools")
    FIELD(hak_stats, remote_out, COUNTER, "Blocks that threads freed and other heaps own")
    FIELD(hak_stats, remote_in, COUNTER, "Blocks that heaps collected after others freed them")
    FIELD(hak_stats, remote_locked, COUNTER, "Blocks freed under their owner's lock")
    FIELD(hak_stats, pending_enqueued, COUNTER, "Slabs put into queues of remote frees")
    FIELD(hak_stats, pending_drained, COUNTER, "Slabs taken out of queues of remote frees")
    FIELD(hak_stats, pending_requeued, COUNTER, "Of the drained slabs: passed on to a new owner")
    FIELD(hak_stats, pending, GAUGE, "Slabs in queues of remote frees")
    FIELD(hak_stats, lru_entered, COUNTER, "SuperSlabs that became empty with memory behind them")
    FIELD(hak_stats, lru_reused, COUNTER, "Empty SuperSlabs that were taken again")
    FIELD(hak_stats, lru_purged, COUNTER, "Empty SuperSlabs that were given back to the system")
    FIELD(hak_stats, prewarmed, COUNTER, "SuperSlabs made ready at start")
    FIELD(hak_stats, purged_bytes, COUNTER, "Bytes of units given back to the system, in all")
    FIELD(hak_stats, huge_allocated, COUNTER, "Huge blocks allocated")
    FIELD(hak_stats, huge_freed, COUNTER, "Huge blocks freed")
    FIELD(hak_stats, huge_reused, COUNTER, "Huge blocks out of freed ranges")
    FIELD(hak_stats, remote_blocks, GAUGE, "Blocks freed by others and not collected yet")
    HITS(hak_stats)
    FIELD(hak_stats, malloc_coverage, SHARE,
          "Share of allocations of pooled blocks that the thread caches served")
    FIELD(hak_stats, free_coverage, SHARE, "Share of frees of pooled blocks that the thread caches took")
};

static const struct field faults_fields[] = {
    FIELD(hak_stats, faults_soft, COUNTER, "Page faults that found their page in memory")
    FIELD(hak_stats, faults_hard, COUNTER, "Page faults that waited for a disk")
    FIELD(hak_stats, resident, BYTES, "Resident bytes of the process")
    FIELD(hak_stats, resident_change, SIGNED, "Change of the resident bytes since HAKMEM looked first")
    FIELD(hak_stats, faults_soft_recent, GAUGE, "Soft page faults since the last report")
    FIELD(hak_stats, faults_hard_recent, GAUGE, "Hard page faults since the last report")
    FIELD(hak_stats, resident_change_recent, SIGNED, "Change of the resident bytes since the last report")
    FIELD(hak_stats, touched_pages, GAUGE,
          "Debug builds: pages of slabs on which a block was handed out since they were last given back")
};

static const struct field profile_fields[] = {
    FIELD(hak_stats, heap_profile, BYTES, "Of metadata: bytes of the heap profile's tables")
    FIELD(hak_stats, heap_profile_samples, GAUGE, "Blocks in use that are samples of the heap profile")
    FIELD(hak_stats, guard_live, GAUGE, "Guarded blocks in use")
    FIELD(hak_stats, guard_allocated, COUNTER, "Guarded blocks that were allocated")
    FIELD(hak_stats, guard_reports, COUNTER, "Errors at guarded blocks that were reported")
};

static const struct field pool_fields[] = {
    FIELD(hak_stats_pool, slabs, GAUGE, "Slabs, spans or mappings")
    FIELD(hak_stats_pool, slab_bytes, GAUGE, "Their bytes")
    FIELD(hak_stats_pool, live_blocks, GAUGE, "Blocks that the program holds")
    FIELD(hak_stats_pool, live_bytes, GAUGE, "Their bytes")
    FIELD(hak_stats_pool, cached_blocks, GAUGE, "Blocks in threads' caches")
    FIELD(hak_stats_pool, cached_bytes, GAUGE, "Their bytes")
    FIELD(hak_stats_pool, free_blocks, GAUGE, "Free blocks in slabs")
    FIELD(hak_stats_pool, free_bytes, GAUGE, "Free bytes in slabs, or of freed huge ranges")
};

static const struct field class_fields[] = {
    FIELD(hak_stats_class, block_size, GAUGE, "Bytes of a block")
    FIELD(hak_stats_class, slabs, GAUGE, "Slabs of the class")
    FIELD(hak_stats_class, live_blocks, GAUGE, "Blocks that the program holds")
    FIELD(hak_stats_class, cached_blocks, GAUGE, "Blocks in threads' caches")
    FIELD(hak_stats_class, free_blocks, GAUGE, "Free blocks in slabs")
    SLOW_CALLS(hak_stats_class)
    HITS(hak_stats_class)
    FIELD(hak_stats_class, slabs_carved, COUNTER, "Slabs cut into blocks")
    FIELD(hak_stats_class, slabs_released, COUNTER, "Slabs that emptied and left their heap")
    FIELD(hak_stats_class, remote_blocks, GAUGE, "Blocks freed by others and not collected yet")
};

static const struct field heap_fields[] = {
    FIELD(hak_stats_heap, number, GAUGE, "Number of the heap")
    FIELD(hak_stats_heap, thread, GAUGE, "Kernel's id of the thread it serves or served last")
    FIELD(hak_stats_heap, kind, GAUGE,
          "0: a thread's, 1: house, 2: first-class, 3: the heap profile's, 4: shared by threads")
    FIELD(hak_stats_heap, live, GAUGE, "1: its thread is there")
    FIELD(hak_stats_heap, slabs, GAUGE, "Slabs of the heap")
    FIELD(hak_stats_heap, slab_bytes, GAUGE, "Their bytes")
    FIELD(hak_stats_heap, warm_slabs, GAUGE, "Empty slabs ready to carve")
    FIELD(hak_stats_heap, used_bytes, GAUGE, "Bytes of blocks out of its slabs")
    FIELD(hak_stats_heap, cached_bytes, GAUGE, "Bytes of blocks in its thread's cache")
    SLOW_CALLS(hak_stats_heap)
    HITS(hak_stats_heap)
    FIELD(hak_stats_heap, remote_out, COUNTER, "Blocks that threads freed and other heaps own")
    FIELD(hak_stats_heap, remote_in, COUNTER, "Blocks that heaps collected after others freed them")
    FIELD(hak_stats_heap, remote_locked, COUNTER, "Blocks freed under their owner's lock")
    FIELD(hak_stats_heap, pending, GAUGE, "Slabs in its queue of remote frees")
    FIELD(hak_stats_heap, pending_drained, COUNTER, "Slabs taken out of queues of remote frees")
    FIELD(hak_stats_heap, pending_requeued, COUNTER, "Of the drained slabs: passed on to a new owner")
    FIELD(hak_stats_heap, slabs_adopted, COUNTER, "Slabs that changed their heap")
};

static const struct field superslab_fields[] = {
    FIELD(hak_stats_superslab, number, GAUGE, "Number of its place in the window")
    FIELD(hak_stats_superslab, address, GAUGE, "Address")
    FIELD(hak_stats_superslab, tier, GAUGE, "0: full, 1: hot, 2: draining, 3: empty")
    FIELD(hak_stats_superslab, used_units, GAUGE, "Units in use")
    FIELD(hak_stats_superslab, free_units, GAUGE, "Free units")
    FIELD(hak_stats_superslab, dirty_units, GAUGE, "Free units with memory behind them")
    FIELD(hak_stats_superslab, classes, GAUGE, "Bits of the size classes in it")
    FIELD(hak_stats_superslab, huge_pages, GAUGE, "1: huge pages are asked for")
};

static const struct field scope_fields[] = {
    FIELD(hak_scope_stats, live, BYTES, "Live blocks, with those of the scopes below it")
    FIELD(hak_scope_stats, cap, BYTES, "Its cap; 0: none")
    FIELD(hak_scope_stats, held, BYTES, "Its own slabs and mappings")
    FIELD(hak_scope_stats, peak, BYTES, "The most bytes that were live")
    FIELD(hak_scope_stats, refused, GAUGE, "Allocations that its cap refused")
};

LIST(memory, hak_stats, mapped, heaps_first_class)
LIST(counters, hak_stats, refills, free_coverage)
LIST(faults, hak_stats, faults_soft, touched_pages)
LIST(profile, hak_stats, heap_profile, guard_reports)
LIST(pool, hak_stats_pool, slabs, free_bytes)
LIST(class, hak_stats_class, block_size, remote_blocks)
LIST(heap, hak_stats_heap, number, slabs_adopted)
LIST(superslab, hak_stats_superslab, number, huge_pages)
FIELDS(scope)
#undef FIELD

void field_print(struct output *output, const struct field *field, uint64_t value)
{
    if (field->kind == FIELD_SIGNED)
        output_print(output, "%ld", (long)value);
    else if (field->kind == FIELD_SHARE)
        output_print(output, "%lu.%04lu", (unsigned long)value / 10000, (unsigned long)value % 10000);
    else
        output_print(output, "%lu", (unsigned long)value);
}
