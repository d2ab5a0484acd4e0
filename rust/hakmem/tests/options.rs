//! Protects compiled-in settings. A program has one set of them, so this is its own test program.
#![cfg(feature = "stats")]

use std::env;
use std::process::Command;

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

hakmem::options!("MEMORY_LIMIT=512M;PURGE_DELAY=77");

const WANTED: &str = "WANTED_LIMIT";

fn limit() -> u64 {
    hakmem::stats::get().unwrap().limit
}

#[test]
fn they_are_in_force_and_the_environment_replaces_them() {
    if let Some(wanted) = env::var_os(WANTED) {
        assert_eq!(limit().to_string(), wanted.to_str().unwrap());
        return;
    }
    assert_eq!(limit(), 512 << 20);
    let output = Command::new(env::current_exe().unwrap())
        .env("HAKMEM_MEMORY_LIMIT", "256M")
        .env(WANTED, (256u64 << 20).to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
