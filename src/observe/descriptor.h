/*
 * The table that a reader outside the process needs: where the heap's roots are, how the structs are laid out, and what
 * numbers mean. Each build contains its own table, so that one reader understands builds whose structs differ.
 *
 * The library itself does not read it. `hakmem stats` and similar commands read it through process_vm_readv, gdb or a
 * core dump. They find it by its name among the dynamic symbols, by its section, or by its magic.
 *
 * D1: a reader uses the names that it knows and ignores the rest, so rows may be added. DESCRIPTOR_FORMAT changes when
 *     a name changes its meaning or is removed.
 */
#ifndef HAK_OBSERVE_DESCRIPTOR_H
#define HAK_OBSERVE_DESCRIPTOR_H

#include "base/base.h"

#define DESCRIPTOR_FORMAT 2u
#define DESCRIPTOR_MAGIC "HAKMEM\x01inside\x02\xfe" /* 15 bytes and a 0 */
#define DESCRIPTOR_NAME_BYTES 40u

enum descriptor_kind {
    DESCRIPTOR_TYPE = 1, /* size of a struct */
    DESCRIPTOR_FIELD,    /* value: its offset; size: of one element; count: of elements */
    DESCRIPTOR_CONSTANT, /* value */
    DESCRIPTOR_ROOT      /* value: the address of an object */
};

struct descriptor_row {
    char name[DESCRIPTOR_NAME_BYTES]; /* "slab", "slab.used", "UNIT_SIZE", "shared_pool" */
    union {
        uint64_t number;
        const volatile void *address;
    } value;
    uint32_t size, count;
    uint32_t kind; /* enum descriptor_kind */
    uint32_t reserved;
};

struct descriptor_head {
    char magic[16];
    uint32_t format;   /* DESCRIPTOR_FORMAT */
    uint32_t size;     /* of the whole, in bytes */
    char version[16];  /* of the library */
    uint32_t rows, row_size, rows_offset;
    uint32_t pointer_size;
};

_Static_assert(sizeof(struct descriptor_row) == 64, "readers of all formats count on it");
_Static_assert(sizeof(struct descriptor_head) == 56, "readers of all formats count on it");

/* TYPE(struct) FIELD(struct, field) ARRAY(struct, field) CONSTANT(name) ROOT(name, object). Roots come first: the
 * dynamic linker writes their addresses, and so to one page of the table. */
