//! What Rust programs do much of: JSON (serde_json), messages between tasks (tokio), a parallel sort (rayon). The
//! allocator is a crate, chosen when the program is built. Each load prints a checksum, which no allocator changes, and
//! fails when it is not the one that is expected.

use std::env;
use std::process::exit;

use rayon::prelude::*;
use serde_json::{json, Map, Value};
use tokio::sync::{mpsc, oneshot};

#[cfg(feature = "hakmem")]
#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: bench_rust_crates json|channel|sort AMOUNT [CHECKSUM]
  json     parses, edits and prints AMOUNT documents
  channel  AMOUNT requests of eight tasks to four others, each with an answer
  sort     sorts AMOUNT strings in parallel, and groups them";

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % limit
    }

    fn word(&mut self, longest: u64) -> String {
        let length = 2 + self.below(longest);
        (0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

/// FNV-1a.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

fn json_load(amount: u64) -> u64 {
    let mut random = Random(42);
    let records: Vec<Value> = (0..300)
        .map(|number| {
            let tags: Vec<String> = (0..random.below(6)).map(|_| random.word(14)).collect();
            json!({"id": number, "name": random.word(20), "note": random.word(80), "tags": tags, "at": [1.5, -2.25]})
        })
        .collect();
    let text = Value::from(records).to_string();
    let mut sum = EMPTY;
    for turn in 0..amount {
        let mut document: Value = serde_json::from_str(&text).expect("the text is JSON");
        for record in document.as_array_mut().expect("an array") {
            let fields = record.as_object_mut().expect("an object");
            let mut more = Map::new();
            more.insert(random.word(10), Value::from(turn));
            fields.insert("more".to_string(), Value::from(more));
            fields.remove("tags");
        }
        sum = add(sum, document.to_string().as_bytes());
    }
    sum
}

struct Request {
    body: Vec<u8>,
    answer: oneshot::Sender<String>,
}

fn channel_load(amount: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("threads");
    runtime.block_on(async {
        let mut servers = Vec::new();
        for _ in 0..4 {
            let (sender, mut requests) = mpsc::channel::<Request>(64);
            tokio::spawn(async move {
                while let Some(request) = requests.recv().await {
                    let _ = request.answer.send(format!("{:x}", add(EMPTY, &request.body)));
                }
            });
            servers.push(sender);
        }
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let servers = servers.clone();
                tokio::spawn(async move {
                    let mut random = Random(42 + number);
                    let mut sum = 0u64;
                    for turn in 0..amount / 8 {
                        let body = random.word(400).into_bytes();
                        let (answer, answered) = oneshot::channel();
                        let server = &servers[(turn % 4) as usize];
                        server.send(Request { body, answer }).await.ok().expect("a server");
                        sum = sum.wrapping_add(add(EMPTY, answered.await.expect("an answer").as_bytes()));
                    }
                    sum
                })
            })
            .collect();
        let mut sum = 0u64;
        for client in clients {
            sum = sum.wrapping_add(client.await.expect("a client"));
        }
        sum
    })
}

fn sort_load(amount: u64) -> u64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    pool.install(|| {
        let mut words: Vec<String> =
            (0..amount).into_par_iter().map(|number| Random(number + 42).word(40)).collect();
        words.par_sort();
        let groups: Vec<Vec<String>> = words
            .par_chunk_by(|a, b| a.as_bytes()[..2] == b.as_bytes()[..2])
            .map(|group| group.iter().map(|word| word.to_uppercase()).collect())
            .collect();
        groups.iter().flatten().fold(EMPTY, |sum, word| add(sum, word.as_bytes()))
    })
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let amount = arguments.get(2).and_then(|text| text.parse().ok());
    let load = match arguments.get(1).map(String::as_str) {
        Some("json") => json_load,
        Some("channel") => channel_load,
        Some("sort") => sort_load,
        _ => {
            eprintln!("{USAGE}");
            exit(2)
        }
    };
    let Some(amount) = amount else {
        eprintln!("{USAGE}");
        exit(2)
    };
    let sum = format!("{:016x}", load(amount));
    println!("{sum}");
    if arguments.get(3).is_some_and(|wanted| *wanted != sum) {
        eprintln!("bench_rust_crates: the checksum is {sum}, not {}", arguments[3]);
        exit(1);
    }
}
