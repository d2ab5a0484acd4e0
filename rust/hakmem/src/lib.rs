//! HAKMEM, a general-purpose memory allocator for Linux, as a Rust program's allocator.
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//!
//! let words: Vec<String> = "each of these is a block".split(' ').map(String::from).collect();
//! assert_eq!(words.len(), 6);
//! assert!(hakmem::usable_size(words[0].as_ptr()) >= 4);
//! ```
//!
//! [`Heap`] is memory of its own that goes at once. The features `stats` and `profile` bring the modules of these names;
//! `override` makes HAKMEM the `malloc` of the C and C++ code in the process, too.
//!
//! A Rust program that does not name the crate does not link it. One that wants `override` alone names it so:
//!
//! ```
//! use hakmem as _;
//! ```

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_void, CStr};

use hakmem_sys as sys;

mod heap;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(feature = "stats")]
pub mod stats;

pub use heap::{Heap, OutOfMemory};

/// Every block is aligned to that many bytes.
const BLOCK_ALIGN: usize = 16;

/// The process's allocator, for `#[global_allocator]`.
///
/// In builds with debug assertions a block that is freed with a layout it cannot have ends the program with a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

// SAFETY: hak_malloc and its family keep GlobalAlloc's contract: blocks are of the size that is asked for and aligned to
// BLOCK_ALIGN, or to what hak_aligned_alloc is told; a failure is a null pointer; no call unwinds.
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

/// HAKMEM finds a block's size itself, so `hak_free` is the quickest way; the sized functions check the layout as well.
#[inline]
unsafe fn free(block: *mut c_void, layout: Layout) {
    if !cfg!(debug_assertions) {
        sys::hak_free(block)
    } else if layout.align() <= BLOCK_ALIGN {
        sys::hak_free_sized(block, layout.size())
    } else {
        sys::hak_free_aligned_sized(block, layout.align(), layout.size())
    }
}

/// The version of the HAKMEM that is linked.
///
/// ```
/// assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
/// ```
pub fn version() -> &'static str {
    // SAFETY: a constant string of ASCII.
    let text = unsafe { CStr::from_ptr(sys::hak_version()) };
    text.to_str().unwrap_or("")
}

/// The bytes of the block at `block` that the program may use, at least what it asked for.
///
/// The address must be that of a block of HAKMEM's that was not freed; another ends the program with a message.
pub fn usable_size<T>(block: *const T) -> usize {
    // SAFETY: HAKMEM checks the address before it reads anything there.
    unsafe { sys::hak_usable_size(block.cast()) }
}

/// The usable size of a block that is asked for with `size` bytes. To ask for so many wastes nothing.
///
/// ```
/// assert!(hakmem::good_size(100) >= 100);
/// ```
pub fn good_size(size: usize) -> usize {
    // SAFETY: any size is allowed.
    unsafe { sys::hak_good_size(size) }
}

/// Gives the calling thread's free blocks to the others; with `purge` also gives the process's free memory back to the
/// system. Returns the bytes that went back.
///
/// ```
/// hakmem::collect(true);
/// ```
pub fn collect(purge: bool) -> usize {
    // SAFETY: no condition.
    unsafe { sys::hak_collect(purge) }
}

/// For a thread that is about to sleep for long: others may use its free memory meanwhile.
pub fn thread_idle() {
    // SAFETY: no condition.
    unsafe { sys::hak_thread_idle() }
}
