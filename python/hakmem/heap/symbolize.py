"""Finds names for a profile's addresses (functions, files and lines, inlined ones too) and writes them into the
profile.

Functions' names come from ELF symbol tables, whose sizes tell where a function ends. Lines and inlined functions
come from DWARF, read by llvm-symbolizer, one process for each file: it reads every producer's DWARF, is much faster
than a reader in Python, and names inlined C functions right, which binutils' addr2line does not. c++filt demangles
C++ and Rust. Without llvm-symbolizer there are only function names, and a note says so. The names of code made at
run time come from files that its maker wrote (jit.py)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hakmem.clean import clean
from hakmem.compat import zip_strict
from hakmem.elf import DEBUG_FOLDER, ElfFile, ElfProblem, find_debug_file, read_elf
from hakmem.foreign import open_regular
from hakmem.heap.file import ProfileError
from hakmem.heap.jit import DUMP_NAME, made_names
from hakmem.limits import ToolFailed, run_tool

if TYPE_CHECKING:
    from hakmem.heap.profile_pb2 import Location, Profile
    from hakmem.heap.profile_pb2 import Mapping as ProfileMapping

DELETED = " (deleted)"
# Limits: functions inlined into one another at an address; characters of a name for c++filt.
CHAIN_MOST, MANGLED_MOST = 256, 8192
LINE_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class SourceFrame:
    """A function at an address. Unknown fields are empty or 0. start: the line on which the function begins."""

    linker_name: str
    file: str = ""
    line: int = 0
    column: int = 0
    start: int = 0
    name: str = ""


class Strings:
    """Adds strings and functions to a profile."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.places = {text: place for place, text in enumerate(profile.string_table)}
        self.functions: dict[tuple[str, str, int], int] = {}
        self.next_id = max((function.id for function in profile.function), default=0) + 1

    def place(self, text: str) -> int:
        """Returns the place of a string, which it adds if needed."""
        if text not in self.places:
            self.places[text] = len(self.profile.string_table)
            self.profile.string_table.append(text)
        return self.places[text]

    def function(self, frame: SourceFrame) -> int:
        """Returns the id of a frame's function, which it adds if needed."""
        key = (frame.linker_name, frame.file, frame.start)
        if key not in self.functions:
            self.functions[key] = self.next_id
            self.profile.function.add(
                id=self.next_id, name=self.place(frame.name), system_name=self.place(frame.linker_name),
                filename=self.place(frame.file), start_line=frame.start)
            self.next_id += 1
        return self.functions[key]


class Note(str):
    """A sentence about what is missing. kind: the reason. subject: the file, without folders."""

    kind: int
    subject: str

    def __new__(cls, text: str, kind: int, subject: str = "") -> Note:
        note = super().__new__(cls, text)
        note.kind, note.subject = kind, subject
        return note


STRIPPED, OTHER, MADE, NO_LINES, BELIEVED, UNREADABLE, NO_SYMBOL = range(7)
# What a summary says about each kind, and what helps. {} becomes the names of the files.
SUMMARY = (
    (STRIPPED, "no names in {}, stripped (debuginfod-find debuginfo FILE gets them, or --debug-dir)"),
    (OTHER, "{} changed since the profile (symbolize before a new build)"),
    (MADE, "{} without a name in code made at run time (python -X perf, node --perf-basic-prof, java "
           "-XX:+DumpPerfMapAtExit)"),
    (NO_LINES, "no lines and no inlined functions (Debian's package llvm has llvm-symbolizer)"),
    (BELIEVED, "no build-id to check {} by"),
    (UNREADABLE, "{} cannot be read"),
    (NO_SYMBOL, "some addresses without a symbol in {}"),
)
SUBJECTS_SHOWN = 3


def summary(notes: Sequence[Note]) -> str:
    """Returns the notes as one line; "" if there are none."""
    if len(notes) < 2:
        return "".join(notes)
    parts = []
    for kind, text in SUMMARY:
        subjects = list(dict.fromkeys(note.subject for note in notes if note.kind == kind))
        if subjects:
            more = len(subjects) - SUBJECTS_SHOWN
            parts.append(text.format(", ".join(subjects[:SUBJECTS_SHOWN]) + (f" and {more} more" if more > 0 else "")))
    return f"{'; '.join(parts)}; --notes tells all"


