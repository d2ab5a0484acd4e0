use core::alloc::Layout;
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;

use hakmem_sys as sys;

use super::{free, BLOCK_ALIGN};

/// There is no memory for a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

impl std::error::Error for OutOfMemory {}

/// A first-class heap. Dropping it frees all of its blocks.
///
/// Any thread may allocate in it and free its blocks. With the feature `allocator-api2` a `&Heap` is an allocator:
///
/// ```
/// # #[cfg(feature = "allocator-api2")] {
/// use allocator_api2::{boxed::Box, vec::Vec};
///
/// let heap = hakmem::Heap::new()?;
/// let mut numbers = Vec::new_in(&heap);
/// numbers.extend(0..1000);
/// let one = Box::new_in(1, &heap);
/// assert!(heap.contains(numbers.as_ptr()) && heap.contains(&*one));
/// # }
/// # Ok::<(), hakmem::OutOfMemory>(())
/// ```
///
/// A value in a heap cannot outlive the heap:
///
/// ```compile_fail,E0505
/// let heap = hakmem::Heap::new().unwrap();
/// let kept = allocator_api2::boxed::Box::new_in(1, &heap);
/// drop(heap);
/// println!("{kept}");
/// ```
pub struct Heap {
    inner: NonNull<sys::hak_heap_t>,
}

// SAFETY: hakmem.h: any thread may allocate in a heap, under the heap's own lock, and any thread may free its blocks.
unsafe impl Send for Heap {}
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    pub fn new() -> Result<Heap, OutOfMemory> {
        // SAFETY: no condition.
        let inner = unsafe { sys::hak_heap_new() };
        NonNull::new(inner).map(|inner| Heap { inner }).ok_or(OutOfMemory)
    }

    /// Allocates a block in the heap. Returns `None` when there is no memory, or the size is 0.
    ///
    /// [`free`](Heap::free) frees the block, and so does dropping the heap.
    ///
    /// ```
    /// use std::alloc::Layout;
    ///
    /// let heap = hakmem::Heap::new()?;
    /// let block = heap.allocate(Layout::new::<[u64; 4]>()).unwrap();
    /// assert!(heap.contains(block.as_ptr()));
    /// # Ok::<(), hakmem::OutOfMemory>(())
    /// ```
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the heap lives.
        NonNull::new(unsafe { self.block(layout) }.cast())
    }

    /// Frees a block of the heap before the heap is dropped.
    ///
    /// # Safety
    ///
    /// `block` is from this heap with this layout, and is not used any more.
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        free(block.as_ptr().cast(), layout)
    }

    /// Whether `block` is in this heap. It must be a live block of HAKMEM.
    pub fn contains<T>(&self, block: *const T) -> bool {
        // SAFETY: HAKMEM checks the address before it reads anything there.
        unsafe { sys::hak_heap_of(block.cast()) == self.inner.as_ptr() }
    }

    unsafe fn block(&self, layout: Layout) -> *mut c_void {
        if layout.align() <= BLOCK_ALIGN {
            sys::hak_heap_malloc(self.inner.as_ptr(), layout.size())
        } else {
            sys::hak_heap_aligned_alloc(self.inner.as_ptr(), layout.align(), layout.size())
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: no borrow of the heap is left. The caller of `allocate` no longer uses its blocks.
        unsafe { sys::hak_heap_destroy(self.inner.as_ptr()) }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").finish_non_exhaustive()
    }
}

#[cfg(feature = "allocator-api2")]
mod api {
    use super::*;
    use allocator_api2::alloc::{AllocError, Allocator};

    fn empty(layout: Layout) -> NonNull<[u8]> {
        // SAFETY: an alignment is not 0.
        let place = unsafe { NonNull::new_unchecked(layout.align() as *mut u8) };
        NonNull::slice_from_raw_parts(place, 0)
    }

    fn given(block: *mut c_void, size: usize) -> Result<NonNull<[u8]>, AllocError> {
        let block = NonNull::new(block.cast()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, size))
    }

    impl Heap {
        unsafe fn change(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if old.size() == 0 {
                return <&Heap as Allocator>::allocate(&self, new);
            }
            if new.size() == 0 {
                self.deallocate(block, old);
                return Ok(empty(new));
            }
            if old.align().max(new.align()) <= BLOCK_ALIGN {
                let changed = sys::hak_heap_realloc(self.inner.as_ptr(), block.as_ptr().cast(), new.size());
                return given(changed, new.size());
            }
            let moved = <&Heap as Allocator>::allocate(&self, new)?;
            let bytes = old.size().min(new.size());
            moved.cast::<u8>().as_ptr().copy_from_nonoverlapping(block.as_ptr(), bytes);
            self.deallocate(block, old);
            Ok(moved)
        }
    }

    // SAFETY: a block stays in place until it is freed or the heap dropped. No copy of the reference outlives the heap.
    unsafe impl Allocator for &Heap {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                return Ok(empty(layout));
            }
            given(unsafe { self.block(layout) }, layout.size())
        }

        fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() != 0 && layout.align() <= BLOCK_ALIGN {
                let block = unsafe { sys::hak_heap_calloc(self.inner.as_ptr(), 1, layout.size()) };
                return given(block, layout.size());
            }
            let block = <&Heap as Allocator>::allocate(self, layout)?;
            // SAFETY: the block has that many bytes.
            unsafe { block.cast::<u8>().as_ptr().write_bytes(0, layout.size()) };
            Ok(block)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            if layout.size() != 0 {
                self.free(block, layout)
            }
        }

        unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.change(block, old, new)
        }

        unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.change(block, old, new)
        }
    }
}
