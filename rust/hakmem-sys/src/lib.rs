//! Declarations of HAKMEM's C functions. hakmem.h, beside the C source, documents them.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_uint, c_void};

/// A first-class heap; only its address is known.
#[repr(C)]
pub struct hak_heap_t {
    _private: [u8; 0],
    _not_rusts: core::marker::PhantomData<*mut u8>,
}

/// A scope; only its address is known.
#[repr(C)]
pub struct hak_scope_t {
    _private: [u8; 0],
    _not_rusts: core::marker::PhantomData<*mut u8>,
}

pub type hak_scope_over =
    Option<unsafe extern "C" fn(scope: *mut hak_scope_t, live: usize, argument: *mut c_void)>;

pub type hak_pressure_handler = Option<unsafe extern "C" fn(bytes_mapped: usize, bytes_limit: usize)>;

extern "C" {
    pub fn hak_version() -> *const c_char;

    pub fn hak_malloc(size: usize) -> *mut c_void;
    pub fn hak_free(block: *mut c_void);
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hak_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub fn hak_usable_size(block: *const c_void) -> usize;
    pub fn hak_good_size(size: usize) -> usize;
    pub fn hak_free_sized(block: *mut c_void, size: usize);
    pub fn hak_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize);
    pub fn hak_alloc_at(size: usize, site: *const c_void) -> *mut c_void;
    pub fn hak_expand(block: *mut c_void, size: usize) -> usize;
    pub fn hak_malloc_batch(size: usize, count: usize, blocks: *mut *mut c_void) -> usize;
    pub fn hak_free_batch(blocks: *const *mut c_void, count: usize);

    pub fn hak_collect(purge: bool) -> usize;
    pub fn hak_thread_idle();
    pub fn hak_set_pressure_handler(handler: hak_pressure_handler) -> hak_pressure_handler;

    pub fn hak_heap_new() -> *mut hak_heap_t;
    pub fn hak_heap_malloc(heap: *mut hak_heap_t, size: usize) -> *mut c_void;
    pub fn hak_heap_calloc(heap: *mut hak_heap_t, count: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_aligned_alloc(heap: *mut hak_heap_t, alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_heap_realloc(heap: *mut hak_heap_t, block: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_heap_of(block: *const c_void) -> *mut hak_heap_t;
    pub fn hak_heap_destroy(heap: *mut hak_heap_t);

    pub fn hak_stats_get(stats: *mut hak_stats, size: usize) -> usize;
    pub fn hak_stats_classes(rows: *mut hak_stats_class, row_size: usize, capacity: usize) -> usize;
    pub fn hak_stats_heaps(rows: *mut hak_stats_heap, row_size: usize, capacity: usize) -> usize;
    pub fn hak_stats_superslabs(rows: *mut hak_stats_superslab, row_size: usize, capacity: usize) -> usize;
    pub fn hak_stats_print(format: c_int, write: hak_stats_write, argument: *mut c_void) -> c_int;

    pub fn hak_profile_start(mean: usize) -> c_int;
    pub fn hak_profile_stop();
    pub fn hak_profile_write(path: *const c_char) -> c_int;
    pub fn hak_profile_write_fd(fd: c_int) -> c_int;
    pub fn hak_profile_label(key: *const c_char, text: *const c_char) -> c_int;
    pub fn hak_profile_label_number(key: *const c_char, number: i64, unit: *const c_char) -> c_int;
    pub fn hak_profile_label_clear() -> c_int;
    pub fn hak_profile_scope_begin() -> c_uint;
    pub fn hak_profile_scope_end(scope: c_uint);

    pub fn hak_guard_start(mean: usize) -> c_int;
    pub fn hak_guard_stop();

    pub fn hak_scope_new(name: *const c_char, parent: *mut hak_scope_t, cap: usize) -> *mut hak_scope_t;
    pub fn hak_scope_set_cap(scope: *mut hak_scope_t, cap: usize);
    pub fn hak_scope_on_soft(scope: *mut hak_scope_t, soft: usize, over: hak_scope_over, argument: *mut c_void);
    pub fn hak_scope_enter(scope: *mut hak_scope_t) -> c_int;
    pub fn hak_scope_leave(scope: *mut hak_scope_t);
    pub fn hak_scope_current() -> *mut hak_scope_t;
    pub fn hak_scope_of(block: *const c_void) -> *mut hak_scope_t;
    pub fn hak_scope_destroy(scope: *mut hak_scope_t, blocks: c_uint) -> c_int;
    pub fn hak_scope_get(scope: *mut hak_scope_t, stats: *mut hak_scope_stats, size: usize) -> usize;
    pub fn hak_scope_list(rows: *mut hak_scope_stats, row_size: usize, capacity: usize) -> usize;
    pub fn hak_scope_resident(scope: *mut hak_scope_t) -> usize;
}

pub const HAK_SCOPE_FREE: c_uint = 1;
pub const HAK_SCOPE_KEEP: c_uint = 2;
pub const HAK_SCOPE_NAME_MOST: usize = 47;

/// `struct hak_scope_stats` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct hak_scope_stats {
    pub number: u64,
    pub parent: u64,
    pub live: u64,
    pub own: u64,
    pub held: u64,
    pub peak: u64,
    pub cap: u64,
    pub soft: u64,
    pub refused: u64,
    pub threads: u64,
    pub closed: u64,
    pub name: [c_char; HAK_SCOPE_NAME_MOST + 1],
}

impl Default for hak_scope_stats {
    fn default() -> Self {
        // SAFETY: every member may be 0.
        unsafe { core::mem::zeroed() }
    }
}

pub const HAK_STATS_TEXT: c_int = 1;
pub const HAK_STATS_JSON: c_int = 2;
pub const HAK_STATS_PROMETHEUS: c_int = 3;

pub type hak_stats_write =
    Option<unsafe extern "C" fn(argument: *mut c_void, text: *const c_char, length: usize) -> c_int>;

/// `struct hak_stats_pool` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_pool {
    pub slabs: u64,
    pub slab_bytes: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub cached_blocks: u64,
    pub cached_bytes: u64,
    pub free_blocks: u64,
    pub free_bytes: u64,
}