def symbolize(profile: Profile, debug_folders: Iterable[Path] = (), owners: Iterable[int] = ()) -> list[Note]:
    """Fills in the locations that have no lines. Returns a Note for each thing that could not be done. owners: users
    whose files are trusted to name code made at run time, besides the caller and the owner of the process."""
    strings = Strings(profile)
    texts = profile.string_table
    by_file: dict[tuple[str, str], list[tuple[Location, ProfileMapping]]] = {}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    made: list[tuple[Location, ProfileMapping | None]] = []
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        if location.line:
            continue
        if mapping is None or is_made(texts[mapping.filename]):
            made.append((location, mapping))
        else:
            by_file.setdefault((texts[mapping.filename], texts[mapping.build_id]), []).append((location, mapping))
    notes = symbolize_made(strings, made, owners)
    for (name, build_id), found in by_file.items():
        try:
            notes += symbolize_file(strings, name, build_id, found, debug_folders)
        except ElfProblem as problem:
            notes.append(Note(f"{clean(name) or 'a mapping without a file'}: {problem}; {count(len(found))} without "
                              "names",
                              problem.kind if isinstance(problem, OtherBuild) else UNREADABLE, short(name)))
    return notes


def is_made(name: str) -> bool:
    """Returns whether a mapping of that name may hold code made at run time: no file, or a compiler's."""
    return name in ("", "[anon]", "//anon", "[heap]") or name.startswith(
        ("/memfd:", "/dev/zero", "[anon:", "/dev/shm/")) or (bool(DUMP_NAME.fullmatch(name)))


def symbolize_made(strings: Strings, found: Sequence[tuple[Location, ProfileMapping | None]],
                   owners: Iterable[int]) -> list[Note]:
    """Adds the names of code made at run time, from the files that its makers wrote."""
    names = made_names(strings.profile, [location.address for location, _ in found], owners)
    for location, mapping in found:
        made = names.get(location.address)
        if made is not None:
            frame = SourceFrame(made.name, made.file, made.line, name=made.name)
            location.line.add(function_id=strings.function(frame), line=frame.line)
            if mapping is not None:
                mapping.has_functions = True
    lost = sum(1 for location, mapping in found if mapping is not None and not location.line)
    if not lost:
        return []
    return [Note(f"code made at run time: {count(lost)} without names; python -X perf, node --perf-basic-prof and java "
                 "-XX:+DumpPerfMapAtExit write them to /tmp/perf-PID.map", MADE, count(lost))]


def short(name: str) -> str:
    """Returns a file's name without folders."""
    return clean(PurePosixPath(name).name) or "a mapping without a file"


class OtherBuild(ElfProblem):
    """The file is another build than the one that was mapped."""

    kind = OTHER


def count(number: int) -> str:
    """Returns a number of addresses as a text."""
    return "1 address" if number == 1 else f"{number:,} addresses"


def symbolize_file(strings: Strings, name: str, build_id: str, found: Sequence[tuple[Location, ProfileMapping]],
                   debug_folders: Iterable[Path]) -> list[Note]:
    """Adds the names of one file's locations. Returns notes; raises ElfProblem if the file is of no use."""
    if not name.startswith("/"):
        raise ElfProblem("no file")
    notes = []
    elf = read_elf(name.removesuffix(DELETED))
    if build_id and elf.build_id != build_id.lower():
        raise OtherBuild(f"is another build now: its build-id is {elf.build_id or 'missing'}, the profile's "
                         f"{clean(build_id)}")
    if not build_id:
        notes.append(Note(f"{clean(name)}: the profile has no build-id of it, so the names are right only if it is the "
                          "same build",
                          BELIEVED, short(name)))
    source = elf
    if not (elf.has_lines and elf.has_symbol_table):
        debug = find_debug_file(elf, [*debug_folders, DEBUG_FOLDER])
        if debug and (debug.has_lines or debug.has_symbol_table):
            source = debug
    addresses: dict[int, list[tuple[Location, ProfileMapping]]] = {}
    for location, mapping in found:
        address = elf.address_of(location.address - mapping.memory_start + mapping.file_offset)
        if address is not None:
            addresses.setdefault(address, []).append((location, mapping))
    frames = find_frames(source, elf, list(addresses), notes)
    lost = len(found) - sum(len(addresses[address]) for address in frames)
    if lost:
        stripped = source is elf and not elf.has_symbol_table
        notes.append(Note(f"{clean(name)}: no symbol for {count(lost)}" + (
            f"; it is stripped, and no debug file of it was found; debuginfod-find debuginfo {clean(name)} gets one "
            "where a "
            "server has it" if stripped else ""), STRIPPED if stripped else NO_SYMBOL, short(name)))
    for address, chain in frames.items():
        for location, mapping in addresses[address]:
            for frame in chain:
                location.line.add(function_id=strings.function(frame), line=frame.line, column=frame.column)
            mapping.has_functions = True
            mapping.has_filenames |= any(frame.file for frame in chain)
            mapping.has_line_numbers |= any(frame.line for frame in chain)
            mapping.has_inline_frames |= len(chain) > 1
    return notes


