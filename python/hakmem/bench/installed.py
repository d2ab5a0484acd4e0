"""Allocators that the system has installed as libraries, and how to install others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path


# Where distributions put libraries, Debian's folder by architecture first.
FOLDERS = ("/usr/lib/{machine}-linux-gnu", "/lib/{machine}-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib",
           "/usr/local/lib/{machine}-linux-gnu", "/usr/local/lib64", "/usr/local/lib")


@dataclass(frozen=True)
class Known:
    """files: names of the library, the best first. peers: names of the same allocator in `hakmem peers`. packages:
    {package tool: package name}. For apt-get the name is a pattern, because it contains a version."""

    files: tuple[str, ...]
    peers: tuple[str, ...]
    packages: dict[str, str]


KNOWN = {
    "jemalloc": Known(("libjemalloc.so.2",), ("jemalloc",), {
        "apt-get": "libjemalloc2", "dnf": "jemalloc", "zypper": "libjemalloc2", "apk": "jemalloc", "pacman": "jemalloc"
    }), "mimalloc": Known(
        ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0"), ("mimalloc3", "mimalloc2"), {
            "apt-get": r"libmimalloc\d[\d.]*", "dnf": "mimalloc", "zypper": "libmimalloc2", "apk": "mimalloc2",
            "pacman": "mimalloc"
        }), "gperftools": Known(
            ("libtcmalloc_minimal.so.4",), ("gperftools",), {
                "apt-get": "libtcmalloc-minimal4", "dnf": "gperftools-libs", "zypper": "libtcmalloc4",
                "apk": "gperftools", "pacman": "gperftools"
            }),
    "tbb": Known(
        ("libtbbmalloc_proxy.so.2",), ("tbb",),
        {"apt-get": "libtbbmalloc2", "dnf": "tbb", "zypper": "libtbbmalloc2", "apk": "onetbb", "pacman": "onetbb"}),
}


def folders() -> list[Path]:
    """Returns those of FOLDERS that exist. A folder that links reach twice counts once."""
    named = (Path(name.format(machine=os.uname().machine)) for name in FOLDERS)
    return list({folder.resolve(): folder for folder in named if folder.is_dir()}.values())


def find_library(files: Iterable[str]) -> Path | None:
    """Returns the first of the files that a folder has, for this machine's architecture; None if there is none."""
    own = architecture_of("/proc/self/exe")
    for name in files:
        for folder in folders():
            try:
                if architecture_of(folder / name) == own:
                    return folder / name
            except OSError:
                continue
    return None


def architecture_of(path: str | Path) -> tuple[bytes, bytes]:
    """Returns the parts of an ELF header that a program and its libraries share: magic number, class and byte order;
    machine."""
    with open(path, "rb") as file:
        head = file.read(20)
    return head[:6], head[18:]


def ask(*command: str) -> str:
    """Returns a command's output; "" if it fails to run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def describe_file(library: Path) -> tuple[str, str]:
    """Returns (version, source) of a library, from its package or from its file name."""
    real = library.resolve()
    for path in (library, real):
        owner = ask("dpkg-query", "-S", str(path)).partition(": ")[0].partition(",")[0]
        if owner:
            version = ask("dpkg-query", "-W", "-f", "${Version}", owner)
            return version, f"package {owner.partition(':')[0]}"
    words = ask("rpm", "-qf", "--queryformat", "%{VERSION}-%{RELEASE} %{NAME}", str(real)).split()
    if len(words) == 2:
        return words[0], f"package {words[1]}"
    number = re.search(r"\.so\.([\d.]+)$", real.name)
    return number[1] if number else "", "the system's"


def find_installed(taken: Collection[str]) -> dict[str, Path]:
    """Returns {name: library} of installed allocators, except those that `taken` already names."""
    found = {name: find_library(known.files) for name, known in KNOWN.items()
             if name not in taken and not set(known.peers) & set(taken)}
    return {name: library for name, library in found.items() if library}


def apt_name(pattern: str) -> str | None:
    """Returns the newest package in apt's lists that matches a pattern."""
    if re.fullmatch(r"[\w-]+", pattern):
        return pattern
    names = ask("apt-cache", "pkgnames", re.split(r"[\\\[]", pattern)[0]).split()
    return max((name for name in names if re.fullmatch(pattern, name)), default=None)


def how_to_get(names: Iterable[str]) -> str | None:
    """Returns a command that installs these allocators; None if none is known."""
    for tool in ("apt-get", "dnf", "zypper", "apk", "pacman"):
        if shutil.which(tool):
            wanted = [KNOWN[name].packages[tool] for name in names]
            if tool == "apt-get":
                wanted = [name for name in map(apt_name, wanted) if name]
            verb = {"apk": "add", "pacman": "-S"}.get(tool, "install")
            return f"{tool} {verb} {' '.join(wanted)}" if wanted else None
    return None
