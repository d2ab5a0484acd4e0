//! Protects first-class heaps beside the system's allocator.
#![cfg(feature = "allocator-api2")]

use std::alloc::Layout;
use std::thread;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hakmem::Heap;

#[test]
fn vectors_grow_and_shrink_in_it() {
    let heap = Heap::new().unwrap();
    let mut numbers = Vec::new_in(&heap);
    for number in 0..200_000u64 {
        numbers.push(number);
    }
    assert!(heap.contains(numbers.as_ptr()));
    numbers.truncate(100);
    numbers.shrink_to_fit();
    assert!(heap.contains(numbers.as_ptr()) && numbers.iter().copied().eq(0..100));
    numbers.clear();
    numbers.shrink_to_fit();
    assert_eq!(numbers.capacity(), 0);
}

#[test]
fn alignments_zeroes_and_nothing() {
    let heap = &Heap::new().unwrap();
    for size in [0, 1, 40, 3000, 100_000] {
        for align in [1, 8, 16, 64, 4096] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let larger = Layout::from_size_align(2 * size + 1, align).unwrap();
            unsafe {
                let block = heap.allocate_zeroed(layout).unwrap();
                assert_eq!((block.len(), block.cast::<u8>().as_ptr() as usize % align), (size, 0));
                assert!(block.as_ref().iter().all(|&byte| byte == 0));
                let grown = heap.grow_zeroed(block.cast(), layout, larger).unwrap();
                assert_eq!((grown.len(), grown.cast::<u8>().as_ptr() as usize % align), (2 * size + 1, 0));
                assert!(grown.as_ref().iter().all(|&byte| byte == 0));
                let shrunk = heap.shrink(grown.cast(), larger, layout).unwrap();
                heap.deallocate(shrunk.cast(), layout);
            }
        }
    }
}

#[test]
fn its_memory_goes_with_it_and_other_heaps_stay() {
    let kept = Heap::new().unwrap();
    let value = Box::new_in([5u8; 1000], &kept);
    for _ in 0..50 {
        let heap = Heap::new().unwrap();
        for size in 1..200 {
            let block = heap.allocate(Layout::from_size_align(size * 50, 8).unwrap()).unwrap();
            assert!(heap.contains(block.as_ptr()) && !kept.contains(block.as_ptr()));
        }
    }
    assert!(*value == [5; 1000] && kept.contains(&*value));
}

#[test]
fn threads_share_it() {
    let heap = Heap::new().unwrap();
    let made: std::vec::Vec<_> = thread::scope(|scope| {
        let makers: std::vec::Vec<_> = (0..4u64)
            .map(|number| {
                let heap = &heap;
                scope.spawn(move || (0..2000).map(|i| Box::new_in(number * 10_000 + i, heap)).collect::<std::vec::Vec<_>>())
            })
            .collect();
        makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect()
    });
    assert_eq!(made.iter().map(|number| **number).sum::<u64>(), (0..4).map(|n| n * 10_000 * 2000 + 1999 * 1000).sum());
}
