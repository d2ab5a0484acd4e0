#!/usr/bin/env python3
"""Compares the libraries' binary interface with that of the last release: their exported names, and the types and
functions of hakmem.h. A program built against the release must run with this library.

The reference is committed. packaging/deb/libhakmem0.symbols has the names and the version that introduced each, as
Debian's packages carry them. packaging/abi/libhakmem.so.0.abixml has the functions, written by abidw and compared by
abidiff (abigail-tools). packaging/abi/layouts.json has the structs and enums. Names and constants may be added. So
may fields at the end of structs, because structs are always passed with their size."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

if TYPE_CHECKING:
    from elftools.dwarf.die import DIE

ROOT = Path(__file__).resolve().parents[1]
SYMBOLS = ROOT / "packaging/deb/libhakmem0.symbols"
FUNCTIONS = ROOT / "packaging/abi/libhakmem.so.0.abixml"
LAYOUTS = ROOT / "packaging/abi/layouts.json"
IGNORED = ROOT / "packaging/abi/layouts.abignore"
# The libraries of the package. Those beside libhakmem.so also serve other allocators' names.
LIBRARIES = ("libhakmem", "libhakmem-je", "libhakmem-secure", "libhakmem-tc")
HEAD = "{}.so.0 libhakmem0 #MINVER#\n* Build-Depends-Package: libhakmem-dev\n"


class Failed(Exception):
    """A required program failed. The text is for the user."""


def run(*words: str | Path, good: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """Runs a program. Returns (exit status, output); raises Failed for any status that is not good."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failed(f"{words[0]} is not installed") from None
    # abidiff's status is a set of bits: 1 and 2 are errors, 4 a difference, 8 an incompatible one.
    if done.returncode not in good:
        raise Failed(f"failed ({done.returncode}): {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout


def exported_names(library: Path) -> set[str]:
    """Returns the names that a library exports."""
    with open(library, "rb") as raw:
        table = ELFFile(raw).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return {symbol.name for symbol in table.iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"}


def released_names(library: str = "libhakmem") -> dict[str, str]:
    """Returns {name: the version that introduced it}."""
    parts = re.split(r"^(\S+)\.so\.0 libhakmem0 .*$", SYMBOLS.read_text(), flags=re.MULTILINE)
    part = dict(zip(parts[1::2], parts[2::2])).get(library, "")
    return {name: version for name, version in re.findall(r"^ (\S+)@Base (\S+)$", part, re.MULTILINE)}


def compile_sources(sources: Path, folder: Path) -> Path:
    """Compiles the one-file source into a library with debugging data, hakmem.h beside it."""
    run(sys.executable, "-B", sources / "tools/amalgamate.py", folder)
    library = folder / "libhakmem.so"
    run("gcc", "-g", "-O0", "-w", "-shared", "-fPIC", "-ftls-model=initial-exec", "-fno-eliminate-unused-debug-types",
        "-DHAKMEM_OVERRIDE=1", "-Wl,-soname,libhakmem.so.0", folder / "hakmem.c", "-pthread", "-o", library)
    return library


def describe_functions(library: Path) -> Path:
    """Writes a description of the library's functions and returns its path."""
    output = library.parent / "functions.abixml"
    # Types are named by a hash of their content, so a new type does not change the names of others.
    run("abidw", "--header-file", library.parent / "hakmem.h", "--drop-private-types", "--no-corpus-path",
        "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-architecture", "--type-id-style", "hash",
        "--out-file", output, library)
    return output


def describe_layouts(library: Path) -> dict[str, dict[str, Any]]:
    """Returns {struct: {field: [offset, type and size]}} and {enum: {constant: value}} of the public header."""
    found: dict[str, dict[str, Any]] = {}
    with open(library, "rb") as raw:
        dwarf = ELFFile(raw).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            assert program is not None
            files = program["file_entry"]
            for entry in unit.get_top_DIE().iter_children():
                attributes = entry.attributes
                if "DW_AT_name" not in attributes or "DW_AT_decl_file" not in attributes:
                    continue
                # Version 5 counts files from 0.
                place = attributes["DW_AT_decl_file"].value - (unit["version"] < 5)
                if files[place].name != b"hakmem.h":
                    continue
                name = attributes["DW_AT_name"].value.decode()
                if entry.tag == "DW_TAG_structure_type" and entry.has_children:
                    found[f"struct {name}"] = {field.attributes["DW_AT_name"].value.decode(): field_layout(field)
                                               for field in entry.iter_children()}
                elif entry.tag == "DW_TAG_enumeration_type":
                    found[f"enum {name}"] = {constant.attributes["DW_AT_name"].value.decode():
                                             constant.attributes["DW_AT_const_value"].value
                                             for constant in entry.iter_children()}
    return found


def field_layout(field: DIE) -> list[Any]:
    """Returns [offset, type, size] of a field."""
    kind = field.get_DIE_from_attribute("DW_AT_type")
    name = kind.attributes["DW_AT_name"].value.decode() if "DW_AT_name" in kind.attributes else kind.tag
    while "DW_AT_byte_size" not in kind.attributes:
        kind = kind.get_DIE_from_attribute("DW_AT_type")
    return [field.attributes["DW_AT_data_member_location"].value, name, kind.attributes["DW_AT_byte_size"].value]


def missing_names(library: Path, release: str = "libhakmem") -> list[str]:
    """Returns a line for each released name that the library no longer exports."""
    return [f"{library.name} exports {name} no more"
            for name in sorted(set(released_names(release)) - exported_names(library))]


def changed_functions(library: Path) -> list[str]:
    """Returns abidiff's report, if it finds changes."""
    status, text = run("abidiff", "--suppressions", IGNORED, "--no-added-syms", "--no-unreferenced-symbols", FUNCTIONS,
                       describe_functions(library), good=(0, 4, 8, 12))
    return [f"the public functions differ from {FUNCTIONS.relative_to(ROOT)}:\n{text.strip()}"] if status else []


def changed_layouts(library: Path) -> list[str]:
    """Returns a line for each changed struct field or enum constant."""
    now = describe_layouts(library)
    found = []
    for kind, fields in json.loads(LAYOUTS.read_text()).items():
        if kind not in now:
            found.append(f"{kind} is gone")
            continue
        found += [f"{kind}: {name} was {was}, is {now[kind].get(name, 'gone')}" for name, was in fields.items()
                  if now[kind].get(name) != was]
    return found


def changed_headers(sources: Path) -> list[str]:
    """Returns a line for each change in the public header."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_sources(sources, Path(folder))
        return changed_functions(library) + changed_layouts(library)


def update(library: Path, sources: Path, version: str) -> None:
    """Makes the library the reference for release VERSION. Names exported before keep their versions."""
    text = ""
    for name in LIBRARIES:
        known = released_names(name) if SYMBOLS.exists() else {}
        names = sorted(exported_names(library.with_name(f"{name}.so")))
        text += HEAD.format(name) + "".join(f" {symbol}@Base {known.get(symbol, version)}\n" for symbol in names)
    SYMBOLS.write_text(text)
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_sources(sources, Path(folder))
        FUNCTIONS.write_bytes(describe_functions(compiled).read_bytes())
        rows = (f" {json.dumps(kind)}: {{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(what)}"
                for name, what in fields.items()) + "\n }" for kind, fields in describe_layouts(compiled).items())
        LAYOUTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description="Compare the library's binary interface with that of the last release.")
    parser.add_argument("--library", type=Path, default=ROOT / "build/release/lib/libhakmem.so",
                        help="libhakmem.so, with the other libraries beside it")
    parser.add_argument("--sources", type=Path, default=ROOT, help="the checkout whose headers are compared")
    parser.add_argument("--update", action="store_true", help="make this the reference: part of a release")
    arguments = parser.parse_args()
    try:
        if arguments.update:
            header = (arguments.sources / "include/hakmem/hakmem.h").read_text()
            version = re.findall(r'HAK_VERSION_STRING "(.*)"', header)[0]
            update(arguments.library, arguments.sources, version)
            return
        found = [line for name in LIBRARIES for line in missing_names(arguments.library.with_name(f"{name}.so"), name)]
        found += changed_headers(arguments.sources)
    except (Failed, OSError) as failed:
        sys.exit(f"check_abi: {failed}")
    for text in found:
        print(text)
    if found:
        sys.exit(1)
    print("nothing that the last release had is missing or changed")


if __name__ == "__main__":
    main()
