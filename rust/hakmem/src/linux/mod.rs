//! The allocator and its functions, where HAKMEM runs.

mod heap;
#[cfg(feature = "profile")]
pub mod profile;
mod scope;
#[cfg(feature = "stats")]
pub mod stats;

pub use heap::{Heap, OutOfMemory};
pub use scope::{outside_scopes, Scope, Within};

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_void, CStr};

use hakmem_sys as sys;

/// Every block is aligned to this many bytes.
pub(crate) const BLOCK_ALIGN: usize = 16;

/// The process's allocator, for `#[global_allocator]`.
///
/// With debug assertions, freeing a block with a layout that it cannot have ends the program with a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

// SAFETY: hak_malloc and its family keep GlobalAlloc's contract. Blocks have the requested size, and the alignment
// BLOCK_ALIGN or the one given to hak_aligned_alloc. A failure is a null pointer. No call unwinds.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= BLOCK_ALIGN {
            sys::hak_malloc(layout.size()).cast()
        } else {
            sys::hak_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= BLOCK_ALIGN {
            return sys::hak_calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        free(block.cast(), layout)
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= BLOCK_ALIGN {
            return sys::hak_realloc(block.cast(), new_size).cast();
        }
        if sys::hak_expand(block.cast(), new_size) != 0 {
            return block;
        }
        let moved: *mut u8 = sys::hak_aligned_alloc(layout.align(), new_size).cast();
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
            free(block.cast(), layout);
        }
        moved
    }
}

/// HAKMEM finds a block's size itself, so `hak_free` is fastest. The sized functions also check the layout.
#[inline]
pub(crate) unsafe fn free(block: *mut c_void, layout: Layout) {
    if !cfg!(debug_assertions) {
        sys::hak_free(block)
    } else if layout.align() <= BLOCK_ALIGN {
        sys::hak_free_sized(block, layout.size())
    } else {
        sys::hak_free_aligned_sized(block, layout.align(), layout.size())
    }
}

/// The version of the linked HAKMEM.
///
/// ```
/// assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
/// ```
pub fn version() -> &'static str {
    // SAFETY: a constant string of ASCII.
    let text = unsafe { CStr::from_ptr(sys::hak_version()) };
    text.to_str().unwrap_or("")
}

/// The number of bytes that the program may use in the block, at least the requested size.
///
/// `block` must be a live block of HAKMEM. Any other address ends the program with a message.
pub fn usable_size<T>(block: *const T) -> usize {
    // SAFETY: HAKMEM checks the address before it reads anything there.
    unsafe { sys::hak_usable_size(block.cast()) }
}

/// The usable size of a block for a request of `size` bytes. A request for that many bytes wastes nothing.
///
/// ```
/// assert!(hakmem::good_size(100) >= 100);
/// ```
pub fn good_size(size: usize) -> usize {
    // SAFETY: any size is allowed.
    unsafe { sys::hak_good_size(size) }
}

/// Gives the calling thread's free blocks to other threads. With `purge` it also gives the process's free memory back
/// to the system. Returns the bytes given back.
///
/// ```
/// hakmem::collect(true);
/// ```
pub fn collect(purge: bool) -> usize {
    // SAFETY: no condition.
    unsafe { sys::hak_collect(purge) }
}

/// Call it in a thread before a long sleep. Other threads may use its free memory meanwhile.
pub fn thread_idle() {
    // SAFETY: no condition.
    unsafe { sys::hak_thread_idle() }
}