#define DESCRIPTOR_TABLE(TYPE, FIELD, ARRAY, CONSTANT, ROOT)                                                           \
    ROOT(hak_window, &hak_window) ROOT(hak_units, &hak_units) ROOT(shared_pool, &shared_pool)                          \
    ROOT(registry, &registry) ROOT(size_classes, size_classes) ROOT(huge_inside, &huge_inside)                         \
    ROOT(hak_options, &hak_options) ROOT(table_memory, &table_memory) ROOT(profile, &profile)                          \
    ROOT(profile_sites, &profile_sites) ROOT(table_peak, &table_peak) ROOT(guard, &guard)                              \
    ROOT(outside, &hak_outside) ROOT(window_head_mapped, &window_head_mapped)                                          \
    ROOT(python_codes, &python_codes) ROOT(profile_records, &profile_records) ROOT(label_sets, &label_sets)            \
    ROOT(profile_sizes, &profile_sizes)                                                                                \
    CONSTANT(UNIT_SIZE) CONSTANT(SUPERSLAB_SIZE) CONSTANT(SUPERSLAB_UNITS) CONSTANT(CLASS_COUNT)                       \
    CONSTANT(CLASS_SPAN_1) CONSTANT(WINDOW_PAGE_MAP) CONSTANT(WINDOW_RETIRED_CACHE) CONSTANT(WARM_STOCKS)              \
    CONSTANT(HUGE_BUCKETS) CONSTANT(HUGE_MAX_RANGES) CONSTANT(POOL_BUCKETS) CONSTANT(POOL_BUCKET_EMPTY)                \
    CONSTANT(POOL_DRAINING_USED) CONSTANT(POOLED_MAX) CONSTANT(CACHE_SLOTS) CONSTANT(CACHE_SLOTS_FIRST) \
        CONSTANT(FAST_MAX) \
    CONSTANT(SLOT_UNUSED) CONSTANT(SLOT_SUPERSLAB) CONSTANT(SLOT_METADATA) CONSTANT(SLOT_FOREIGN)                      \
    CONSTANT(PAGES_HUGE)                                                                                               \
    CONSTANT(SLAB_FREE) CONSTANT(SLAB_WARM) CONSTANT(SLAB_ACTIVE)                                                      \
    CONSTANT(HEAP_UNUSED) CONSTANT(HEAP_LIVE) CONSTANT(HEAP_ORPHAN)                                                    \
    CONSTANT(HEAP_THREAD) CONSTANT(HEAP_HOUSE) CONSTANT(HEAP_FIRST_CLASS) CONSTANT(HEAP_PROFILE) CONSTANT(HEAP_SHARED) \
    CONSTANT(HEAP_LONG) \
    CONSTANT(HAK_DEBUG) CONSTANT(HAK_SECURE)                                                                           \
    TYPE(slot) FIELD(slot, free) FIELD(slot, touched) FIELD(slot, aged) FIELD(slot, aged_ms) FIELD(slot, freed_ms)     \
    FIELD(slot, bucket) FIELD(slot, kind) FIELD(slot, huge_pages) FIELD(slot, decommitted)                             \
    TYPE(shared_pool) FIELD(shared_pool, slots) FIELD(shared_pool, slots_unused) FIELD(shared_pool, slots_committed)   \
    FIELD(shared_pool, slots_foreign) FIELD(shared_pool, prewarmed) FIELD(shared_pool, slabs_taken)                    \
    FIELD(shared_pool, superslabs) FIELD(shared_pool, decommitted) FIELD(shared_pool, dirty_empties)                   \
    FIELD(shared_pool, units_used) FIELD(shared_pool, units_dirty) FIELD(shared_pool, huge_bytes)                      \
    FIELD(shared_pool, footprint_peak) FIELD(shared_pool, next_purge_ms) FIELD(shared_pool, over_soft_limit)           \
    TYPE(superslab) ARRAY(superslab, first_unit) FIELD(superslab, dense) FIELD(superslab, guards)                      \
        ARRAY(superslab, slabs)                                                                                        \
    TYPE(slab) FIELD(slab, owner) FIELD(slab, start) FIELD(slab, summary) FIELD(slab, used) FIELD(slab, blocks)        \
    FIELD(slab, class) FIELD(slab, units) FIELD(slab, state) FIELD(slab, zero) FIELD(slab, populated)                  \
    FIELD(slab, dense) FIELD(slab, scrubbed) FIELD(slab, remote_count) ARRAY(slab, local) ARRAY(slab, remote)          \
    TYPE(heap) FIELD(heap, state) FIELD(heap, id) FIELD(heap, thread_id) FIELD(heap, kind) FIELD(heap, cache)          \
    FIELD(heap, cache_purged) FIELD(heap, next) FIELD(heap, slabs) FIELD(heap, body) FIELD(heap, body_purged)          \
    FIELD(heap, epoch) FIELD(heap, pending_count) FIELD(heap, scope)                                                   \
    TYPE(scope) FIELD(scope, number) FIELD(scope, live) FIELD(scope, cap) FIELD(scope, peak) FIELD(scope, refused)     \
    FIELD(scope, parent) ARRAY(scope, name)                                                                            \
    TYPE(heap_body) ARRAY(heap_body, warm) FIELD(heap_body, counters) ARRAY(heap_body, classes)                        \
    TYPE(warm_stock) FIELD(warm_stock, count) FIELD(warm_stock, budget)                                                \
    TYPE(heap_counters) FIELD(heap_counters, refills) FIELD(heap_counters, refilled_blocks)                            \
    FIELD(heap_counters, flushes) FIELD(heap_counters, flushed_blocks) FIELD(heap_counters, slab_misses)               \
    FIELD(heap_counters, warm_hits)                                                                                    \
    FIELD(heap_counters, warm_misses) FIELD(heap_counters, warm_prefilled) FIELD(heap_counters, slabs_carved)          \
    FIELD(heap_counters, slabs_adopted) FIELD(heap_counters, slabs_released) FIELD(heap_counters, remote_blocks)       \
    FIELD(heap_counters, remote_collected) FIELD(heap_counters, locked_blocks)                                         \
    FIELD(heap_counters, pending_drained) FIELD(heap_counters, pending_requeued)                                       \
    TYPE(account) FIELD(account, counters) ARRAY(account, classes)                                                     \
    TYPE(class_counters) FIELD(class_counters, refills) FIELD(class_counters, refilled_blocks)    \
    FIELD(class_counters, flushes) FIELD(class_counters, flushed_blocks) FIELD(class_counters, returned_blocks)        \
    FIELD(class_counters, carved) FIELD(class_counters, released) FIELD(class_counters, direct)                        \
    FIELD(class_counters, overflows) FIELD(class_counters, malloc_hits) FIELD(class_counters, free_hits)               \
    TYPE(thread_cache) ARRAY(thread_cache, bins) ARRAY(thread_cache, runs) FIELD(thread_cache, heap)                   \
    FIELD(thread_cache, capacity_bytes) FIELD(thread_cache, slow_calls) ARRAY(thread_cache, class_of)                  \
    FIELD(thread_cache, counted) FIELD(thread_cache, spans) ARRAY(thread_cache, slots)                                 \
    ARRAY(thread_cache, seen) ARRAY(thread_cache, base) ARRAY(thread_cache, run_count)                                 \
    TYPE(spans) FIELD(spans, count) ARRAY(spans, span)                                                                 \
    TYPE(bin) FIELD(bin, top) FIELD(bin, limit)                                                                        \
    TYPE(size_class) FIELD(size_class, size) FIELD(size_class, blocks) FIELD(size_class, units)                        \
    FIELD(size_class, first_base) FIELD(size_class, first_limit) FIELD(size_class, slot_base) FIELD(size_class, \
        slot_limit) \
    FIELD(size_class, deep_base) FIELD(size_class, deep_limit)                                                         \
    FIELD(size_class, run_base) FIELD(size_class, run_limit)                                                           \
    TYPE(registry) FIELD(registry, heaps) FIELD(registry, count) FIELD(registry, house)                                \
    FIELD(registry, orphan_count) FIELD(registry, live_threads) FIELD(registry, departed) FIELD(registry, folds)       \
    CONSTANT(MEMORY_IN_USE) CONSTANT(MEMORY_DEAD) CONSTANT(MEMORY_PURGED)                                              \
    TYPE(huge) FIELD(huge, next) FIELD(huge, address) FIELD(huge, size) FIELD(huge, heap)                              \
    TYPE(huge_range) FIELD(huge_range, start) FIELD(huge_range, size) FIELD(huge_range, freed_ms)                      \
    TYPE(huge_inside) FIELD(huge_inside, buckets) FIELD(huge_inside, ranges) FIELD(huge_inside, range_count)           \
    FIELD(huge_inside, range_bytes) FIELD(huge_inside, live_bytes) FIELD(huge_inside, live_blocks)                     \
    TYPE(table_memory) FIELD(table_memory, maps) FIELD(table_memory, bytes)                                            \
    TYPE(table_map) FIELD(table_map, next) FIELD(table_map, bytes)                                                     \
    CONSTANT(STACK_MOST) CONSTANT(WEIGHT_ONE)                                                                          \
    TYPE(profile) FIELD(profile, on) FIELD(profile, generation) FIELD(profile, mean) FIELD(profile, started_ns)        \
    FIELD(profile, by_tables)                                                                                          \
    TYPE(site_list) FIELD(site_list, first) FIELD(site_list, count)                                                    \
    TYPE(site) FIELD(site, next) FIELD(site, labels) FIELD(site, frame_count) FIELD(site, allocated) FIELD(site, \
        in_use) \
    ARRAY(site, lifetimes) ARRAY(site, own_freed)                                                                      \
    FIELD(site, peak) FIELD(site, peak_epoch)                                                                          \
    TYPE(site_size_list) FIELD(site_size_list, first) FIELD(site_size_list, count)                                     \
    TYPE(site_size) FIELD(site_size, next) FIELD(site_size, site) FIELD(site_size, size) FIELD(site_size, allocated)   \
    FIELD(site_size, in_use) FIELD(site_size, peak) FIELD(site_size, peak_epoch)                                       \
    TYPE(table_peak) FIELD(table_peak, epoch) FIELD(table_peak, at_ms) FIELD(table_peak, sampled)                      \
    FIELD(table_peak, bytes) FIELD(table_peak, least) FIELD(table_peak, unseen)                                        \
    TYPE(label_sets) FIELD(label_sets, first) FIELD(label_sets, count)                                                 \
    TYPE(label_set) FIELD(label_set, next) FIELD(label_set, count) FIELD(label_set, text_bytes)                        \
    TYPE(label_item) FIELD(label_item, number) FIELD(label_item, text) FIELD(label_item, kind)                         \
    FIELD(label_item, key_bytes) FIELD(label_item, value_bytes)                                                        \
    CONSTANT(LABEL_IS_NUMBER)                                                                                          \
    TYPE(python_codes) FIELD(python_codes, first) FIELD(python_codes, count)                                           \
    TYPE(python_code) FIELD(python_code, next) FIELD(python_code, id) FIELD(python_code, first_line)                   \
    FIELD(python_code, name_bytes) FIELD(python_code, file_bytes)                                                      \
    TYPE(record_table) FIELD(record_table, places) FIELD(record_table, capacity)                                       \
    TYPE(record) FIELD(record, address) FIELD(record, site) FIELD(record, size)                                        \
    FIELD(record, weight) FIELD(record, foreign) FIELD(record, slack) FIELD(record, beside) \
    TYPE(site_sums) FIELD(site_sums, objects) FIELD(site_sums, bytes)                                                  \
    TYPE(guard) FIELD(guard, start) FIELD(guard, bytes) FIELD(guard, on) FIELD(guard, page) FIELD(guard, count)        \
    FIELD(guard, live) FIELD(guard, allocated) FIELD(guard, reports) FIELD(guard, live_bytes) \
    TYPE(outside) FIELD(outside, magic) FIELD(outside, word) FIELD(outside, settled) CONSTANT(OUTSIDE_ASKED) \
    FIELD(outside, answered) FIELD(outside, error) FIELD(outside, profile_mean) FIELD(outside, profile_ms) \
        FIELD(outside, guard_mean) \
    TYPE(options)

#endif
