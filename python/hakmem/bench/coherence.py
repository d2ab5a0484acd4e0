"""Runs libraries on virtual cores, and reads what bench/coherence counts: how often one core waits for another's cache.

A library is built once more for it, with the compiler's calls before each access to memory (bench/coherence/cc)."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import click

from hakmem import paths
from hakmem.peers.build import fetch_sources, locked_crates
from hakmem.peers.recipes import RECIPES
from hakmem.peers.steps import Steps

HERE = paths.CHECKOUT / "bench/coherence"
OURS = "hakmem"
PEERS = ("mimalloc3", "mimalloc2", "snmalloc", "rpmalloc", "jemalloc")
PATTERNS = {
    "messages": "each producer's blocks of 16-512 B are freed on the core of its consumer",
    "larson": "threads replace blocks of 8-128 B and hand them to a successor on the next core",
    "churn": "threads that live for 100 blocks of 16-4096 B",
    "batches": "300 blocks of 16-1000 B at a time, on cores that share nothing",
    "large": "300 blocks of 16-256 KiB at a time, on cores that share nothing",
}
CORES = (2, 16, 64, 256)
SECONDS_MOST = 120
LINE_BYTES = 64


class CoherenceError(click.ClickException):
    """Why nothing could be counted, in words for the user."""


@dataclass
class Count:
    """What one run counted, for each operation (one malloc or one free).

    code: what waited, with the transfers and those from another node. lines, locks: the same by what lies there."""

    figures: dict[str, float]
    code: list[tuple[str, float, float]] = field(default_factory=list)
    lines: list[tuple[str, float]] = field(default_factory=list)
    locks: list[tuple[str, float, float]] = field(default_factory=list)


# ---- The libraries ----

def runtime() -> Path:
    """Returns the runtime, which the program links."""
    return paths.program("libbench_coherence.so")


def compilers() -> dict[str, str]:
    """Returns the variables that have a build call the wrapper of the compiler."""
    return {"CC": str(HERE / "cc"), "CXX": str(HERE / "c++"), "COHERENCE_RUNTIME": str(runtime())}


class AnnouncingSteps(Steps):
    """Commands of a build by the wrapper of the compiler."""

    def run(self, *command: object, cwd: Path | None = None, setting: dict[str, str] | None = None) -> str:
        """Runs one command."""
        return super().run(*command, cwd=cwd, setting={**compilers(), **(setting or {})})


def build_ours(folder: Path) -> Path:
    """Builds HAKMEM from this checkout; only what has changed. Returns the library."""
    steps = AnnouncingSteps(OURS, folder / "build.log")
    if not (folder / "build.ninja").exists():
        steps.run("cmake", "-S", paths.CHECKOUT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  "-DHAKMEM_TESTS=OFF", "-DHAKMEM_BENCH=OFF", "-DHAKMEM_TOOLS=OFF")
    steps.run("cmake", "--build", folder, "--parallel", "2", "--target", "hakmem")
    return folder / "lib/libhakmem.so"


def build_peer(name: str, folder: Path) -> Path:
    """Builds a peer from its pinned sources, unless it is there. Returns the library."""
    library = folder / f"lib{name}.so"
    recipe = RECIPES[name]
    version = locked_crates()[recipe.crate][0]
    stamp = folder / version
    if stamp.exists():
        return library
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "work").mkdir(parents=True)
    source = fetch_sources(paths.peers_folder()) / f"{recipe.crate}-{version}"
    build, _ = recipe.made_by()
    shutil.copyfile(build(AnnouncingSteps(name, folder / "build.log"), source, folder / "work"), library)
    shutil.rmtree(folder / "work")
    stamp.touch()
    return library


def library_of(name: str) -> Path:
    """Returns the library of an allocator, built for counting."""
    if not runtime().exists():
        raise CoherenceError(paths.absent(runtime()))
    folder = paths.CHECKOUT / "build/coherence"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_ours(folder / name) if name == OURS else build_peer(name, folder / name)


# ---- Names ----

class Names:
    """Names of the code and the variables of a library, by addresses of a run."""

    def __init__(self, library: Path, base: int) -> None:
        self.library = library
        self.base = base
        self.symbols: list[tuple[int, int, str]] = []
        for line in self.ask("nm", "-S", library):
            parts = line.split()
            if len(parts) == 4 and parts[2] in "bBdDrR":
                self.symbols.append((int(parts[0], 16), int(parts[1], 16), parts[3]))

    @staticmethod
    def ask(*command: object) -> list[str]:
        """Returns the lines that a program of binutils prints; none without that program."""
        if not shutil.which(str(command[0])):
            return []
        said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        return said.stdout.splitlines()

    def code(self, address: int) -> str:
        """Returns the function and the line of a return address, and those that it is inlined into."""
        if address == 1:
            return "the pattern, by its blocks"
        found = self.ask("addr2line", "-f", "-s", "-i", "-e", self.library, hex(address - self.base - 1))
        places = [f"{name} {line.split(' ')[0]}" for name, line in zip(found[::2], found[1::2])]
        return " < ".join(places[:4]) if places and "??" not in places[0] else hex(address)

    def data(self, address: int, size: int) -> str:
        """Returns the variables in a range, with the offset in the first; an address if there are none."""
        offset = address - self.base
        found = [f"{name}+{max(offset - start, 0)}" for start, length, name in self.symbols
                 if start < offset + size and start + length > offset]
        return ", ".join(found) if found else f"heap {address:#x}"


# ---- A run ----

def read_base(text: str, library: Path) -> int:
    """Returns where the library was mapped."""
    starts = [int(start, 16) for start, path in re.findall(r"^map ([0-9a-f]+)-.*?(/.*)$", text, re.MULTILINE)
              if Path(path) == library]
    if not starts:
        raise CoherenceError(f"{library} was not loaded")
    return min(starts)


def read_count(text: str, names: Names) -> Count:
    """Returns what a run printed, with names."""
    count = Count({})
    for line in text.splitlines():
        word, *rest = line.split()
        if word == "code":
            count.code.append((names.code(int(rest[0], 16)), float(rest[1]), float(rest[2])))
        elif word == "line":
            count.lines.append((names.data(int(rest[0], 16), LINE_BYTES), float(rest[1])))
        elif word == "lock":
            count.locks.append((names.data(int(rest[0], 16), 1), float(rest[1]), float(rest[2])))
        elif word != "map":
            count.figures[word] = float(rest[0])
    return count


def measure(library: Path, pattern: str, cores: int, seed: int = 1, top: int = 0) -> Count | None:
    """Runs a pattern on a library; None if it takes too long: threads that spin for each other never sleep. The same
    arguments give the same figures."""
    with tempfile.TemporaryDirectory(prefix="hakmem-", dir="/tmp") as folder:
        # The loader keeps the files' names in memory that it allocates: their lengths are part of the run.
        program, loaded = Path(folder, "program"), Path(folder, "library.so")
        shutil.copy(paths.program("bench_coherence"), program)
        shutil.copy(runtime(), folder)
        shutil.copy(library, loaded)
        try:
            done = subprocess.run([program, pattern, str(cores), str(seed), str(top)], env={"LD_PRELOAD": str(loaded)},
                                  capture_output=True, text=True, timeout=SECONDS_MOST, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            raise CoherenceError(f"bench_coherence {pattern} {cores} on {library}: status {done.returncode}\n"
                                 f"{done.stderr}")
        return read_count(done.stdout, Names(library, read_base(done.stdout, loaded)))
