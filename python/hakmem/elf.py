"""Reads an ELF file: its build-id, where its segments lie, its symbols and its debug file."""

from __future__ import annotations

import io
import os
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment

from hakmem.clean import clean, clean_bytes
from hakmem.foreign import open_regular

if TYPE_CHECKING:
    from elftools.elf.sections import Section

DEBUG_FOLDER = Path("/usr/lib/debug")
# Of Elf64_Sym: name, info, section, value, size.
SYMBOL = struct.Struct("<IBxHQQ")
FUNCTION, INDIRECT_FUNCTION = 2, 10
LOCAL, GLOBAL, WEAK = range(3)
# What the reader raises for a damaged file.
UNSOUND = (ELFError, ConstructError, struct.error, zlib.error, ArithmeticError, AssertionError, AttributeError,
           LookupError, MemoryError, RecursionError, StopIteration, TypeError, ValueError)
# More than a linker makes. A file that claims 2^60 sections of no bytes would be read for ever.
PARTS_MOST = 1 << 17
SECTION_BYTES, SEGMENT_BYTES, TAG_BYTES = 64, 56, 16
# Limits: bytes of a symbol table, of its names and of a dynamic segment; number of notes.
SYMBOLS_MOST, NAMES_MOST, TAGS_MOST, NOTES_MOST = 128 << 20, 512 << 20, 1 << 20, 4096
BUILD_ID_MOST, LINK_MOST = 128, 8192
# A debug file that is identified by its checksum is read whole, up to this size.
CHECKED_MOST = 4 << 30
HEXADECIMAL = frozenset("0123456789abcdef")
# Limits: bytes of a function's name, and names of one address that are compared.
NAME_MOST, SAME_MOST = 1 << 16, 64
# Limits of .gnu_debugdata: its bytes, those of the file packed in it, and of the memory to unpack it. Fedora's are made
# by xz -9, whose memory is 65 MiB; firefox's has 20 MiB.
PACKED_MOST, UNPACKED_MOST, UNPACK_MEMORY = 32 << 20, 128 << 20, 80 << 20
# Symbols may nest, so the last one that begins before an address need not hold it. find() looks at this many.
NESTED = 16


class ElfProblem(Exception):
    """Why a file is of no use."""


class Symbol(NamedTuple):
    """A function's entry in an ELF symbol table. name: where its name lies in the table of names."""

    value: int
    size: int
    info: int
    name: int


@dataclass
class Symbols:
    """Functions sorted by address. ends: the first address behind each. strings: ELF's own table of names."""

    table: list[Symbol]
    ends: list[int]
    strings: bytes

    def __post_init__(self) -> None:
        self.starts = [entry.value for entry in self.table]

    def find(self, address: int) -> str | None:
        """Returns the linker's name of the function at the address; None if there is none."""
        at = bisect_right(self.starts, address) - 1
        for place in range(at, max(-1, at - NESTED), -1):
            if address < self.ends[place]:
                return self.best_name(self.table[place].value, self.table[place].size)
        return None

    def best_name(self, value: int, size: int) -> str:
        """Returns the best of several names for a function: public before local, without underscores, the shortest."""
        low, high = bisect_left(self.starts, value), bisect_right(self.starts, value)
        same = list(islice((entry for entry in self.table[low:high] if entry.size == size), SAME_MOST))
        binding = (GLOBAL, WEAK, LOCAL)

        def rank(entry: Symbol) -> tuple[int, bool, int, str]:
            bound = entry.info >> 4
            name = self.name(entry)
            return (binding.index(bound) if bound in binding else len(binding), name.startswith("_"), len(name), name)
        return self.name(min(same, key=rank))

    def name(self, entry: Symbol) -> str:
        """Returns a symbol's name; "" if a damaged file has it beyond the table, which ends with a NUL."""
        start = entry.name
        end = self.strings.find(b"\0", start, start + NAME_MOST)
        return clean_bytes(self.strings[start:max(start, end)], NAME_MOST)


@dataclass
class ElfFile:
    """One ELF file. build_id: hexadecimal text or "". segments: (offset, size, address) of each part that is loaded."""

    path: Path
    build_id: str
    segments: list[tuple[int, int, int]]
    symbols: Symbols
    has_symbol_table: bool
    has_lines: bool
    debug_link: tuple[str, int] | None

    def address_of(self, offset: int) -> int | None:
        """Returns the link-time address of a byte of the file; None if the byte is not loaded."""
        for start, size, address in self.segments:
            if start <= offset < start + size:
                return offset - start + address
        return None


