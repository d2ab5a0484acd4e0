"""The table in which the library says how its heap is laid out: finding it in a process, and reading it.

src/observe/descriptor.h states its form.
"""

import mmap
import struct
from dataclasses import dataclass, field
from functools import lru_cache

import numpy
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from hakmem.live.memory import LiveError, Unreadable

FORMAT = 2
SYMBOL = "hak_descriptor"
SECTION = "hakmem_descriptor"
MAGIC = b"HAKMEM\x01inside\x02\xfe\0"
HEAD = struct.Struct("=16sII16sIIII")
ROW = struct.Struct("=40sQIIII")
TYPE, FIELD, CONSTANT, ROOT = 1, 2, 3, 4
# Far more than the table takes, so that a wrong size is seen as one.
SIZE_MOST = 1 << 20
# Where no file is to be had, at most this much of each writable mapping is searched.
SCAN_MOST = 64 << 20


class NotHakmem(LiveError):
    """The process does not run on HAKMEM."""


@dataclass(frozen=True)
class Field:
    """A field of a struct: bytes from its start, bytes of an element, number of elements."""

    offset: int
    size: int
    count: int


@dataclass
class Descriptor:
    """The table of one copy of the library in one process."""

    address: int
    version: str
    types: dict[str, int] = field(default_factory=dict)
    fields: dict[str, Field] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    roots: dict[str, int] = field(default_factory=dict)
    dtypes: dict[tuple, numpy.dtype] = field(default_factory=dict, repr=False)

    def dtype(self, name, *columns):
        """A numpy type that picks fields of struct `name` out of its bytes; without columns, all numbers in it."""
        if (name, columns) not in self.dtypes:
            self.dtypes[name, columns] = self.make_dtype(name, columns or self.numbers_of(name))
        return self.dtypes[name, columns]

    def make_dtype(self, name, columns):
        places = [self.fields[f"{name}.{column}"] for column in columns]
        formats = [f"<u{place.size}" if place.count == 1 else (f"<u{place.size}", (place.count,)) for place in places]
        return numpy.dtype({"names": list(columns), "formats": formats, "offsets": [place.offset for place in places],
                            "itemsize": self.types[name]})

    def numbers_of(self, name):
        """The fields of a struct that are numbers or pointers."""
        prefix = f"{name}."
        return [key[len(prefix):] for key, place in self.fields.items()
                if key.startswith(prefix) and place.size in (1, 2, 4, 8)]

    def unpack(self, name, data):
        """The numbers in the bytes of struct `name`, by field."""
        kind = self.dtype(name)
        return dict(zip(kind.names, numpy.frombuffer(data, kind, 1)[0].item(), strict=True))


def find(memory):
    """The Descriptor of the copy of HAKMEM that serves the process: the one with the most in use."""
    found = find_all(memory)
    if not found:
        raise NotHakmem(f"{name_of(memory)} does not run on HAKMEM: no mapped file has its descriptor; start it with "
                        "./hakmem run -- PROGRAM, or look with ./hakmem doctor")
    return max(found, key=lambda one: in_use(memory, one))


def in_use(memory, descriptor):
    """Bytes of slabs and huge blocks."""
    pool = descriptor.unpack("shared_pool", memory.read(descriptor.roots["shared_pool"], descriptor.types["shared_pool"]))
    return pool["units_used"] * descriptor.constants["UNIT_SIZE"] + pool["huge_bytes"]


def find_all(memory):
    """The Descriptors of all copies of HAKMEM in the process."""
    files = {}
    for mapping in memory.mappings():
        if mapping.inode and mapping.path.startswith("/"):
            files.setdefault((mapping.device, mapping.inode), []).append(mapping)
    found = []
    for mappings in files.values():
        address = address_in_file(memory, mappings)
        if address is not None:
            found.append(read_descriptor(memory, address))
    return found


