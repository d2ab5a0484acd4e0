"""Protects the Rust crates of `hakmem crates`: their tests and examples, packaging, and declarations (hakmem.h's)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import blackbox

COMMAND = blackbox.REPOSITORY / "hakmem"
CRATES = blackbox.REPOSITORY / "rust"
CRATE_VERSION = re.compile(r'^version = "(.+)"$', re.M)


def cargo(*arguments, folder, **env):
    """Runs cargo without variables that change the build. Crates come from cargo's own store once they are there."""
    tool = shutil.which("cargo") or Path.home() / ".cargo/bin/cargo"
    assert Path(tool).exists(), "cargo is not installed"
    cache = blackbox.compile_cache(folder.parent)
    path = os.pathsep.join([str(Path(tool).parent), cache.pop("PATH", os.environ["PATH"])])
    return blackbox.run([tool, *arguments], cwd=folder, timeout=240,
                        env={"PATH": path, "CARGO_TERM_COLOR": "never", **cache, **env})


# The compiler's last word on optimisation, which takes most of its time. For tests that run nothing of what they build.
UNOPTIMISED = {"CFLAGS": "-O0"}


def good(result):
    assert result.status == 0, result.report()
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def crates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crates")
    made = blackbox.run([COMMAND, "crates", folder], cwd="/")
    assert made.status == 0 and f"the crates are in {folder}" in made.stderr, made.report()
    if cargo("fetch", "--locked", "--offline", folder=folder).status != 0:
        good(cargo("fetch", "--locked", folder=folder))
    return folder


@pytest.mark.parametrize("features, tests", [
    (["--release", "--no-default-features"], {"global": 4, "heap": 0, "options": 0, "scope": 4}),
    (["--all-features"], {"global": 6, "heap": 4, "options": 1, "scope": 4}),
], ids=" ".join)
def test_their_own_tests(crates, features, tests):
    """Also where the C code of all crates is compiled for an optimiser of the whole program."""
    said = good(cargo("test", "--offline", "--locked", *features, folder=crates, RUSTFLAGS="-D warnings",
                      CFLAGS="-flto"))
    ran = numbers(said)
    assert {name: ran[name] for name in tests} == tests, said
    assert ran["Doc-tests hakmem"] >= 6


ELSEWHERE = ("x86_64-pc-windows-gnu", "x86_64-apple-darwin")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_elsewhere_it_is_the_systems_allocator(crates, tmp_path, target):
    """A crate for all systems can depend on it."""
    libraries = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], capture_output=True,
                               text=True, check=False).stdout.strip()
    if not libraries or not list(Path(libraries).glob("libstd-*")):
        pytest.skip(f"Rust's library for {target} is not installed: rustup target add {target}")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.rs").write_text("""
#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
hakmem::options!("PURGE_DELAY=100");
fn main() {
    println!("{}", vec![1; 100].len());
}
""")
    (tmp_path / "Cargo.toml").write_text(f"""
[package]
name = "anywhere"
version = "0.1.0"
edition = "2021"
[dependencies]
hakmem = {{ path = "{crates}/hakmem", features = ["override", "stats", "profile"] }}
""")
    shutil.copy(crates / "Cargo.lock", tmp_path)
    good(cargo("check", "--offline", "--target", target, folder=tmp_path, RUSTFLAGS="-D warnings"))


# {target: its C compiler, what makes a program of it static, what runs the program}
CROSS = {
    "x86_64-unknown-linux-musl": ("musl-gcc", ["-static"], []),
    "riscv64gc-unknown-linux-gnu": ("riscv64-linux-gnu-gcc", ["-static"], ["qemu-riscv64-static"]),
}


@pytest.mark.parametrize("target", CROSS)
def test_its_build_script_serves_other_targets(crates, tmp_path, target):
    """With nothing set by hand: a C program runs on the archive that it makes. Rust would need the target's std."""
    good(cargo("check", "--offline", "--locked", folder=crates, **UNOPTIMISED))
    script = next(crates.glob("target/debug/build/hakmem-sys-*/build-script-build"))
    architecture, _, system, environment = target.replace("gc-", "-").split("-")
    made = blackbox.run([script], cwd=crates / "hakmem-sys", env={
        "OUT_DIR": str(tmp_path), "TARGET": target, "HOST": "x86_64-unknown-linux-gnu", "OPT_LEVEL": "0",
        "DEBUG": "false", "CARGO_MANIFEST_DIR": str(crates / "hakmem-sys"), "CARGO_CFG_TARGET_ARCH": architecture,
        "CARGO_CFG_TARGET_OS": system, "CARGO_CFG_TARGET_ENV": environment})
    assert "cargo:rustc-link-lib=static=hakmem" in good(made), made.report()
    compiler, static, emulator = CROSS[target]
    program = blackbox.REPOSITORY / "tests/delivery/onefile/threads.c"
    good(blackbox.run([compiler, *static, f"-I{crates}/hakmem-sys/vendor", program, tmp_path / "libhakmem.a", "-o",
                       tmp_path / "threads", "-pthread"]))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", good(blackbox.run([*emulator, tmp_path / "threads"], timeout=240)))


