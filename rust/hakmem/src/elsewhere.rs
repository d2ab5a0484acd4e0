//! The system's allocator, where HAKMEM does not run.

use std::alloc::{GlobalAlloc, Layout, System};

/// The process's allocator, for `#[global_allocator]`: the system's, because HAKMEM does not run here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

// SAFETY: System keeps GlobalAlloc's contract.
unsafe impl GlobalAlloc for Hakmem {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        System.dealloc(block, layout)
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        System.realloc(block, layout, new_size)
    }
}
