//! Collections, strings, threads and channels of Rust's standard library, whose system allocator is malloc.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

#[repr(align(128))]
struct Wide([u8; 200]);

fn work(seed: u64) -> u64 {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let mut table: HashMap<u64, String> = HashMap::new();
    let mut tree: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut queue: VecDeque<Box<[u8]>> = VecDeque::new();
    for i in 0..30_000u64 {
        let key = next() % 5000;
        table.entry(key).or_default().push_str(&i.to_string());
        tree.entry(format!("key{}", key % 700)).or_default().push(i);
        queue.push_back(vec![key as u8; (next() % 3000) as usize].into_boxed_slice());
        if queue.len() > 500 {
            queue.pop_front();
        }
        if i % 7 == 0 {
            table.remove(&(key / 2));
            tree.remove(&format!("key{}", key % 699));
        }
    }
    let wide: Vec<Box<Wide>> = (0..300).map(|i| Box::new(Wide([i as u8; 200]))).collect();
    assert!(wide.iter().all(|w| (&**w as *const Wide as usize) % 128 == 0 && w.0[7] == w.0[199]));
    let strings: usize = table.values().map(String::len).sum();
    let lists: u64 = tree.values().flatten().sum();
    strings as u64 ^ lists ^ queue.iter().map(|b| b.iter().map(|&x| x as u64).sum::<u64>()).sum::<u64>()
}

fn main() {
    let shared = Arc::new(Mutex::new(BTreeMap::new()));
    let (sender, receiver) = mpsc::channel::<(u64, Vec<String>)>();
    let workers: Vec<_> = (0..6)
        .map(|n| {
            let (shared, sender) = (shared.clone(), sender.clone());
            thread::spawn(move || {
                let answer = work(n + 1);
                shared.lock().unwrap().insert(n, answer);
                for i in 0..2000u64 {
                    // Made here. The receiver drops it.
                    sender.send((n, vec!["m".repeat((i % 200) as usize); (i % 5) as usize])).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut bytes = 0;
    for (_, list) in receiver {
        bytes += list.iter().map(String::len).sum::<usize>();
    }
    for worker in workers {
        worker.join().unwrap();
    }
    println!("{:?} {}", shared.lock().unwrap(), bytes);
    let caught = thread::spawn(|| { if work(9) > 0 { std::panic::resume_unwind(Box::new(5)) } }).join();
    println!("{}", caught.is_err());
    let mut big: Vec<u64> = Vec::new();
    for i in 0..3_000_000 {
        big.push(i);
    }
    big.truncate(1000);
    big.shrink_to_fit();
    println!("{}", big.iter().sum::<u64>());
    println!("{}", Vec::<u8>::new().try_reserve(isize::MAX as usize).is_err());
}
