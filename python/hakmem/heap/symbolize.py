"""Names for a profile's addresses: functions, files and lines, inlined ones too, written into the profile itself.

Functions' names come from the ELF symbol tables, whose sizes tell where a function ends. Lines and inlined functions
come from DWARF by llvm-symbolizer, one process a file: it reads every producer's DWARF, much faster than a reader in
Python, and names inlined C functions right, which binutils' addr2line does not. c++filt demangles C++ and Rust. Without
llvm-symbolizer there are names alone, and that is said.
"""

import json
import subprocess
from dataclasses import dataclass, replace

from hakmem.heap.elf import DEBUG_FOLDER, ElfProblem, find_debug_file, read_elf
from hakmem.heap.file import ProfileError

DELETED = " (deleted)"


@dataclass(frozen=True)
class SourceFrame:
    """A function at an address; what is not known is empty or 0. start: the line that the function begins on."""

    linker_name: str
    file: str = ""
    line: int = 0
    column: int = 0
    start: int = 0
    name: str = ""


class Strings:
    """A profile's strings and functions, to which more are added."""

    def __init__(self, profile):
        self.profile = profile
        self.places = {text: place for place, text in enumerate(profile.string_table)}
        self.functions = {}
        self.next_id = max((function.id for function in profile.function), default=0) + 1

    def place(self, text):
        if text not in self.places:
            self.places[text] = len(self.profile.string_table)
            self.profile.string_table.append(text)
        return self.places[text]

    def function(self, frame):
        key = (frame.linker_name, frame.file, frame.start)
        if key not in self.functions:
            self.functions[key] = self.next_id
            self.profile.function.add(
                id=self.next_id, name=self.place(frame.name), system_name=self.place(frame.linker_name),
                filename=self.place(frame.file), start_line=frame.start)
            self.next_id += 1
        return self.functions[key]


def symbolize(profile, debug_folders=()):
    """Fills in the locations that have no lines; returns what could not be done, a sentence each."""
    strings = Strings(profile)
    texts = profile.string_table
    by_file = {}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        if not location.line and mapping is not None:
            by_file.setdefault((texts[mapping.filename], texts[mapping.build_id]), []).append((location, mapping))
    notes = []
    for (name, build_id), found in by_file.items():
        try:
            notes += symbolize_file(strings, name, build_id, found, debug_folders)
        except ElfProblem as problem:
            notes.append(f"{name or 'a mapping without a file'}: {problem}; {count(len(found))} without names")
    return notes


def count(number):
    return "1 address" if number == 1 else f"{number:,} addresses"


def symbolize_file(strings, name, build_id, found, debug_folders):
    if not name.startswith("/"):
        raise ElfProblem("no file")
    notes = []
    elf = read_elf(name.removesuffix(DELETED))
    if build_id and elf.build_id != build_id.lower():
        raise ElfProblem(f"is another build now: its build-id is {elf.build_id or 'missing'}, the profile's {build_id}")
    if not build_id:
        notes.append(f"{name}: the profile has no build-id of it, so the names are right only if it is the same build")
    source = elf
    if not (elf.has_lines and elf.has_symbol_table):
        debug = find_debug_file(elf, [*debug_folders, DEBUG_FOLDER])
        if debug and (debug.has_lines or debug.has_symbol_table):
            source = debug
    addresses = {}
    for location, mapping in found:
        address = elf.address_of(location.address - mapping.memory_start + mapping.file_offset)
        if address is not None:
            addresses.setdefault(address, []).append((location, mapping))
    frames = find_frames(source, elf, list(addresses), notes)
    lost = len(found) - sum(len(addresses[address]) for address in frames)
    if lost:
        stripped = source is elf and not elf.has_symbol_table
        notes.append(f"{name}: no symbol for {count(lost)}"
                     + ("; it is stripped, and no debug file of it was found" if stripped else ""))
    for address, chain in frames.items():
        for location, mapping in addresses[address]:
            for frame in chain:
                location.line.add(function_id=strings.function(frame), line=frame.line, column=frame.column)
            mapping.has_functions = True
            mapping.has_filenames |= any(frame.file for frame in chain)
            mapping.has_line_numbers |= any(frame.line for frame in chain)
            mapping.has_inline_frames |= len(chain) > 1
    return notes


def find_frames(source, elf, addresses, notes):
    """{address: [SourceFrame]}, innermost first, of the addresses that anything is known of."""
    frames = {}
    lines = {}
    if source.has_lines:
        try:
            lines = read_lines(source.path, addresses)
        except FileNotFoundError:
            notes.append("no lines and no inlined functions: llvm-symbolizer is not there; "
                         "it is in Debian's package llvm")
    for address in addresses:
        if address in lines:
            frames[address] = lines[address]
        elif symbol := source.symbols.find(address) or elf.symbols.find(address):
            frames[address] = [SourceFrame(without_version(symbol))]
    shown = demangle({frame.linker_name for chain in frames.values() for frame in chain})
    return {address: [replace(frame, name=shown[frame.linker_name]) for frame in chain]
            for address, chain in frames.items()}


def read_lines(path, addresses):
    """{address: [SourceFrame]} by DWARF, innermost first, where it tells every function of the chain."""
    output = run_tool(["llvm-symbolizer", f"--obj={path}", "--output-style=JSON", "--inlines", "--functions=linkage",
                       "--no-demangle"], "".join(f"{address:#x}\n" for address in addresses))
    found = {}
    for text in output.splitlines():
        answer = json.loads(text)
        chain = [SourceFrame(without_version(symbol["FunctionName"]), symbol["FileName"], symbol["Line"],
                             symbol["Column"], symbol["StartLine"]) for symbol in answer.get("Symbol", [])]
        if chain and chain[0].file and all(frame.linker_name for frame in chain):
            found[int(answer["Address"], 16)] = chain
    return found


def without_version(name):
    """ELF symbol tables may write NAME@VERSION."""
    return name.partition("@")[0] if name else ""


def demangle(names):
    """{linker's name: as in the source} for C++ and Rust; other names stay."""
    mangled = sorted(name for name in names if name.startswith(("_Z", "_R")))
    shown = dict(zip(names, names, strict=True))
    if mangled:
        try:
            output = run_tool(["c++filt", "--no-verbose"], "".join(f"{name}\n" for name in mangled))
        except FileNotFoundError as error:
            raise ProfileError("c++filt is not there; it is in Debian's package binutils") from error
        shown.update(zip(mangled, output.splitlines(), strict=True))
    return shown


def run_tool(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ElfProblem(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
