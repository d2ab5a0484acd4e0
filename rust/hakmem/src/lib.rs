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
//! A [`Heap`] frees all of its blocks at once. A [`Scope`] is a tenant with a cap. The features `stats` and `profile` add the modules of these names.
//! `override` makes HAKMEM the `malloc` of the C and C++ code in the process, too.
//!
//! A Rust program that does not name the crate does not link it. A program that wants only `override` names it so:
//!
//! ```
//! use hakmem as _;
//! ```
//!
//! HAKMEM runs on Linux on x86-64, aarch64 and riscv64. Elsewhere the crate compiles, [`Hakmem`] is
//! [`std::alloc::System`], and the other items but `options!` are missing.

#[cfg_attr(
    all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ),
    path = "linux/mod.rs"
)]
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    )),
    path = "elsewhere.rs"
)]
mod here;

pub use here::*;

/// Compiles settings into the program: HAKMEM's options without `HAKMEM_`, separated by semicolons.
///
/// A `HAKMEM_` variable of the environment overrides its setting. Use the macro once, in the program's own crate: the
/// linker may ignore it in a library's crate.
///
/// ```
/// #[global_allocator]
/// static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
///
/// hakmem::options!("PURGE_DELAY=100;THP=never");
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! options {
    ($text:literal) => {
        const _: () = {
            const TEXT: &[u8] = concat!($text, "\0").as_bytes();

            #[used]
            #[no_mangle]
            #[allow(non_upper_case_globals)]
            static hakmem_options: [u8; TEXT.len()] = {
                let mut bytes = [0; TEXT.len()];
                let mut i = 0;
                while i < TEXT.len() {
                    bytes[i] = TEXT[i];
                    i += 1;
                }
                bytes
            };
        };
    };
}