def sound_elf(file: BinaryIO) -> ELFFile:
    """Returns the ELFFile of an open file, after checking that its tables are not impossibly large. Raises ELFError
    or another of UNSOUND."""
    elf = ELFFile(file)
    if elf.elfclass != 64 or not elf.little_endian:
        return elf
    for count, size, least, what in ((elf.num_sections(), elf["e_shentsize"], SECTION_BYTES, "sections"),
                                     (elf.num_segments(), elf["e_phentsize"], SEGMENT_BYTES, "segments")):
        if count and (count > PARTS_MOST or size < least):
            raise ELFError(f"{count:,} {what} of {size} bytes")
    return elf


def bytes_of(elf: ELFFile, section: Section, most: int) -> bytes:
    """Returns a section's bytes as the file has them. Raises ELFError if they are more than `most`, or compressed:
    uncompressed they could be of any size."""
    if section.compressed or section["sh_size"] > most:
        raise ELFError(f"section {section.name[:40]!r} is packed, or of {section['sh_size']:,} bytes")
    return bytes_at(elf, section["sh_offset"], section["sh_size"])


def bytes_at(elf: ELFFile, offset: int, size: int) -> bytes:
    """Returns bytes of the file, fewer at its end."""
    end = elf.stream.seek(0, 2)
    elf.stream.seek(min(offset, end))
    return elf.stream.read(min(size, max(end - offset, 0)))


