"""Finds what a process has loaded, in the dynamic linker's order, and where each object's calls of malloc go."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from hakmem.clean import clean, clean_bytes
from hakmem.doctor.elf import ElfFile, read_elf
from hakmem.doctor.system import AT_PHDR, AT_PHNUM, Process

if TYPE_CHECKING:
    from hakmem.foreign import Mapping
    from hakmem.live.memory import MappedMemory, Memory

PT_DYNAMIC, PT_PHDR, DT_DEBUG = 2, 6, 21
MOST_OBJECTS = 4096
NAME_MOST = 4096


@dataclass
class LoadedObject:
    """One mapped ELF file. base: its load address, None if unknown."""

    path: str
    deleted: bool
    start: int
    mappings: list[Mapping]
    elf: ElfFile
    base: int | None = None
    position: int | None = None  # in the link map; 0 is the program

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return os.path.basename(self.path)

    def contains(self, address: int) -> bool:
        """Returns whether the object's mappings hold the address."""
        return any(mapping.start <= address < mapping.end for mapping in self.mappings)

    @property
    def is_libc(self) -> bool:
        """Whether it is the C library."""
        return re.match(r"libc(\.so|-\d|\.musl)", self.elf.soname or self.name) is not None

    @property
    def is_loader(self) -> bool:
        """Whether it is the dynamic linker."""
        return re.match(r"(ld-|ld\.so|ld64)", self.elf.soname or self.name) is not None


@dataclass(frozen=True)
class Binding:
    """A slot of `user` for `symbol`, which holds an address in `target` (None: not bound yet)."""

    user: LoadedObject
    symbol: str
    target: LoadedObject | None


def loaded_objects(memory: MappedMemory, mappings: list[Mapping]) -> tuple[list[LoadedObject], list[str]]:
    """Returns every ELF file that is mapped with code, and the paths of those that could not be opened."""
    files: dict[str, list[Mapping]] = {}
    for mapping in mappings:
        if mapping.inode and mapping.path.startswith("/"):
            files.setdefault(mapping.path, []).append(mapping)
    objects: list[LoadedObject] = []
    unread: list[str] = []
    for path, parts in islice(((path, parts) for path, parts in files.items()
                               if any("x" in mapping.flags for mapping in parts)), MOST_OBJECTS):
        path = clean(path)
        stream = memory.open_mapping(parts[0])
        if stream is None:
            unread.append(path)
            continue
        with stream:
            try:
                elf = read_elf(stream)
            except ValueError:
                continue  # code without an ELF header: a JIT compiler's file
        objects.append(LoadedObject(path.removesuffix(" (deleted)"), path.endswith(" (deleted)"), parts[0].start,
                                    parts, elf))
    return objects, unread


def read_string(memory: Memory, address: int) -> str:
    """Returns a text of the process, possibly empty. Reads page by page, because the next page may be unmapped."""
    text = b""
    while address and len(text) < NAME_MOST:
        part = memory.read(address + len(text), 4096 - (address + len(text)) % 4096)
        end = part.find(b"\0")
        if end >= 0:
            return clean_bytes(text + part[:end])
        text += part
    return clean_bytes(text)


def read_words(memory: Memory, address: int, count: int) -> tuple[int, ...]:
    """Returns `count` 64-bit words at the address."""
    return struct.unpack(f"<{count}Q", memory.read(address, 8 * count))


def find_debug(memory: Memory, auxiliary: dict[int, int]) -> int | None:
    """Returns the address of the dynamic linker's r_debug; None if there is no dynamic linker."""
    at, count = auxiliary.get(AT_PHDR), auxiliary.get(AT_PHNUM, 0)
    if not at or not 0 < count < 1024:
        return None
    headers = [struct.unpack("<IIQQQQQQ", memory.read(at + 56 * index, 56)) for index in range(count)]
    base = next((at - header[3] for header in headers if header[0] == PT_PHDR), 0)
    for kind, _, _, address, _, _, size, _ in headers:
        if kind != PT_DYNAMIC or size > 65536:
            continue
        tags: Iterator[tuple[int, int]] = struct.iter_unpack("<QQ", memory.read(base + address, size - size % 16))
        for tag, value in tags:
            if tag == DT_DEBUG and value:
                return value
            if tag == 0:
                break
    return None