def find_frames(source: ElfFile, elf: ElfFile, addresses: Sequence[int],
                notes: list[Note]) -> dict[int, list[SourceFrame]]:
    """Returns {address: [SourceFrame]}, innermost first, for addresses about which anything is known."""
    frames: dict[int, list[SourceFrame]] = {}
    lines: dict[int, list[SourceFrame]] = {}
    if source.has_lines:
        try:
            lines = read_lines(source.path, addresses)
        except ToolFailed as problem:
            notes.append(Note(clean(f"{source.path}: no lines and no inlined functions: {problem}"), UNREADABLE,
                              short(str(source.path))))
        except FileNotFoundError:
            notes.append(Note("no lines and no inlined functions: llvm-symbolizer is not there; "
                              "it is in Debian's package llvm", NO_LINES))
    for address in addresses:
        if address in lines:
            frames[address] = lines[address]
        elif symbol := source.symbols.find(address) or elf.symbols.find(address):
            frames[address] = [SourceFrame(without_version(symbol))]
    shown = demangle({frame.linker_name for chain in frames.values() for frame in chain})
    return {address: [replace(frame, name=shown[frame.linker_name]) for frame in chain]
            for address, chain in frames.items()}


def read_lines(path: str | Path, addresses: Sequence[int]) -> dict[int, list[SourceFrame]]:
    """Returns {address: [SourceFrame]}, innermost first, where DWARF names every function of the chain."""
    file = open_regular(path)
    if file is None:
        raise ElfProblem("not a file")
    # The file's owner may have made it to exploit errors of the tool, so the tool runs with the owner's rights. It
    # reads the open file, because the path may be replaced.
    with file:
        owner = (file.status.st_uid, file.status.st_gid) if file.status.st_uid else None
        output = run_tool([
            "llvm-symbolizer", f"--obj=/proc/self/fd/{file.fileno()}", "--output-style=JSON", "--inlines",
            "--functions=linkage", "--no-demangle"
        ], "".join(f"{address:#x}\n" for address in addresses), pass_fds=(file.fileno(),), owner=owner)
    found = {}
    for text in output.split("\n"):
        try:
            chain, address = chain_of(json.loads(text)) if text else ([], 0)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            continue  # not a usable answer
        if chain and chain[0].file and all(frame.linker_name for frame in chain):
            found[address] = chain
    return found


def chain_of(answer: dict[str, Any]) -> tuple[list[SourceFrame], int]:
    """Returns ([SourceFrame], the address) of one answer of llvm-symbolizer."""
    def number(symbol: dict[str, Any], name: str) -> int:
        return min(max(int(symbol[name]), 0), LINE_MOST)
    chain = [SourceFrame(without_version(clean(symbol["FunctionName"])), clean(symbol["FileName"]),
                         number(symbol, "Line"), number(symbol, "Column"), number(symbol, "StartLine"))
             for symbol in answer.get("Symbol", [])[:CHAIN_MOST]]
    return chain, int(answer["Address"], 16)


def without_version(name: str) -> str:
    """Returns the name without @VERSION, which ELF symbol tables may append."""
    return name.partition("@")[0] if name else ""


def demangle(names: Collection[str]) -> dict[str, str]:
    """Returns {linker's name: name in the source}. Names other than those of C++ and Rust stay unchanged."""
    mangled = sorted(name for name in names if name.startswith(("_Z", "_R")) and name.isprintable() and " " not in name
                     and len(name) <= MANGLED_MOST)
    shown = dict(zip_strict(names, names))
    if mangled:
        try:
            output = run_tool(["c++filt", "--no-verbose"], "".join(f"{name}\n" for name in mangled)).split("\n")
        except FileNotFoundError as error:
            raise ProfileError("c++filt is not there; it is in Debian's package binutils") from error
        except ToolFailed:
            return shown  # c++filt hung or failed: all names stay as the linker has them
        if len(output) == len(mangled) + 1:
            shown.update(zip_strict(mangled, map(clean, output[:-1])))
    return shown