/// `struct hak_stats` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats {
    pub size: u64,
    pub version: u64,
    pub mapped: u64,
    pub live: u64,
    pub cached: u64,
    pub free_in_slab: u64,
    pub retained: u64,
    pub metadata: u64,
    pub purged: u64,
    pub footprint_peak: u64,
    pub limit: u64,
    pub superslabs: u64,
    pub superslabs_full: u64,
    pub superslabs_hot: u64,
    pub superslabs_draining: u64,
    pub superslabs_empty: u64,
    pub heaps_live: u64,
    pub heaps_orphan: u64,
    pub heaps_first_class: u64,
    pub small: hak_stats_pool,
    pub medium: hak_stats_pool,
    pub spans: hak_stats_pool,
    pub huge: hak_stats_pool,
    pub refills: u64,
    pub refilled_blocks: u64,
    pub flushes: u64,
    pub flushed_blocks: u64,
    pub returned_blocks: u64,
    pub malloc_misses: u64,
    pub free_overflows: u64,
    pub slabs_carved: u64,
    pub slabs_released: u64,
    pub slabs_adopted: u64,
    pub warm_hits: u64,
    pub warm_misses: u64,
    pub warm_prefilled: u64,
    pub remote_out: u64,
    pub remote_in: u64,
    pub remote_locked: u64,
    pub pending_enqueued: u64,
    pub pending_drained: u64,
    pub pending_requeued: u64,
    pub pending: u64,
    pub lru_entered: u64,
    pub lru_reused: u64,
    pub lru_purged: u64,
    pub prewarmed: u64,
    pub purged_bytes: u64,
    pub huge_allocated: u64,
    pub huge_freed: u64,
    pub huge_reused: u64,
    pub remote_blocks: u64,
    pub malloc_hits: u64,
    pub free_hits: u64,
    pub malloc_coverage: u64,
    pub free_coverage: u64,
    pub faults_soft: u64,
    pub faults_hard: u64,
    pub resident: u64,
    pub resident_change: i64,
    pub faults_soft_recent: u64,
    pub faults_hard_recent: u64,
    pub resident_change_recent: i64,
    pub touched_pages: u64,
    pub heap_profile: u64,
    pub heap_profile_samples: u64,
    pub guard_live: u64,
    pub guard_allocated: u64,
    pub guard_reports: u64,
}

/// `struct hak_stats_class` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_class {
    pub block_size: u64,
    pub slabs: u64,
    pub live_blocks: u64,
    pub cached_blocks: u64,
    pub free_blocks: u64,
    pub refills: u64,
    pub refilled_blocks: u64,
    pub flushes: u64,
    pub flushed_blocks: u64,
    pub returned_blocks: u64,
    pub malloc_misses: u64,
    pub free_overflows: u64,
    pub malloc_hits: u64,
    pub free_hits: u64,
    pub slabs_carved: u64,
    pub slabs_released: u64,
    pub remote_blocks: u64,
}

/// `struct hak_stats_heap` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_heap {
    pub number: u64,
    pub thread: u64,
    pub kind: u64,
    pub live: u64,
    pub slabs: u64,
    pub slab_bytes: u64,
    pub warm_slabs: u64,
    pub used_bytes: u64,
    pub cached_bytes: u64,
    pub refills: u64,
    pub refilled_blocks: u64,
    pub flushes: u64,
    pub flushed_blocks: u64,
    pub returned_blocks: u64,
    pub malloc_misses: u64,
    pub free_overflows: u64,
    pub malloc_hits: u64,
    pub free_hits: u64,
    pub remote_out: u64,
    pub remote_in: u64,
    pub remote_locked: u64,
    pub pending: u64,
    pub pending_drained: u64,
    pub pending_requeued: u64,
    pub slabs_adopted: u64,
}

/// `struct hak_stats_superslab` of hakmem.h, which explains the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats_superslab {
    pub number: u64,
    pub address: u64,
    pub tier: u64,
    pub used_units: u64,
    pub free_units: u64,
    pub dirty_units: u64,
    pub classes: u64,
    pub huge_pages: u64,
}
