//! Protects HAKMEM as the global allocator, in every way in which the standard library calls it.

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

const SIZES: [usize; 9] = [1, 16, 100, 1024, 5000, 40_000, 70_000, 1 << 20, 5 << 20];

unsafe fn is_filled(block: *const u8, size: usize, byte: u8) -> bool {
    std::slice::from_raw_parts(block, size).iter().all(|&found| found == byte)
}

#[test]
fn every_size_and_alignment() {
    for size in SIZES {
        for align in (0..=16).map(|shift| 1usize << shift) {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                for block in [alloc(layout), alloc_zeroed(layout)] {
                    assert!(!block.is_null() && block as usize % align == 0, "{layout:?}");
                    assert!(hakmem::usable_size(block) >= size, "{layout:?}");
                    block.write_bytes(7, size);
                    dealloc(block, layout);
                }
                let zeroed = alloc_zeroed(layout);
                assert!(is_filled(zeroed, size, 0), "{layout:?}");
                dealloc(zeroed, layout);
            }
        }
    }
}

#[test]
fn realloc_keeps_contents_and_alignment() {
    for from in SIZES {
        for to in SIZES {
            for align in [1, 16, 32, 4096] {
                let layout = Layout::from_size_align(from, align).unwrap();
                unsafe {
                    let block = alloc(layout);
                    block.write_bytes(3, from);
                    let changed = realloc(block, layout, to);
                    assert!(!changed.is_null() && changed as usize % align == 0, "{layout:?} to {to}");
                    assert!(is_filled(changed, from.min(to), 3), "{layout:?} to {to}");
                    changed.write_bytes(4, to);
                    dealloc(changed, Layout::from_size_align(to, align).unwrap());
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_had_is_null() {
    let layout = Layout::from_size_align(isize::MAX as usize - 4096, 64).unwrap();
    unsafe {
        // The compiler removes an allocation whose block is unused.
        assert!(black_box(alloc(black_box(layout))).is_null());
        assert!(black_box(alloc_zeroed(black_box(layout))).is_null());
    }
}

#[test]
fn threads_free_each_others_blocks() {
    let (sender, receiver) = mpsc::channel::<Vec<HashMap<usize, String>>>();
    let makers: Vec<_> = (0..4)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    let made = (0..20)
                        .map(|i| (0..i).map(|key| (key, "x".repeat(key * number + round))).collect())
                        .collect();
                    sender.send(made).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut maps = 0;
    for made in receiver {
        maps += made.len();
        for (i, map) in made.iter().enumerate() {
            assert_eq!(map.len(), i);
        }
    }
    for maker in makers {
        maker.join().unwrap();
    }
    assert_eq!(maps, 4 * 50 * 20);
    hakmem::thread_idle();
    hakmem::collect(true);
}

#[cfg(feature = "stats")]
#[test]
fn statistics_are_the_programs() {
    let before = hakmem::stats::get().unwrap();
    let block = vec![1u8; 8 << 20];
    let stats = hakmem::stats::get().unwrap();
    assert_eq!(stats.size as usize, std::mem::size_of::<hakmem::stats::Stats>());
    assert!(stats.huge_allocated > before.huge_allocated && block.len() == 8 << 20);
    for (format, start) in [
        (hakmem::stats::Format::Text, ""),
        (hakmem::stats::Format::Json, "{"),
        (hakmem::stats::Format::Prometheus, "# "),
    ] {
        let mut text = Vec::new();
        hakmem::stats::print(format, &mut text).unwrap();
        assert!(text.len() > 500 && String::from_utf8(text).unwrap().starts_with(start), "{format:?}");
    }
    let mut little = [0u8; 3];
    assert!(hakmem::stats::print(hakmem::stats::Format::Text, &mut &mut little[..]).is_err());
}

#[cfg(feature = "override")]
#[test]
fn c_has_hakmems_malloc() {
    extern "C" {
        fn strdup(text: *const std::ffi::c_char) -> *mut std::ffi::c_char;
        fn free(block: *mut std::ffi::c_void);
    }
    unsafe {
        let copy = strdup(b"a block of the C library's\0".as_ptr().cast());
        assert_eq!(hakmem::usable_size(copy), hakmem::good_size(27));
        free(copy.cast());
    }
}
