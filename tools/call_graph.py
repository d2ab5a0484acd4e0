"""Finds which function of src/ calls which, from assembly listings.

Each source of a build's compile_commands.json is compiled again without optimization, with inline functions kept as
functions, and with the code of debug builds and of the cycle profile. So each call in the source is a call in the
listing."""
from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

# Later arguments win. `always_inline` is defined away, so that inline functions stay functions.
PLAIN = ["-O0", "-g1", "-w", "-Dalways_inline=", "-fkeep-inline-functions", "-fno-omit-frame-pointer",
         "-UHAKMEM_BUILD_RELEASE", "-DHAKMEM_BUILD_DEBUG=1", "-DHAKMEM_BUILD_CYCLES=1"]
OUTSIDE = "outside src/"  # where a system header's functions are written
SYMBOL = re.compile(r"[A-Za-z_.$][\w.$]*")


class Entry(TypedDict, total=False):
    """An entry of compile_commands.json."""

    directory: str
    file: str
    command: str
    arguments: list[str]


@dataclass
class Symbol:
    """A function, or an object of static storage."""

    unit: str  # the source that was compiled, relative to src/
    name: str
    file: str = ""  # where a function is written, relative to src/
    function: bool = False
    shared: bool = False    # other units may name it
    weak: bool = False      # another unit's may take its place
    exported: bool = False  # programs may, too
    calls: set[str] = field(default_factory=set)  # names
    names: set[str] = field(default_factory=set)  # names whose address it takes
    calls_by_pointer: bool = False


class Listing:
    """The symbols of one assembly listing."""

    def __init__(self, unit: str, text: str, source_root: str) -> None:
        self.unit = unit
        self.symbols: dict[str, Symbol] = {}
        self.root = Symbol(unit, "")  # stands for the system, which calls constructors and destructors
        self._parse(text, source_root)

    def _parse(self, text: str, source_root: str) -> None:
        functions = set(re.findall(r"^\s*\.type\s+([\w.$]+), *[@%]function", text, re.M))
        shared = self._listed("globl|weak", text)
        weak = self._listed("weak", text)
        exported = shared - self._listed("hidden|internal", text)
        files: dict[str, str] = {}
        aliases: list[list[str]] = []
        section = ".text"
        current: Symbol | None = None
        for line in text.splitlines():
            label = re.match(r"([A-Za-z_.$][\w.$]*):", line)
            if label:
                # Local labels inside a function are places in its code.
                if current is None or not current.function or not label.group(1).startswith(".L"):
                    name = label.group(1)
                    current = Symbol(self.unit, name, function=name in functions, shared=name in shared, weak=name
                                     in weak, exported=name in exported)
                    if not section.startswith(".debug"):
                        self.symbols[name] = current
                continue
            words = line.split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            operation, operands = words[0], words[1] if len(words) == 2 else ""
            if operation in (".section", ".text", ".data", ".bss"):
                section = operands.split(",")[0] if operation == ".section" else operation
                current = current if current and current.function else None
            elif operation == ".file":
                numbered = re.match(r'(\d+) (?:"([^"]*)" )?"([^"]*)"', operands)
                if numbered:
                    files[numbered.group(1)] = os.path.join(numbered.group(2) or "", numbered.group(3))
            elif operation == ".loc" and current and not current.file:
                path = os.path.realpath(files.get(operands.split()[0], ""))
                current.file = os.path.relpath(path, source_root) if path.startswith(f"{source_root}/") else OUTSIDE
            elif operation == ".size":
                current = None
            elif operation in (".set", ".equ"):
                aliases.append([part.strip() for part in operands.split(",")])
            elif operation.startswith(".") and operation not in (".quad", ".xword", ".long", ".word",
                                                                 ".cfi_personality"):
                continue
            elif not section.startswith(".debug"):
                self._note(current or self.root, operation, operands)
        for alias, name in aliases:
            if name in self.symbols:
                self.symbols[alias] = self.symbols[name]
                self.symbols[name].exported |= alias in exported

    @staticmethod
    def _listed(directives: str, text: str) -> set[str]:
        """The names that such directives list."""
        lists = re.findall(rf"^\s*\.(?:{directives})\s+([\w.$, ]+)", text, re.M)
        return {name.strip() for names in lists for name in names.split(",")}

    @staticmethod
    def _note(symbol: Symbol, operation: str, operands: str) -> None:
        call = operation in ("call", "callq", "bl")
        if (call and operands.startswith("*")) or operation == "blr":
            symbol.calls_by_pointer = True
        elif call:
            symbol.calls.add(operands.split("@")[0].strip())
        else:
            symbol.names.update(name.split("@")[0] for name in SYMBOL.findall(operands))


