"""The compiled programs of bench/programs/, which the rows of real programs run. They are built when a row needs them:
HAKMEM itself needs neither a C++ compiler nor cargo, so its own build leaves them out.

A row's `prepare` names rust_json, rust_crates, cxx_containers or cxx_service. Each puts its program below FILES, where
the row's command finds it, and keeps a program that the same compiler made from the same sources."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import click

from hakmem import paths

SOURCES = paths.CHECKOUT / "bench/programs"
RUST_SOURCES = SOURCES / "rust_json"
CRATES_SOURCES = SOURCES / "rust_crates"
# {crate: the feature of rust_crates that uses it}
CRATES = {"hakmem": "hakmem", "mimalloc": "mimalloc", "tikv-jemallocator": "jemalloc"}
CXX_COMMAND = ["g++", "-std=c++17", "-O2", "-DNDEBUG", "-Wall", "-Wextra", "-pthread"]
# Variables that a build does not get: they would make it run on the measured allocator or change how it compiles.
PRIVATE_VARIABLE = re.compile(r"^(LD_|HAKMEM_|MALLOC_|GLIBC_TUNABLES|RUSTFLAGS|CARGO_(BUILD|PROFILE|TARGET|ENCODED))")

HINTS = {
    "cargo": "install it with apt-get install cargo, or from https://rustup.rs",
    "g++": "install it with apt-get install g++",
}


class ProgramError(click.ClickException):
    """A program could not be built. The text says which one and why."""


def find_tool(name: str, what: str) -> str:
    """Returns the path of a compiler, on PATH or where rustup puts it."""
    found = shutil.which(name) or shutil.which(name, path=Path.home() / ".cargo/bin")
    if found is None:
        raise ProgramError(f"{what} cannot be built: {name} is missing; {HINTS[name]}")
    return found


def run(command: Sequence[str | Path], what: str) -> str:
    """Returns the output of a command; raises ProgramError with the end of its message if it fails."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env["PATH"] = os.pathsep.join([str(Path(command[0]).parent), env.get("PATH", os.defpath)])
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"{what} cannot be built: {' '.join(map(str, command))}: status {done.returncode}\n"
                           f"{done.stderr[-2000:]}")
    return done.stdout


def stamp_of(sources: Iterable[Path], *words: str) -> str:
    """Returns a digest of the sources and the words."""
    digest = hashlib.sha256("\0".join(words).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def build_once(program: Path, stamp: str, build: Callable[[], object]) -> Path:
    """Calls build() to make the program, unless a program with this stamp is there. The stamp is written last."""
    mark = program.with_name(f"{program.name}.stamp")
    if program.exists() and mark.exists() and mark.read_text(encoding="utf-8") == stamp:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    build()
    mark.write_text(stamp, encoding="utf-8")
    return program


def built(target: Path, what: str) -> Path:
    """Returns the program that cargo has built in its folder, for this machine or for CARGO_BUILD_TARGET."""
    return target / os.environ.get("CARGO_BUILD_TARGET", "") / "release" / what


def build_rust_json(folder: str | Path) -> Path:
    """Builds bench_rust_json (serde_json on the system's allocator) in the folder and returns its path."""
    what = "bench_rust_json"
    cargo = find_tool("cargo", what)
    program = Path(folder, what).resolve()
    target = program.parent / "target"

    def build() -> None:
        run([cargo, "build", "--release", "--locked", "--quiet", "--manifest-path", RUST_SOURCES / "Cargo.toml",
             "--target-dir", target], what)
        shutil.copy(built(target, what), program)

    sources = [RUST_SOURCES / name for name in ("Cargo.toml", "Cargo.lock", "src/main.rs")]
    return build_once(program, stamp_of(sources, run([cargo, "--version"], what)), build)


def build_rust_crates(folder: str | Path) -> Path:
    """Builds bench_rust_crates in the folder and returns its path: a script that runs the build which BENCH_CRATE
    names. HAKMEM's crate is this checkout's, so cargo decides each time what to rebuild."""
    what = "bench_rust_crates"
    cargo = find_tool("cargo", what)
    program, source = Path(folder, what).resolve(), Path(folder, "source").resolve()
    target = source.with_name("target")
    shutil.rmtree(source, ignore_errors=True)
    # Built in a copy, because cargo updates the version of this checkout's crate in the lock file.
    shutil.copytree(CRATES_SOURCES, source)
    manifest = source / "Cargo.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("../../../rust", str(paths.CHECKOUT / "rust")), encoding="utf-8")
    for crate, feature in {"glibc": "", **CRATES}.items():
        run([cargo, "build", "--release", "--quiet", "--features", feature, "--manifest-path", manifest,
             "--target-dir", target], what)
        shutil.copy(built(target, what), program.with_name(f"{what}-{crate}"))
    program.write_text('#!/bin/sh\nexec "$0-$BENCH_CRATE" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def build_cxx(folder: str | Path, name: str) -> Path:
    """Builds bench_NAME from NAME.cpp in the folder and returns its path."""
    what = f"bench_{name}"
    compiler = find_tool("g++", what)
    program, source = Path(folder, what).resolve(), SOURCES / f"{name}.cpp"
    command: list[str | Path] = [compiler, *CXX_COMMAND[1:], source, "-o", program]
    version = run([compiler, "--version"], what)
    return build_once(program, stamp_of([source], version, *CXX_COMMAND), lambda: run(command, what))


# ---- For `prepare` ----


def below(name: str, build: Callable[[Path], Path]) -> Callable[..., Path]:
    """Returns the function that a row's `prepare` names: it builds a program in FILES/name. It ignores scale: the row's
    command says the amount of work."""
    return lambda files, scale=1.0: build(Path(files, name))


rust_json = below("rust_json", build_rust_json)
rust_crates = below("rust_crates", build_rust_crates)
cxx_containers = below("cxx_containers", partial(build_cxx, name="cxx_containers"))
cxx_service = below("cxx_service", partial(build_cxx, name="cxx_service"))