def address_in_file(memory, mappings):
    """Where the descriptor of a file, whose mappings these are, lies in the process; None if it has none."""
    file = memory.open_mapping(mappings[0])
    if file is None:
        return address_by_search(memory, mappings)
    with file:
        offset = offset_in_file(file)
    if offset is None:
        return None
    # The last page of what is only read may hold the first of what is written: relocated is the latter alone.
    for mapping in sorted(mappings, key=lambda one: "w" not in one.flags):
        if mapping.offset <= offset < mapping.offset + mapping.size:
            address = mapping.start + offset - mapping.offset
            if has_magic(memory, address):
                return address
    raise LiveError(f"{name_of(memory)}: the descriptor in {mappings[0].path} is not mapped; was the file replaced?")


def address_by_search(memory, mappings):
    """The same when the file cannot be opened: the magic is looked for in what is mapped of it."""
    for mapping in mappings:
        if "w" not in mapping.flags:
            continue
        try:
            at = memory.read(mapping.start, min(mapping.size, SCAN_MOST)).find(MAGIC)
        except Unreadable:
            continue
        if at >= 0:
            return mapping.start + at
    return None


def has_magic(memory, address):
    try:
        return memory.read(address, len(MAGIC)) == MAGIC
    except Unreadable:
        return False


def offset_in_file(file):
    """Where in an ELF file the descriptor lies, or None.

    By symbol; by section, which is what a stripped static program has left; by its magic, where even that is gone.
    """
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(MAGIC)
    except (OSError, ValueError):
        return None  # a device, or empty
    if at < 0:
        return None
    try:
        file.seek(0)
        elf = ELFFile(file)
        address = address_in_elf(elf)
        return at if address is None else next(iter(elf.address_offsets(address)), at)
    except ELFError:
        return at  # whether it is one, the memory behind it says


def address_in_elf(elf):
    """The descriptor's address as linked, by symbol or section."""
    dynamic = elf.get_section_by_name(".dynsym")
    symbols = dynamic.get_symbol_by_name(SYMBOL) if dynamic else None
    if symbols and symbols[0]["st_shndx"] != "SHN_UNDEF":
        return symbols[0]["st_value"]
    section = elf.get_section_by_name(SECTION)
    return section["sh_addr"] if section else None


def read_descriptor(memory, address):
    """The Descriptor at an address."""
    head = memory.read(address, HEAD.size)
    magic, form, size, version, rows, row_size, rows_offset, pointer_size = HEAD.unpack(head)
    version = version.rstrip(b"\0").decode(errors="replace")
    if magic != MAGIC:
        raise NotHakmem(f"{name_of(memory)}: no descriptor of HAKMEM at {address:#x}")
    if form != FORMAT:
        raise LiveError(f"{name_of(memory)}: its HAKMEM {version} describes itself in format {form}, this tool reads "
                        f"format {FORMAT}; use the tools of that HAKMEM")
    if row_size != ROW.size or pointer_size != 8 or size > SIZE_MOST or rows_offset + rows * row_size > size:
        raise LiveError(f"{name_of(memory)}: the descriptor at {address:#x} is damaged")
    return parse_rows(address, version, memory.read(address + rows_offset, rows * row_size))


@lru_cache(maxsize=16)
def parse_rows(address, version, data):
    """A Descriptor from the bytes of its rows."""
    made = Descriptor(address, version)
    for name, value, size, count, kind, _ in ROW.iter_unpack(data):
        name = name.rstrip(b"\0").decode(errors="replace")
        if kind == TYPE:
            made.types[name] = size
        elif kind == FIELD:
            made.fields[name] = Field(value, size, count)
        elif kind == CONSTANT:
            made.constants[name] = value
        elif kind == ROOT:
            made.roots[name] = value
    return made


def name_of(memory):
    """How messages call what is read."""
    pid = getattr(memory, "pid", None)
    return f"process {pid}" if pid else "the program"