def numbers(said):
    """{test program: number of its tests}. Cargo names the programs on standard error; they print to standard
    output."""
    names = re.findall(r"^ +(?:Running (?:unittests )?(?:src|tests)/(\w+)\.rs|(Doc-tests \w+))", said, re.M)
    counts = re.findall(r"^test result: ok\. (\d+) passed; 0 failed; 0 ignored", said, re.M)
    assert len(names) == len(counts), said
    return {file or examples: int(count) for (file, examples), count in zip(names, counts)}


def test_packages_are_whole(crates):
    """cargo unpacks and compiles them from their own contents only."""
    said = good(cargo("package", "--workspace", "--offline", "--allow-dirty", folder=crates, **UNOPTIMISED))
    assert said.count("Verifying hakmem") == 2
    version = CRATE_VERSION.search((CRATES / "hakmem/Cargo.toml").read_text())[1]
    packed = subprocess.run(["tar", "-tzf", crates / f"target/package/hakmem-sys-{version}.crate"], check=True,
                            capture_output=True, text=True).stdout.split()
    prefix = f"hakmem-sys-{version}/"
    assert {prefix + name for name in ("vendor/hakmem.c", "vendor/hakmem.h", "build.rs", "src/lib.rs",
                                       "LICENSE")} <= set(packed)


def test_in_a_checkout_the_build_makes_the_source(tmp_path):
    """As a path or git dependency."""
    for name in ("rust", "src", "include", "tools", "LICENSE"):
        source = blackbox.REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("target", "vendor", "__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    good(cargo("check", "--offline", "--locked", folder=tmp_path / "rust", **UNOPTIMISED))
    assert list(tmp_path.glob("rust/target/debug/build/hakmem-sys-*/out/source/hakmem.c"))


def test_versions_are_the_librarys():
    version = blackbox.run([COMMAND, "--version"]).stdout.split()[1]
    for crate in ("hakmem", "hakmem-sys"):
        assert CRATE_VERSION.search((CRATES / crate / "Cargo.toml").read_text())[1] == version
        assert (CRATES / crate / "LICENSE").read_text() == (blackbox.REPOSITORY / "LICENSE").read_text()
    assert f'version = "={version}"' in (CRATES / "hakmem/Cargo.toml").read_text()


# ---- The declarations ----

C_TYPES = {"char": "c_char", "uint64_t": "u64", "int64_t": "i64", "struct hak_stats_pool": "hak_stats_pool"}


def headers():
    text = "".join((blackbox.INCLUDE_FOLDER / "hakmem" / name).read_text()
                   for name in ("hakmem.h", "stats.h", "profile.h", "guard.h", "scope.h"))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def test_structs_have_the_headers_members():
    rust = (CRATES / "hakmem-sys/src/lib.rs").read_text()
    structs = re.findall(r"^struct (\w+) \{\n(.*?)^\};", headers(), re.S | re.M)
    assert len(structs) == 6
    for name, body in structs:
        members = []
        for kind, names in re.findall(r"((?:struct )?\w+) ([^;{}]+);", body):
            for member in names.split(","):
                array = re.fullmatch(r"(\w+)\[(.*)\]", member.strip())
                members.append((array[1], f"[{C_TYPES[kind]}; {array[2]}]") if array else
                               (member.strip(), C_TYPES[kind]))
        (found,) = re.findall(rf"pub struct {name} \{{\n(.*?)^\}}", rust, re.S | re.M)
        assert re.findall(r"pub (\w+): (.+),", found) == members, name


def test_every_function_is_declared_with_its_parameters():
    rust = (CRATES / "hakmem-sys/src/lib.rs").read_text()
    functions = re.findall(r"HAK_API[^;]*?\b(hak_\w+)\(([^()]*)\) HAK_NOEXCEPT", headers())
    declared = dict(re.findall(r"pub fn (hak_\w+)\(([^()]*)\)", rust))
    assert len(functions) > 30 and set(declared) == {name for name, _ in functions}
    for name, parameters in functions:
        names = [] if parameters == "void" else [
            re.search(r"(\w+)$", part.strip())[1] for part in parameters.split(",")
        ]
        assert re.findall(r"(\w+):", declared[name]) == names, name
