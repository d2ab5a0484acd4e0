"""What an ELF file tells of addresses in it: its build-id, where its segments lie, its symbols, its debug file."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile

DEBUG_FOLDER = Path("/usr/lib/debug")
SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                   ("size", "<u8")])
FUNCTION, INDIRECT_FUNCTION = 2, 10
LOCAL, GLOBAL, WEAK = range(3)
# What a damaged file has the reader raise.
UNSOUND = (ELFError, ConstructError, AssertionError, AttributeError, IndexError, KeyError, MemoryError, OverflowError,
           TypeError, UnicodeDecodeError, ValueError)
# How many symbols before an address may begin later than the one that holds it.
NESTED = 16


class ElfProblem(Exception):
    """Why a file is of no use."""


@dataclass
class Symbols:
    """Functions sorted by address, the first address behind each, and ELF's own table of their names."""

    table: np.ndarray
    ends: np.ndarray
    strings: bytes

    def find(self, address):
        """The name of the function that the address lies in, as the linker has it, or None."""
        at = int(np.searchsorted(self.table["value"], address, side="right")) - 1
        for place in range(at, max(-1, at - NESTED), -1):
            if address < int(self.ends[place]):
                return self.best_name(self.table[place]["value"], self.table[place]["size"])
        return None

    def best_name(self, value, size):
        """Of several names for a function, the public one, without underscores, the shortest."""
        low = int(np.searchsorted(self.table["value"], value))
        high = int(np.searchsorted(self.table["value"], value, side="right"))
        same = [entry for entry in self.table[low:high] if entry["size"] == size]
        binding = (GLOBAL, WEAK, LOCAL)

        def rank(entry):
            bound = int(entry["info"]) >> 4
            name = self.name(entry)
            return (binding.index(bound) if bound in binding else len(binding), name.startswith("_"), len(name), name)
        return self.name(min(same, key=rank))

    def name(self, entry):
        """"" where a damaged file has it beyond the table, which ends with a NUL."""
        start = int(entry["name"])
        return self.strings[start:max(start, self.strings.find(b"\0", start))].decode("utf-8", "replace")


@dataclass
class ElfFile:
    """One file: build_id as hexadecimal text or "", segments as (offset, size, address) of what is loaded."""

    path: Path
    build_id: str
    segments: list
    symbols: Symbols
    has_symbol_table: bool
    has_lines: bool
    debug_link: tuple | None

    def address_of(self, offset):
        """The link-time address of a byte of the file, or None when it is not loaded."""
        for start, size, address in self.segments:
            if start <= offset < start + size:
                return offset - start + address
        return None


def read_elf(path):
    """Reads a file; an ElfProblem says why it is of no use."""
    try:
        if not Path(path).is_file() and Path(path).exists():
            raise ElfProblem("not a file")
        with open(path, "rb") as file:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian:
                raise ElfProblem("not a 64-bit little-endian ELF file")
            table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
            return ElfFile(
                Path(path), read_build_id(elf),
                [(segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                 for segment in elf.iter_segments("PT_LOAD")],
                read_symbols(elf, table), table is not None and table.name == ".symtab" and has_data(table),
                any((section := elf.get_section_by_name(name)) and has_data(section)
                    for name in (".debug_line", ".zdebug_line")),
                read_debug_link(elf))
    except FileNotFoundError as error:
        raise ElfProblem("no such file") from error
    except OSError as error:
        raise ElfProblem(f"cannot be read: {error.strerror}") from error
    except UNSOUND as error:
        raise ElfProblem(f"not a sound ELF file: {error or type(error).__name__}") from error


def build_id_in(file):
    """The build-id of an open ELF file; "" of one without, and of what is no ELF file."""
    try:
        return read_build_id(ELFFile(file))
    except UNSOUND:
        return ""


def has_data(section):
    return section["sh_type"] != "SHT_NOBITS" and section["sh_size"] > 0


def read_build_id(elf):
    for section in elf.iter_sections("SHT_NOTE"):
        for note in section.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return note["n_desc"]
    for segment in elf.iter_segments("PT_NOTE"):
        for note in segment.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return note["n_desc"]
    return ""


def read_symbols(elf, section):
    if section is None or not has_data(section):
        return Symbols(np.empty(0, SYMBOL), np.empty(0, "<u8"), b"\0")
    data = section.data()
    table = np.frombuffer(data[:len(data) // SYMBOL.itemsize * SYMBOL.itemsize], SYMBOL)
    kind = table["info"] & 0xF
    table = table[np.isin(kind, (FUNCTION, INDIRECT_FUNCTION)) & (table["section"] != 0)]
    table = table[np.argsort(table["value"], kind="stable")]
    return Symbols(table, ends_of(table, elf), elf.get_section(section["sh_link"]).data() + b"\0")


def ends_of(table, elf):
    """A function without a size, as assembly may have them, ends where the next or its section does."""
    section_ends = np.array([section["sh_addr"] + section["sh_size"] for section in elf.iter_sections()], "<u8")
    of_section = section_ends[np.minimum(table["section"], len(section_ends) - 1)]
    starts = np.append(np.unique(table["value"]), np.uint64(2**64 - 1))
    following = starts[np.searchsorted(starts, table["value"], side="right")]
    return np.where(table["size"] > 0, table["value"] + table["size"], np.minimum(following, of_section))


def read_debug_link(elf):
    """(name, CRC-32) of the debug file that the file names, or None."""
    section = elf.get_section_by_name(".gnu_debuglink")
    if section is None:
        return None
    data = section.data()
    return data[:data.index(b"\0")].decode("utf-8", "surrogateescape"), int.from_bytes(data[-4:], "little")


def find_debug_file(elf, folders):
    """The separate debug file of an ELF file, by build-id, then by the name that it gives; None if there is none."""
    for path, crc in debug_candidates(elf, folders):
        try:
            if path.resolve() == elf.path.resolve():
                continue
            found = read_elf(path)
            same = found.build_id == elf.build_id if elf.build_id else zlib.crc32(path.read_bytes()) == crc
        except (ElfProblem, OSError):  # a place where none is; the next is looked at
            continue
        if same:
            return found
    return None


def debug_candidates(elf, folders):
    if elf.build_id:
        for folder in folders:
            yield folder / ".build-id" / elf.build_id[:2] / f"{elf.build_id[2:]}.debug", None
    if elf.debug_link:
        name, crc = elf.debug_link
        home = elf.path.resolve().parent
        for folder in (home, home / ".debug", *(folder / home.relative_to("/") for folder in folders)):
            yield folder / name, crc