def read_elf(path: str | Path) -> ElfFile:
    """Returns the ElfFile of a path; raises ElfProblem if the file is of no use."""
    try:
        file = open_regular(path)
        if file is None:
            raise ElfProblem("not a file")
        with file:
            elf = sound_elf(file)
            if elf.elfclass != 64 or not elf.little_endian:
                raise ElfProblem("not a 64-bit little-endian ELF file")
            table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
            symbols = read_symbols(elf, table)
            if table is None or table.name != ".symtab":
                symbols = joined(symbols, packed_symbols(elf))
            return ElfFile(
                Path(path), read_build_id(elf),
                [(segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                 for segment in elf.iter_segments("PT_LOAD")],
                symbols, table is not None and table.name == ".symtab" and has_data(table),
                any((section := elf.get_section_by_name(name)) and has_data(section)
                    for name in (".debug_line", ".zdebug_line")),
                read_debug_link(elf))
    except FileNotFoundError as error:
        raise ElfProblem("no such file") from error
    except OSError as error:
        raise ElfProblem(f"cannot be read: {error.strerror}") from error
    except UNSOUND as error:
        raise ElfProblem(clean(f"not a sound ELF file: {error or type(error).__name__}", 200)) from error


def build_id_in(file: BinaryIO) -> str:
    """Returns the build-id of an open file; "" if it has none or is no ELF file."""
    try:
        return read_build_id(sound_elf(file))
    except UNSOUND:
        return ""


def has_data(section: Section) -> bool:
    """Returns whether the file holds the section's bytes."""
    return section["sh_type"] != "SHT_NOBITS" and section["sh_size"] > 0


def read_build_id(elf: ELFFile) -> str:
    """Returns the build-id; "" if there is none."""
    for part in (*elf.iter_sections("SHT_NOTE"), *elf.iter_segments("PT_NOTE")):
        if isinstance(part, (NoteSection, NoteSegment)):
            for note in islice(part.iter_notes(), NOTES_MOST):
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return checked_build_id(note["n_desc"])
    return ""


def checked_build_id(text: object) -> str:
    """Returns the build-id if it is hexadecimal; raises ELFError otherwise, because it becomes a part of a path."""
    if not isinstance(text, str) or len(text) > BUILD_ID_MOST or not HEXADECIMAL.issuperset(text):
        raise ELFError("a build-id that is none")
    return text


def read_symbols(elf: ELFFile, section: Section | None) -> Symbols:
    """Returns the Symbols of a symbol table."""
    if section is None or not has_data(section):
        return Symbols([], [], b"\0")
    data = bytes_of(elf, section, SYMBOLS_MOST)
    sections = [entry["sh_addr"] + entry["sh_size"] for entry in elf.iter_sections()]
    found = [(Symbol(value, size, info, name), sections[min(number, len(sections) - 1)])
             for name, info, number, value, size in SYMBOL.iter_unpack(data[:len(data) // SYMBOL.size * SYMBOL.size])
             if info & 0xF in (FUNCTION, INDIRECT_FUNCTION) and number]
    found.sort(key=lambda pair: pair[0].value)
    table = [symbol for symbol, _ in found]
    names = bytes_of(elf, elf.get_section(section["sh_link"]), NAMES_MOST)
    return Symbols(table, ends_of(table, [end for _, end in found]), names + b"\0")


def packed_symbols(elf: ELFFile) -> Symbols:
    """Returns the Symbols of .gnu_debugdata, an ELF file packed by xz with the functions that a stripped file's
    dynamic symbols lack. There are none if the section is damaged or too large, or if this Python has no lzma."""
    none = Symbols([], [], b"\0")
    section = elf.get_section_by_name(".gnu_debugdata")
    if section is None or not has_data(section):
        return none
    try:
        import lzma  # not a part of every Python
    except ImportError:
        return none
    try:
        data = bytes_of(elf, section, PACKED_MOST)
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=UNPACK_MEMORY)
        plain = reader.decompress(data, UNPACKED_MOST)
        if not reader.eof:
            return none
        packed = sound_elf(io.BytesIO(plain))
        return read_symbols(packed, packed.get_section_by_name(".symtab"))
    except (lzma.LZMAError, EOFError, *UNSOUND):
        return none


def joined(one: Symbols, other: Symbols) -> Symbols:
    """Returns the Symbols of two tables of one program."""
    if not other.table:
        return one
    shift = len(one.strings)
    found = sorted([*zip(one.table, one.ends), *zip((entry._replace(name=entry.name + shift) for entry in other.table),
                                                    other.ends)], key=lambda pair: pair[0].value)
    table = [symbol for symbol, _ in found]
    return Symbols(table, ends_of(table, [end for _, end in found]), one.strings + other.strings)


def ends_of(table: list[Symbol], section_ends: list[int]) -> list[int]:
    """Returns the first address behind each function. A function without a size, as assembly may define it, ends
    where the next one or its section ends. A table without local functions is a stripped one: the next function that
    it lists may be far behind the end of such a function, so there only its first byte counts as the function's."""
    ends, following = [0] * len(table), (1 << 64) - 1
    lists_all = any(entry.info >> 4 == LOCAL for entry in table)
    for place in reversed(range(len(table))):
        value, size = table[place].value, table[place].size
        # Functions at one address have the same one behind them.
        if place + 1 < len(table) and table[place + 1].value != value:
            following = table[place + 1].value
        ends[place] = value + (size or 1) if size or not lists_all else min(following, section_ends[place])
    return ends


def read_debug_link(elf: ELFFile) -> tuple[str, int] | None:
    """Returns (name, CRC-32) of the debug file that the file names; None if it names none."""
    section = elf.get_section_by_name(".gnu_debuglink")
    if section is None:
        return None
    data = bytes_of(elf, section, LINK_MOST)
    name = data[:data.index(b"\0")].decode("utf-8", "surrogateescape")
    if "/" in name:
        raise ELFError("a debug file's name with a folder in it")
    return name, int.from_bytes(data[-4:], "little")


def find_debug_file(elf: ElfFile, folders: Iterable[Path]) -> ElfFile | None:
    """Returns the separate debug file, by build-id or by the name that the file gives; None if there is none."""
    for path, crc in debug_candidates(elf, folders):
        try:
            if path.resolve() == elf.path.resolve():
                continue
            found = read_elf(path)
            same = found.build_id == elf.build_id if elf.build_id else checksum(path) == crc
        except (ElfProblem, OSError, ValueError):  # no debug file is here; the next place may have it
            continue
        if same:
            return found
    return None


def checksum(path: Path) -> int | None:
    """Returns the CRC-32 of a file; None if it is no regular file or too large."""
    file, found = open_regular(path), 0
    if file is None:
        return None
    with file:
        if file.size > CHECKED_MOST:
            return None
        while part := file.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


def debuginfod_folders() -> list[Path]:
    """Returns the folders in which debuginfod's client keeps fetched debug files."""
    own, cache, home = (os.environ.get(name) for name in ("DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME", "HOME"))
    return [
        Path(path)
        for path in (own, cache and f"{cache}/debuginfod_client", home and f"{home}/.cache/debuginfod_client") if path
    ]


def debug_candidates(elf: ElfFile, folders: Iterable[Path]) -> Iterator[tuple[Path, int | None]]:
    """Yields (path, expected CRC-32 or None) for each place where the debug file may be."""
    if elf.build_id:
        for folder in folders:
            yield folder / ".build-id" / elf.build_id[:2] / f"{elf.build_id[2:]}.debug", None
        for folder in debuginfod_folders():
            yield folder / elf.build_id / "debuginfo", None
    if elf.debug_link:
        name, crc = elf.debug_link
        home = elf.path.resolve().parent
        for folder in (home, home / ".debug", *(folder / home.relative_to("/") for folder in folders)):
            yield folder / name, crc