def read_link_map(memory: Memory, auxiliary: dict[int, int]) -> tuple[list[tuple[int, str]], bool]:
    """Returns [(load base, name)] in the dynamic linker's order, and whether there are further namespaces (dlmopen)."""
    debug = find_debug(memory, auxiliary)
    if debug is None:
        return [], False
    version, entry = read_words(memory, debug, 2)
    more = (version & 0xffffffff) >= 2 and read_words(memory, debug + 40, 1)[0] != 0
    found: list[tuple[int, str]] = []
    seen: set[int] = set()
    while entry and entry not in seen and len(found) < MOST_OBJECTS:
        seen.add(entry)
        base, name, _, following = read_words(memory, entry, 4)
        found.append((base, read_string(memory, name)))
        entry = following
    return found, more


def place(objects: list[LoadedObject], chain: list[tuple[int, str]]) -> None:
    """Gives the objects their bases and positions. A library's first segment lies at its base; place_program handles
    the program."""
    by_start = {each.start: each for each in objects}
    for position, (base, _) in enumerate(chain):
        if base in by_start:
            by_start[base].base, by_start[base].position = base, position


def place_program(objects: list[LoadedObject], process: Process, chain: list[tuple[int, str]]) -> LoadedObject | None:
    """Returns the program's object, with base and position. The link map has no name for it."""
    if not process.executable:
        return None
    path = process.executable.removesuffix(" (deleted)")
    program = next((each for each in objects if each.path == path), None)
    if program is not None:
        program.position = 0
        program.base = chain[0][0] if chain else (program.start if program.elf.position_independent else 0)
    return program


def bindings(memory: Memory, objects: list[LoadedObject]) -> list[Binding]:
    """Returns where the slots for malloc's names lead, for every object whose base is known."""
    found = []
    for user in objects:
        if user.base is None or user.is_loader:
            continue
        for symbol, slot in user.elf.slots:
            value = read_words(memory, user.base + slot, 1)[0]
            target = next((each for each in objects if each.contains(value)), None)
            if target is user and user.base + user.elf.defined.get(symbol, -1) != value:
                target = None  # before the first call, a lazy slot leads to the object's own linkage table
            if target is not None and target is not user and symbol not in target.elf.defined:
                # The slot leads to code that the target does not define by this name: an entry of the program's
                # linkage table, which then is the function's address for all, or a wrapper without a name.
                target = None
            found.append(Binding(user, symbol, target))
    return found


def reachable(objects: list[LoadedObject], program: LoadedObject | None,
              preloaded: Iterable[str]) -> list[LoadedObject]:
    """Returns the objects that were loaded at start: the program, preloaded libraries, and what these need.

    Libraries before the C library in the order were preloaded: the C library is loaded at start. LD_PRELOAD itself
    is no proof, because programs may write over their environment."""
    by_name: dict[str, LoadedObject] = {}
    for each in objects:
        by_name.setdefault(each.elf.soname or each.name, each)
        by_name.setdefault(each.name, each)
    waiting = [program] if program else []
    libc = next((each.position for each in objects if each.is_libc and each.position is not None), 0)
    waiting += [each for each in objects if each.position is not None and each.position < libc]
    for entry in preloaded:
        waiting += [each for each in objects
                    if os.path.realpath(entry) == os.path.realpath(each.path) or os.path.basename(entry) == each.name]
    found: list[LoadedObject] = []
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        found.append(each)
        waiting += [by_name[name] for name in each.elf.needed if name in by_name]
    return found


def preload_entries(environment: dict[str, str] | None) -> list[str]:
    """Returns the entries of LD_PRELOAD, which blanks or colons separate."""
    return [entry for entry in re.split(r"[ :]+", (environment or {}).get("LD_PRELOAD", "")) if entry]

