"""The allocators that are compared: the system's, HAKMEM, a copy of it, the peers, and any library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

import click

from hakmem import paths, peers
from hakmem.bench import machine
from hakmem.bench.installed import describe_file, find_installed
from hakmem.version import version

NOT_BY_DEFAULT = {"hardened", "mimalloc-secure", "snmalloc-checks", "scudo"}
BUILD_PEERS = "run `hakmem peers build`"


@dataclass(frozen=True)
class Allocator:
    """One allocator under test.
    library: the library to preload, or several joined by colons; None for the system's allocator. setting:
    environment variables that only this allocator gets."""

    name: str
    library: str | None
    version: str
    source: str
    sha256: str | None
    setting: dict[str, str] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Returns what a result file says about this allocator."""
        told = {"library": self.library, "version": self.version, "source": self.source, "sha256": self.sha256}
        return {**told, "setting": self.setting} if self.setting else told


# {name: Allocator}, and what to tell the user about peers that are missing, if anything.
Known = tuple[dict[str, Allocator], Optional[str]]


def again(subject: str) -> str:
    """Returns the name of the subject's copy, whose row shows how far two identical allocators seem to differ."""
    return f"{subject}-again"


def from_library(name: str, library: str | Path, version: str = "", source: str = "") -> Allocator:
    """Returns an allocator for the library's path; raises a click error if there is no such file."""
    files = [Path(part).absolute() for part in str(library).split(":")]
    for file in files:
        if not file.is_file():
            hint = " (./hakmem build builds it)" if name == "hakmem" else ""
            raise click.ClickException(f"{name}: there is no library {file}{hint}")
        if any(character.isspace() for character in str(file)):
            raise click.ClickException(f"{name}: LD_PRELOAD cannot name {file}, because there is a blank in it")
    return Allocator(name, ":".join(map(str, files)), version, source, machine.digest(files))


def glibc() -> Allocator:
    """Returns the allocator of the system's C library."""
    libc = machine.libc_file()
    version = machine.describe_machine()["libc"]
    return Allocator("glibc", None, version, "the system's", machine.digest([libc]) if libc else None)


def known(installed: bool = False) -> Known:
    """Returns every allocator found, in the order of the tables, and why peers are missing (None if none are).

    installed: also look for libraries that the system has, unless a peer of the same kind is there."""
    found = {"glibc": glibc()}
    if paths.hakmem_library().is_file():
        found["hakmem"] = from_library("hakmem", paths.hakmem_library(), version(), "these tools'")
    built, trouble = {}, None
    try:
        built = peers.load_peers()
    except peers.PeersError as error:
        trouble = error.message
    for name, peer in built.items():
        allocator = from_library(name, peer.library, peer.version, peer.source)
        found[name] = replace(allocator, setting=dict(peer.setting))
    if installed:
        for name, library in find_installed(found).items():
            found[name] = from_library(name, library, *describe_file(library))
        return found, trouble
    return found, trouble if built or trouble else f"no peers are built: {BUILD_PEERS}"


def crates() -> dict[str, Allocator]:
    """Returns {name: Allocator} for the Rust crates. Nothing is preloaded: the variable BENCH_CRATE tells
    bench_rust_crates which of its builds to run (programs.py)."""
    from hakmem.bench import programs

    found = {}
    for crate in programs.CRATES:
        locked = machine.find_in(programs.CRATES_SOURCES / "Cargo.lock", rf'name = "{crate}"\nversion = "(.*)"')
        found[crate] = Allocator(crate, None, locked or "", "crates.io", None, {"BENCH_CRATE": crate})
    found["hakmem"] = replace(found["hakmem"], version=version(), source="this checkout")
    return {"glibc": replace(glibc(), setting={"BENCH_CRATE": "glibc"}), **found}


def parse_pair(text: str, option: str, form: str) -> tuple[str, str]:
    """Splits NAME=VALUE; raises a usage error that names the option and its form."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"{option} wants {form}, not '{text}'")
    return name, value


def add_libraries(found: dict[str, Allocator], additions: Iterable[str]) -> list[str]:
    """Adds the libraries of --add to {name: Allocator}. Returns their names."""
    added = []
    for text in additions:
        name, library = parse_pair(text, "--add", "NAME=LIBRARY")
        if name in found:
            raise click.UsageError(f"--add {name}=...: there is an allocator of that name already")
        found[name] = from_library(name, library)
        added.append(name)
    return added


def check_names(names: Iterable[str], found: Collection[str], trouble: str | None = None) -> None:
    """Raises a usage error for names of no allocator. trouble: why some may be missing."""
    unknown = [name for name in names if name not in found]
    if unknown:
        raise click.UsageError(f"no such allocator: {', '.join(unknown)} (there are {', '.join(found)})"
                               + (f"; {trouble}" if trouble else ""))


def choose(names: Sequence[str], additions: Iterable[str], settings: Iterable[str], subject: str,
           everything: bool = False, need_peers: bool = False, known: Callable[[], Known] = known) -> Known:
    """Returns {name: Allocator} for --allocators, --add, --setting, --subject and --all, and what to tell the user
    about the peers (or None).

    known: returns the allocators found and why some are missing.
    need_peers: raise an error if the peers are not built and no names are given."""
    found, trouble = known()
    if trouble and need_peers and not names:
        raise click.ClickException(f"{trouble}; or choose what there is with --allocators {','.join(found)}")
    added = add_libraries(found, additions)
    if subject not in found:
        text = f"the subject {subject} is not among the allocators {', '.join(found)}"
        if subject == "hakmem":
            raise click.ClickException(f"{text}; ./hakmem build builds it")
        raise click.UsageError(text)
    for text in settings:
        who, setting = parse_pair(text, "--setting", "ALLOCATOR:NAME=VALUE")
        name, separator, variable = who.partition(":")
        if not separator or not variable:
            raise click.UsageError(f"--setting wants ALLOCATOR:NAME=VALUE, not '{text}'")
        if name not in found:
            raise click.UsageError(f"--setting {text}: no such allocator: {name} (there are {', '.join(found)})")
        found[name] = replace(found[name], setting={**found[name].setting, variable: setting})
    if names:
        check_names(names, found, trouble)
        chosen = [name for name in found if name in names or name in added]
        trouble = None
    else:
        chosen = [name for name in found if everything or name not in NOT_BY_DEFAULT]
    if subject not in chosen:
        raise click.UsageError(f"the subject {subject} is not among the chosen allocators {', '.join(chosen)}")
    if again(subject) in chosen:
        raise click.UsageError(f"{again(subject)} is the name of the subject's copy; give that library another")
    return {name: found[name] for name in chosen}, trouble


def with_copy(allocators: dict[str, Allocator], subject: str, folder: str | Path) -> dict[str, Allocator]:
    """Adds the subject's copy to the allocators. Its library lies in the folder, under the same file name."""
    original = allocators[subject]
    library = original.library
    if library is not None:
        copies = []
        for part in map(Path, library.split(":")):
            file = Path(folder, again(subject), part.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(part, file)
            copies.append(str(file.absolute()))
        library = ":".join(copies)
    copy = replace(original, name=again(subject), library=library, source=f"copy of {subject}")
    return {**allocators, copy.name: copy}
