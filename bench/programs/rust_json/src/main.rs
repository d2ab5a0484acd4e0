//! JSON documents are generated as text, parsed into trees, edited and printed again, with serde_json. What is printed
//! last is parsed once more and must be the tree that was printed. Prints a checksum, which no allocator changes, and
//! fails when it is not the one that is expected.

use std::alloc::System;
use std::process::exit;

use serde_json::{json, Map, Value};

/// The system's malloc, or what is preloaded in its place.
#[global_allocator]
static ALLOCATOR: System = System;

const USAGE: &str = "usage: bench_rust_json [DOCUMENTS] [RECORDS] [SEED] [CHECKSUM]
  parses, edits and prints DOCUMENTS of about RECORDS records (default 80 400 42); fails when CHECKSUM is given and not
  what comes out";
const LIVE: usize = 8;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((bits * u64::from(limit)) >> 32) as u32
    }

    fn word(&mut self) -> String {
        let length = 2 + self.below(14);
        (0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    fn sentence(&mut self) -> String {
        let words = 1 + self.below(12);
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

/// One record, as text; quotes and newlines make the parser unescape.
fn record_text(random: &mut Random, number: u32) -> String {
    let tags: Vec<String> = (0..random.below(6)).map(|_| format!("\"{}\"", random.word())).collect();
    let places: Vec<String> = (0..random.below(4))
        .map(|_| {
            format!(
                "{{\"name\": \"{}\", \"at\": [{}.5, -{}.25], \"open\": {}}}",
                random.word(),
                random.below(180),
                random.below(90),
                random.below(2) == 0
            )
        })
        .collect();
    format!(
        "{{\"id\": {}, \"name\": \"{}\", \"note\": \"{}\\n\\\"{}\\\"\", \"tags\": [{}], \"places\": [{}], \"parent\": null}}",
        number,
        random.word(),
        random.sentence(),
        random.word(),
        tags.join(", "),
        places.join(", ")
    )
}

fn document_text(random: &mut Random, records: u32) -> String {
    let count = records / 2 + random.below(records + 1);
    let texts: Vec<String> = (0..count).map(|number| record_text(random, number)).collect();
    format!("{{\"title\": \"{}\", \"records\": [\n{}\n]}}", random.sentence(), texts.join(",\n"))
}

fn records_of(document: &mut Value) -> &mut Vec<Value> {
    match document.get_mut("records") {
        Some(Value::Array(records)) => records,
        _ => fail("a document lost its records"),
    }
}

/// Removes a third of the records, changes another, and adds an index of names.
fn edit(random: &mut Random, document: &mut Value) {
    let records = records_of(document);
    records.retain(|_| random.below(3) != 0);
    for record in records.iter_mut() {
        if random.below(2) == 0 {
            continue;
        }
        record["note"] = Value::String(random.sentence());
        record["parent"] = json!({ "id": random.below(1000), "names": [random.word(), random.word()] });
        if let Some(Value::Array(tags)) = record.get_mut("tags") {
            tags.push(Value::String(random.word()));
        }
    }
    let mut index = Map::new();
    for record in records.iter() {
        if let (Some(name), Some(id)) = (record["name"].as_str(), record["id"].as_u64()) {
            index.insert(name.to_string(), json!(id));
        }
    }
    document["index"] = Value::Object(index);
}

fn hash_of(text: &str, hash: u64) -> u64 {
    text.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

fn fail(message: &str) -> ! {
    eprintln!("bench_rust_json: {}", message);
    exit(1)
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| fail(&format!("a document lost its contents: {}", error)))
}

fn print(document: &Value) -> String {
    serde_json::to_string(document).unwrap_or_else(|error| fail(&format!("a document cannot be printed: {}", error)))
}

fn argument(arguments: &[String], index: usize, name: &str, fallback: u32) -> u32 {
    match arguments.get(index) {
        None => fallback,
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("bench_rust_json: {} must be a number from 0 to {}, not '{}'", name, u32::MAX, text);
            exit(2)
        }),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map_or(false, |first| first == "--help" || first == "-h") {
        println!("{}", USAGE);
        return;
    }
    if arguments.len() > 4 {
        eprintln!("{}", USAGE);
        exit(2);
    }
    let documents = argument(&arguments, 0, "DOCUMENTS", 80);
    let records = argument(&arguments, 1, "RECORDS", 400).min(1_000_000);
    let mut random = Random::new(u64::from(argument(&arguments, 2, "SEED", 42)));
    // Some documents live on while others come and go.
    let mut live: Vec<Value> = Vec::new();
    let mut hash = 0xCBF2_9CE4_8422_2325;

    for _ in 0..documents {
        let text = document_text(&mut random, records);
        let mut document = parse(&text);
        drop(text);
        edit(&mut random, &mut document);
        hash = hash_of(&print(&document), hash);
        if live.len() < LIVE {
            live.push(document);
        } else {
            live[random.below(LIVE as u32) as usize] = document;
        }
    }
    for document in &live {
        let text = print(document);
        if parse(&text) != *document {
            fail("a document lost its contents");
        }
        hash = hash_of(&text, hash);
    }
    let checksum = format!("{:016x}", hash);
    println!("documents={} checksum={}", documents, checksum);
    if let Some(expected) = arguments.get(3).filter(|expected| **expected != checksum) {
        fail(&format!("CHECKSUM is {}, not '{}'", checksum, expected));
    }
}
