"""The compiled programs among the rows of real programs: bench/programs/, built where they are wanted. HAKMEM itself needs
neither a C++ compiler nor cargo, so its own build leaves them alone.

rust_json and cxx_containers are for a row's `prepare`: they put the program below FILES, where the row's command finds
it. What is there, made from the same sources by the same compiler, stays.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import click

from hakmem import paths

SOURCES = paths.CHECKOUT / "bench/programs"
RUST_SOURCES = SOURCES / "rust_json"
CXX_SOURCE = SOURCES / "cxx_containers.cpp"
CXX_COMMAND = ["g++", "-std=c++17", "-O2", "-DNDEBUG", "-Wall", "-Wextra"]
# A build is not run on the allocator that is to be measured, nor by the settings of a build around it.
PRIVATE_VARIABLE = re.compile(r"^(LD_|HAKMEM_|MALLOC_|GLIBC_TUNABLES|RUSTFLAGS|CARGO_(BUILD|PROFILE|TARGET|ENCODED))")

HINTS = {
    "cargo": "install it with apt-get install cargo, or from https://rustup.rs",
    "g++": "install it with apt-get install g++",
}


class ProgramError(click.ClickException):
    """A program could not be built; the text says which, and why."""


def find_tool(name, what):
    """The path of a compiler: the one on PATH, or where rustup puts it."""
    found = shutil.which(name) or shutil.which(name, path=Path.home() / ".cargo/bin")
    if found is None:
        raise ProgramError(f"{what} cannot be built: {name} is missing; {HINTS[name]}")
    return found


def run(command, what):
    """The output of a command; ProgramError with the end of what it said when it fails."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env["PATH"] = os.pathsep.join([str(Path(command[0]).parent), env.get("PATH", os.defpath)])
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"{what} cannot be built: {' '.join(map(str, command))}: status {done.returncode}\n"
                           f"{done.stderr[-2000:]}")
    return done.stdout


def stamp_of(sources, *words):
    digest = hashlib.sha256("\0".join(words).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def build_once(program, stamp, build):
    """Has build() make the program, unless one with this stamp is there. The stamp is written last."""
    mark = program.with_name(f"{program.name}.stamp")
    if program.exists() and mark.exists() and mark.read_text(encoding="utf-8") == stamp:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    build()
    mark.write_text(stamp, encoding="utf-8")
    return program


def build_rust_json(folder):
    """The path of bench_rust_json in the folder: serde_json on the system's allocator, as the lock file pins it."""
    what = "bench_rust_json"
    cargo = find_tool("cargo", what)
    program = Path(folder, what).resolve()
    target = program.parent / "target"

    def build():
        run([cargo, "build", "--release", "--locked", "--quiet", "--manifest-path", RUST_SOURCES / "Cargo.toml",
             "--target-dir", target], what)
        shutil.copy(target / "release" / what, program)

    sources = [RUST_SOURCES / name for name in ("Cargo.toml", "Cargo.lock", "src/main.rs")]
    return build_once(program, stamp_of(sources, run([cargo, "--version"], what)), build)


def build_cxx_containers(folder):
    """The path of bench_cxx_containers in the folder."""
    what = "bench_cxx_containers"
    compiler = find_tool("g++", what)
    program = Path(folder, what).resolve()
    command = [compiler, *CXX_COMMAND[1:], CXX_SOURCE, "-o", program]
    version = run([compiler, "--version"], what)
    return build_once(program, stamp_of([CXX_SOURCE], version, *CXX_COMMAND), lambda: run(command, what))


# ---- For `prepare` ----


def rust_json(files, scale=1.0):
    """FILES/rust_json/bench_rust_json. The amount of work is in the row's command, so that scale changes nothing."""
    del scale
    return build_rust_json(Path(files, "rust_json"))


def cxx_containers(files, scale=1.0):
    """FILES/cxx_containers/bench_cxx_containers, likewise."""
    del scale
    return build_cxx_containers(Path(files, "cxx_containers"))
