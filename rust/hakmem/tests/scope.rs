//! Protects scopes: the soft cap's callback, how long it lives, and what ends with it.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use hakmem::{outside_scopes, Scope};

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

/// A callback that adds up its calls, and ends with the last clone of the result.
fn count(calls: &Arc<AtomicUsize>) -> impl Fn(usize) + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |live| {
        assert!(live > 100_000);
        drop(vec![0u8; 10_000]); // a callback may allocate, and enter scopes
        drop(outside_scopes().map(|_outside| String::from("outside")));
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn it_is_called_once_a_crossing_from_any_thread_below() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut above = Scope::new("above", 0).unwrap();
    above.on_soft(100_000, count(&calls));
    let below = above.below("below", 0).unwrap();
    thread::scope(|threads| {
        threads.spawn(|| {
            let _inside = below.enter().unwrap();
            let mut kept = vec![0u8; 60_000];
            assert_eq!(calls.load(Ordering::Relaxed), 0);
            drop(vec![0u8; 60_000]);
            assert_eq!(calls.load(Ordering::Relaxed), 1);
            kept.reserve_exact(3_000_000); // grows by realloc
            assert_eq!(calls.load(Ordering::Relaxed), 2);
        });
    });
    drop(below);
    assert_eq!(Arc::strong_count(&calls), 2);
    drop(above);
    assert_eq!(Arc::strong_count(&calls), 1);
}

#[test]
fn it_ends_with_free_all() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut scope = Scope::new("freed", 0).unwrap();
    scope.on_soft(100_000, count(&calls));
    let inside = scope.enter().unwrap();
    mem::forget(vec![0u8; 200_000]);
    drop(inside);
    unsafe { scope.free_all() };
    assert_eq!((calls.load(Ordering::Relaxed), Arc::strong_count(&calls)), (1, 1));
}

#[test]
fn it_outlives_a_scope_that_a_thread_never_leaves() {
    let calls = Arc::new(AtomicUsize::new(0));
    thread::spawn({
        let calls = Arc::clone(&calls);
        move || {
            let mut scope = Scope::new("forgotten", 0).unwrap();
            scope.on_soft(100_000, count(&calls));
            mem::forget(scope.enter().unwrap());
            drop(scope); // the thread is still in it
            drop(vec![0u8; 200_000]);
        }
    })
    .join()
    .unwrap();
    assert_eq!((calls.load(Ordering::Relaxed), Arc::strong_count(&calls)), (1, 2));
}

#[test]
#[should_panic(expected = "one soft cap")]
fn there_is_one() {
    let mut scope = Scope::new("twice", 0).unwrap();
    scope.on_soft(100_000, |_| ());
    scope.on_soft(200_000, |_| ());
}
