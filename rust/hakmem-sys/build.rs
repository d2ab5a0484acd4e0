//! Compiles HAKMEM's one-file source from vendor/. In a checkout of HAKMEM it makes the file first.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with hakmem.c.
fn source_folder() -> PathBuf {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let vendor = package.join("vendor");
    if vendor.join("hakmem.c").is_file() {
        println!("cargo:rerun-if-changed={}", vendor.display());
        return vendor;
    }
    let checkout = package.join("../..");
    let script = checkout.join("tools/amalgamate.py");
    assert!(
        script.is_file(),
        "there is no {}/hakmem.c; make it with `hakmem crates`",
        vendor.display()
    );
    for part in ["tools/amalgamate.py", "src", "include"] {
        println!("cargo:rerun-if-changed={}", checkout.join(part).display());
    }
    let made = Path::new(&env::var_os("OUT_DIR").unwrap()).join("source");
    let status = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(&script)
        .arg(&made)
        .status()
        .expect("python3 makes hakmem.c in a checkout of HAKMEM");
    assert!(status.success(), "{} failed", script.display());
    made
}

fn main() {
    let target = env::var("CARGO_CFG_TARGET_OS").unwrap();
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    if target != "linux" || !["x86_64", "aarch64", "riscv64"].contains(&machine.as_str()) {
        return; // the crate hakmem takes the system's allocator there
    }
    let mut build = cc::Build::new();
    // An allocator without optimisation would slow down the program's debug build.
    build.opt_level(2);
    if env::var_os("CARGO_FEATURE_OVERRIDE").is_some() {
        // Perhaps only C code refers to the archive, too late for the linker to search it again.
        build
            .define("HAKMEM_OVERRIDE", "1")
            .link_lib_modifier("+whole-archive");
    }
    // With a command of its own, because cc puts CFLAGS last: rustc finds no symbols in an object of -flto, and only the
    // linker of the same compiler can read it.
    let object = Path::new(&env::var_os("OUT_DIR").unwrap()).join("hakmem.o");
    let mut command = build.get_compiler().to_command();
    if env::var("CARGO_CFG_TARGET_ENV").unwrap() == "musl" {
        // The kernel's headers: Debian's musl-gcc looks for none. What musl has comes before them.
        command.args(["-idirafter", "/usr/include", "-idirafter"]);
        command.arg(format!("/usr/include/{machine}-linux-gnu"));
    }
    let status = command
        .args(["-fno-lto", "-c", "-o"])
        .arg(&object)
        .arg(source_folder().join("hakmem.c"))
        .status()
        .expect("a C compiler compiles hakmem.c");
    assert!(status.success(), "the C compiler failed");
    build.object(&object).compile("hakmem");
}