class CallGraph:
    """The symbols of all units. A name means the unit's own symbol or else the shared one, which takes precedence
    over weak ones."""

    def __init__(self, listings: list[Listing]) -> None:
        self.listings = {listing.unit: listing for listing in listings}
        self.shared: dict[str, Symbol] = {}
        for listing in listings:
            for name, symbol in listing.symbols.items():
                if symbol.shared and (name not in self.shared or self.shared[name].weak):
                    self.shared[name] = symbol

    def find(self, unit: str, name: str) -> Symbol | None:
        """Returns the symbol that a name means in a unit. The linker's --wrap turns NAME into __wrap_NAME."""
        own = self.listings[unit].symbols.get(name)
        if own and not own.weak:
            return own
        return self.shared.get(name) or self.shared.get(f"__wrap_{name}")

    def functions(self, file: str, name: str) -> list[Symbol]:
        """Returns the file's function of that name, once for each unit that includes it."""
        found = (listing.symbols.get(name) for listing in self.listings.values())
        return [symbol for symbol in found if symbol and symbol.function and symbol.file == file]

    def callees(self, symbol: Symbol) -> list[Symbol]:
        """Returns what a function calls: directly, or by passing it to an inline function that calls its argument."""
        called = [callee for name in symbol.calls if (callee := self.find(symbol.unit, name))]
        if any(callee.calls_by_pointer and callee.file.endswith(".h") for callee in called):
            handed = [self.find(symbol.unit, name) for name in symbol.names]
            called += [callee for callee in handed if callee and callee.function]
        return called

    def reached(self) -> set[tuple[str, str]]:
        """Returns all symbols that calls or addresses reach from public names and what the system calls."""
        todo = [symbol for listing in self.listings.values() for symbol in listing.symbols.values() if symbol.exported]
        todo += [listing.root for listing in self.listings.values()]
        seen: set[tuple[str, str]] = set()
        while todo:
            symbol = todo.pop()
            if (symbol.unit, symbol.name) in seen:
                continue
            seen.add((symbol.unit, symbol.name))
            todo += [used for used in (self.find(symbol.unit, name) for name in symbol.calls | symbol.names) if used]
        return seen


def plain_command(entry: Entry) -> list[str]:
    """Returns the command of compile_commands.json, changed to write such a listing to standard output."""
    arguments = shlex.split(entry["command"]) if "command" in entry else list(entry["arguments"])
    output = arguments.index("-o")
    del arguments[output:output + 2]
    arguments.remove("-c")
    return arguments + PLAIN + ["-S", "-o", "-"]


def target_of(entry: Entry) -> str:
    """Returns the name of the CMake target for which the entry compiles its source."""
    found = re.search(r"CMakeFiles/([\w-]+)\.dir/", entry.get("command") or " ".join(entry["arguments"]))
    return found[1] if found else ""


def read_calls(root: Path, build: Path, variants: Mapping[str, tuple[str, ...]]) -> dict[str, CallGraph]:
    """Returns the call graph of each variant of a build's sources under root/src. {variant: patterns of its targets};
    of two targets with one source, the one counts whose pattern comes last."""
    source_root = os.path.realpath(root / "src")
    entries: dict[str, dict[str, tuple[int, Entry]]] = {variant: {} for variant in variants}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        unit, target = os.path.relpath(path, source_root), target_of(entry)
        for variant, patterns in variants.items() if path.startswith(f"{source_root}/") else ():
            rank = max((i for i, pattern in enumerate(patterns) if re.fullmatch(pattern, target)), default=-1)
            if rank >= 0 and rank >= entries[variant].get(unit, (0, entry))[0]:
                entries[variant][unit] = (rank, entry)

    def compile_entry(item: tuple[str, Entry]) -> str:
        return subprocess.run(plain_command(item[1]), cwd=item[1]["directory"], check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    chosen = {(unit, target_of(entry)): entry for rows in entries.values() for unit, (_, entry) in rows.items()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = dict(zip(chosen, pool.map(compile_entry, ((unit, entry) for (unit, _), entry in chosen.items())),
                         strict=True))
    return {variant: CallGraph([Listing(unit, texts[unit, target_of(entry)], source_root)
                                for unit, (_, entry) in sorted(rows.items())]) for variant, rows in entries.items()}
