"""Finds and reads the table in which the library describes the layout of its heap.

src/observe/descriptor.h defines the table's form."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from elftools.elf.sections import SymbolTableSection

from hakmem.clean import clean, clean_bytes
from hakmem.compat import zip_strict
from hakmem.elf import UNSOUND as UNSOUND_ELF
from hakmem.elf import sound_elf
from hakmem.foreign import Mapping
from hakmem.live.memory import UNSOUND, LiveError, MappedMemory, Memory, ProcessMemory, Unreadable, name_of, sense
from hakmem.paths import COMMAND

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

    from hakmem.foreign import Reader

T = TypeVar("T")

FORMAT = 2
SYMBOL = "hak_descriptor"
SECTION = "hakmem_descriptor"
MAGIC = b"HAKMEM\x01inside\x02\xfe\0"
HEAD = struct.Struct("=16sII16sIIII")
ROW = struct.Struct("=40sQIIII")
TYPE, FIELD, CONSTANT, ROOT = 1, 2, 3, 4
# Far more than the table, and than any struct, so that a wrong size is recognized.
SIZE_MOST, STRUCT_MOST = 1 << 20, 1 << 20
# Bytes that are searched for the table: of a file; of the mappings of a file that is not available; of all files whose
# code a process runs.
FILE_MOST, SCAN_MOST, SEARCH_MOST = 1 << 30, 64 << 20, 8 << 30
# {what tells a file from others, and from itself before a change: what offset_in_file() returned for it}.
OFFSETS: dict[tuple[int, ...], int | None] = {}
OFFSETS_MOST = 4096
# Limit of copies of HAKMEM in one process.
COPIES_MOST = 64


class NotHakmem(LiveError):
    """The process does not run on HAKMEM."""


class Damaged(LiveError):
    """The descriptor is one that no HAKMEM has."""


NUMBERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
KINDS_MOST = 1 << 32
# What a reader needs: structs with their fields, as numbers and as arrays; constants with their least and greatest
# sensible values; roots. The heap profile's are checked where it is read.
NUMBER_FIELDS = {
    "slot": "free touched kind huge_pages decommitted",
    "shared_pool": "slots slots_committed units_used huge_bytes footprint_peak",
    "slab": "owner used class units state remote_count",
    "heap": "state id thread_id kind cache cache_purged next body body_purged pending_count",
    "heap_counters": "refills flushes slabs_carved remote_blocks", "warm_stock": "count",
    "bin": "top", "size_class": "size blocks units slot_base slot_limit",
    "registry": "heaps count live_threads folds", "huge": "next address size heap", "huge_range": "start size",
    "huge_inside": "buckets ranges range_count range_bytes live_bytes live_blocks"}
ARRAY_FIELDS = {
    "superslab.slabs": "slab", "slab.local": "", "slab.remote": "", "heap_body.warm": "warm_stock",
    "heap_body.counters": "heap_counters", "heap_body.classes": "class_counters", "account.counters": "heap_counters",
    "account.classes": "class_counters", "registry.departed": "account", "thread_cache.bins": "bin",
    "thread_cache.slots": ""}
CONSTANTS = {
    "UNIT_SIZE": (4096, 1 << 21), "SUPERSLAB_SIZE": (1 << 16, 1 << 30), "SUPERSLAB_UNITS": (2, 1 << 10),
    "CLASS_COUNT": (1, 255), "CLASS_SPAN_1": (0, 255), "POOL_DRAINING_USED": (0, 1 << 10),
    "HUGE_BUCKETS": (1, 1 << 20), "HUGE_MAX_RANGES": (1, 1 << 16),
    **dict.fromkeys(("SLOT_UNUSED", "SLOT_SUPERSLAB", "SLOT_METADATA", "PAGES_HUGE", "SLAB_WARM", "SLAB_ACTIVE",
                     "HEAP_UNUSED", "HEAP_LIVE", "HEAP_ORPHAN", "HEAP_THREAD", "HEAP_HOUSE", "HEAP_FIRST_CLASS",
                     "MEMORY_PURGED"), (0, KINDS_MOST))}
OTHER_CONSTANTS = {
    "WINDOW_PAGE_MAP": (0, 1 << 30), "CACHE_SLOTS": (1, 1 << 20), "CACHE_SLOTS_FIRST": (1, 1 << 20),
    "FAST_MAX": (1, 1 << 30), "SLOT_FOREIGN": (0, KINDS_MOST), "HEAP_PROFILE": (0, KINDS_MOST),
    "HEAP_SHARED": (0, KINDS_MOST), "HEAP_LONG": (0, KINDS_MOST), "STACK_MOST": (1, 1 << 12),
    "WEIGHT_ONE": (1, 1 << 48), "HAK_SECURE": (0, 1),
}
ROOTS = ("hak_window", "hak_units", "shared_pool", "registry", "size_classes", "hak_options", "huge_inside")
PROFILE_FIELDS = {
    "profile": "on generation mean started_ns by_tables", "site_list": "first count", "site": "next frame_count",
    "site_sums": "objects bytes"}
PROFILE_ARRAYS = {"site.allocated": "site_sums", "site.in_use": "site_sums", "site.lifetimes": "site_sums"}
SIZE_FIELDS = {"site_size_list": "first count", "site_size": "next site size peak_epoch"}
SIZE_ARRAYS = dict.fromkeys(("site_size.allocated", "site_size.in_use", "site_size.peak"), "site_sums")
RECORD_FIELDS = {"record_table": "places capacity", "record": "address site size"}
LABEL_FIELDS = {"label_sets": "first count", "label_set": "next count text_bytes",
                "label_item": "number text kind key_bytes value_bytes",
                "site": "labels"}
TABLE_FIELDS = {"table_memory": "maps bytes", "table_map": "next bytes"}
# Programs have the addresses below this one, the kernel those above.
USER_END = 1 << 57


@dataclass(frozen=True)
class Field:
    """A field of a struct: offset in bytes, bytes of an element, number of elements."""

    offset: int
    size: int
    count: int

    @property
    def end(self) -> int:
        """The offset behind the field."""
        return self.offset + self.size * self.count


class Picker:
    """Picks some fields out of structs of one kind: a field as a number, an array as its bytes."""

    def __init__(self, size: int, places: dict[str, Field]) -> None:
        """places: {name: Field}; the values come in their order."""
        self.names = tuple(places)
        layout, at = "<", 0
        by_offset = sorted(places, key=lambda name: places[name].offset)
        for name in by_offset:
            place = places[name]
            if place.count == 1 and place.size not in NUMBERS:
                raise Damaged(f"a field of the descriptor is no number: {name}, of {place.size} bytes")
            kind = NUMBERS[place.size] if place.count == 1 else f"{place.size * place.count}s"
            layout += f"{place.offset - at}x{kind}"
            at = place.end
        if at > size or "-" in layout:
            raise Damaged(f"fields of the descriptor lie on one another: {', '.join(self.names)}")
        self.struct = struct.Struct(f"{layout}{size - at}x")
        order = [by_offset.index(name) for name in self.names]
        self.pick = itemgetter(*order) if order != sorted(order) else None

    def rows(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Returns an iterator over consecutive structs: a tuple of the fields of each."""
        found = self.struct.iter_unpack(data)
        return map(self.pick, found) if self.pick else found

    def columns(self, data: bytes) -> dict[str, tuple[Any, ...]]:
        """Returns {name: a tuple of that field of each struct}."""
        rows = tuple(self.rows(data))
        return dict(zip_strict(self.names, zip(*rows) if rows else ((),) * len(self.names)))


@dataclass
class Descriptor:
    """The table of one copy of the library in one process."""

    address: int
    version: str
    types: dict[str, int] = field(default_factory=dict)
    fields: dict[str, Field] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    roots: dict[str, int] = field(default_factory=dict)
    pickers: dict[tuple[str, tuple[str, ...]], Picker] = field(default_factory=dict, repr=False)

    def picker(self, name: str, *columns: str) -> Picker:
        """Returns the Picker of these fields of struct `name`, or of all its numbers."""
        if (name, columns) not in self.pickers:
            places = {column: self.fields[f"{name}.{column}"] for column in columns or self.numbers_of(name)}
            self.pickers[name, columns] = Picker(self.types[name], places)
        return self.pickers[name, columns]

    def numbers_of(self, name: str) -> list[str]:
        """Returns the fields of a struct that are numbers or pointers."""
        prefix = f"{name}."
        return [key[len(prefix):] for key, place in self.fields.items()
                if key.startswith(prefix) and place.size in (1, 2, 4, 8)]

    def unpack(self, name: str, data: bytes) -> dict[str, int]:
        """Returns the numbers in the bytes of struct `name`, by field."""
        picker = self.picker(name)
        return dict(zip_strict(picker.names, next(iter(picker.rows(data)))))

    def root(self, memory: Memory, name: str, kind: str = "") -> dict[str, int]:
        """Returns the numbers in the struct at a root. kind: the struct's name, if it is not the root's."""
        kind = kind or name
        return self.unpack(kind, memory.read(self.roots[name], self.types[kind]))


def find(memory: MappedMemory) -> Descriptor:
    """Returns the Descriptor of the copy of HAKMEM that serves the process: the one with the most memory in use."""
    found = find_all(memory)
    if not found:
        if not memory.mappings():
            raise NotHakmem(f"{name_of(memory)} has no memory of its own: it is a thread of the kernel, or is about to "
                            "end")
        raise NotHakmem(f"{name_of(memory)} does not run on HAKMEM: start it with {COMMAND} run -- PROGRAM; "
                        f"{COMMAND} doctor {getattr(memory, 'pid', 'PID')} says which malloc serves it now")
    with sense(memory):
        return max(found, key=lambda one: in_use(memory, one))


def in_use(memory: Memory, descriptor: Descriptor) -> int:
    """Returns the bytes of slabs and huge blocks."""
    pool = descriptor.root(memory, "shared_pool")
    return pool["units_used"] * descriptor.constants["UNIT_SIZE"] + pool["huge_bytes"]


def find_all(memory: MappedMemory) -> list[Descriptor]:
    """Returns the Descriptors of all copies of HAKMEM in the process. Leaves out damaged ones, but raises the damage
    if there is no sound one. A file whose code the process does not run, such as a database's, cannot be a copy."""
    found: list[Descriptor] = []
    problems: list[LiveError] = []
    left = SEARCH_MOST
    for mappings in mapped_files(memory):
        if not any("x" in mapping.flags for mapping in mappings):
            continue
        left -= extent(mappings)
        if left < 0 or len(found) + len(problems) >= COPIES_MOST:
            problems.append(Damaged(f"{name_of(memory)} runs code of more files than are searched"))
            break
        try:
            address = address_in_file(memory, mappings)
            if address is not None and is_loaded(memory, descriptor := read_descriptor(memory, address)):
                found.append(descriptor)
        except (Damaged, NotHakmem) as error:
            problems.append(error)
    if problems and not found:
        raise problems[0]
    return found


def is_loaded(memory: MappedMemory, descriptor: Descriptor) -> bool:
    """Returns whether the file of a descriptor was loaded. If it was only mapped, as by a profiler that reads it, the
    descriptor has addresses of the file, where the process has nothing."""
    mappings = memory.mappings()
    return all(any(mapping.start <= descriptor.roots[name] < mapping.end for mapping in mappings) for name in ROOTS)


def mapped_files(memory: MappedMemory) -> Iterable[list[Mapping]]:
    """Returns the mappings of each file that the process has mapped."""
    files: dict[tuple[str, int], list[Mapping]] = {}
    for mapping in memory.mappings():
        if mapping.inode and mapping.path.startswith("/"):
            files.setdefault((mapping.device, mapping.inode), []).append(mapping)
    return files.values()


def may_serve(memory: MappedMemory, known: dict[tuple[str, int, str, int], bool]) -> bool:
    """Returns whether a file whose code the process runs has a descriptor, so that find() is worth its time. `known`
    remembers which files have one, from process to process, as far as they were mapped: a loader may be at work."""
    left = SEARCH_MOST
    for mappings in mapped_files(memory):
        if not any("x" in mapping.flags for mapping in mappings):
            continue
        key = (mappings[0].device, mappings[0].inode, mappings[0].path, extent(mappings))
        if key not in known:
            left -= extent(mappings)
            if left < 0:
                return False
            file = memory.open_mapping(mappings[0])
            if file is None:
                known[key] = address_by_search(memory, mappings) is not None
            else:
                with file:
                    known[key] = offset_in_file(file, extent(mappings)) is not None
        if known[key]:
            return True
    return False


def runs_hakmem(pid: int, known: dict[tuple[str, int, str, int], bool]) -> bool:
    """Returns whether a process visibly runs on HAKMEM. False also if it may not be read or has ended."""
    try:
        return may_serve(ProcessMemory(pid), known)
    except (LiveError, OSError, *UNSOUND):
        return False


def address_in_file(memory: MappedMemory, mappings: list[Mapping]) -> int | None:
    """Returns the address in the process of the descriptor of a file with these mappings; None if it has none."""
    file = memory.open_mapping(mappings[0])
    if file is None:
        return address_by_search(memory, mappings)
    with file:
        offset = offset_in_file(file, extent(mappings))
    if offset is None:
        return None
    # One page of the file may be mapped twice, read-only and writable. Only the writable copy is relocated.
    for mapping in sorted(mappings, key=lambda one: "w" not in one.flags):
        if mapping.offset <= offset < mapping.offset + mapping.size:
            address = mapping.start + offset - mapping.offset
            if has_magic(memory, address):
                return address
    raise LiveError(f"{name_of(memory)}: the descriptor in {clean(mappings[0].path)} is not mapped; was the file "
                    "replaced?")


def address_by_search(memory: MappedMemory, mappings: list[Mapping]) -> int | None:
    """Returns the same for a file that cannot be opened, by searching its mappings for the magic."""
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


def has_magic(memory: Memory, address: int) -> bool:
    """Returns whether the magic lies at the address."""
    try:
        return memory.read(address, len(MAGIC)) == MAGIC
    except Unreadable:
        return False


def extent(mappings: list[Mapping]) -> int:
    """Returns how many bytes of a file to search: from its start to the end of its last mapping, up to FILE_MOST."""
    return min(max(mapping.offset + mapping.size for mapping in mappings), FILE_MOST)


def offset_in_file(file: Reader, most: int = FILE_MOST) -> int | None:
    """Returns where in the first `most` bytes of an ELF file the descriptor lies, or None. Remembers it for the file,
    until the file changes."""
    status = file.status
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, most)
    if key not in OFFSETS:
        if len(OFFSETS) >= OFFSETS_MOST:
            OFFSETS.clear()
        try:
            OFFSETS[key] = searched_offset(file, most)
        except OSError:
            return None  # the disk or the network fails
    return OFFSETS[key]


def searched_offset(file: Reader, most: int) -> int | None:
    """Returns the same by a search: by symbol; by section, which a stripped static program still has; or by its magic,
    if even the section is gone."""
    at = file.find(MAGIC, most)
    if at < 0:
        return None
    try:
        file.seek(0)
        elf = sound_elf(file)
        address = address_in_elf(elf)
        return at if address is None else next(iter(elf.address_offsets(address)), at)
    except (OSError, *UNSOUND_ELF):
        return at  # read_descriptor checks whether it is one


def address_in_elf(elf: ELFFile) -> int | None:
    """Returns the descriptor's address as linked, by symbol or section; None if it has neither."""
    dynamic = elf.get_section_by_name(".dynsym")
    symbols = dynamic.get_symbol_by_name(SYMBOL) if isinstance(dynamic, SymbolTableSection) else None
    if symbols and symbols[0]["st_shndx"] != "SHN_UNDEF":
        return int(symbols[0]["st_value"])
    section = elf.get_section_by_name(SECTION)
    return int(section["sh_addr"]) if section else None


def read_descriptor(memory: Memory, address: int) -> Descriptor:
    """Returns the Descriptor at an address."""
    head = memory.read(address, HEAD.size)
    magic, form, size, version, rows, row_size, rows_offset, pointer_size = HEAD.unpack(head)
    version = clean_bytes(version.rstrip(b"\0"))
    if magic != MAGIC:
        raise NotHakmem(f"{name_of(memory)}: no descriptor of HAKMEM at {address:#x}")
    if form != FORMAT:
        raise LiveError(f"{name_of(memory)}: its HAKMEM {version} describes itself in format {form}, this tool reads "
                        f"format {FORMAT}; use the tools of that HAKMEM")
    if row_size != ROW.size or pointer_size != 8 or size > SIZE_MOST or rows_offset + rows * row_size > size:
        raise Damaged(f"{name_of(memory)}: the descriptor at {address:#x} is damaged: its rows do not fit into it")
    data = memory.read(address + rows_offset, rows * row_size)
    try:
        return parse_rows(address, version, data)
    except Damaged as error:
        raise Damaged(f"{name_of(memory)}: the descriptor at {address:#x} is damaged: {error}") from None


def parse_rows(address: int, version: str, data: bytes) -> Descriptor:
    """Returns a Descriptor, given the bytes of its rows."""
    rows = list(ROW.iter_unpack(data))
    layout = layout_of(tuple(row for row in rows if row[4] != ROOT))
    made = replace(layout, address=address, version=version, roots={
        name_in(row[0]): row[1] for row in rows if row[4] == ROOT})
    check_roots(made)
    return made


def name_in(data: bytes) -> str:
    """Returns the name that a row has."""
    name = data.rstrip(b"\0").decode("latin-1")
    if not NAME.fullmatch(name):
        raise Damaged(f"{clean(name)!r} is no name")
    return name


@lru_cache(maxsize=16)
def layout_of(rows: tuple[tuple[Any, ...], ...]) -> Descriptor:
    """Returns a Descriptor without an address, a version and roots. All processes with one file share it."""
    made = Descriptor(0, "")
    for data, value, size, count, kind, _ in rows:
        if kind not in (TYPE, FIELD, CONSTANT):
            continue  # a kind that only later versions know
        name = name_in(data)
        if kind == TYPE:
            made.types[name] = size
        elif kind == FIELD:
            made.fields[name] = Field(value, size, count)
        else:
            made.constants[name] = value
    check_layout(made)
    return made


# ---- Whether it can be ----


def check_roots(made: Descriptor) -> None:
    """Raises Damaged unless the table has the addresses that a reader needs, and the structs to which they lead."""
    for name, address in made.roots.items():
        if address % 4 or not 0 < address < USER_END:
            raise Damaged(f"its {name} is at {address:#x}, where nothing can be")
    for name in ROOTS:
        wanted(made.roots, name)
    if "table_memory" in made.roots:
        check_fields(made, TABLE_FIELDS, {})
    if "profile_records" in made.roots:
        check_fields(made, RECORD_FIELDS, {})
    if "label_sets" in made.roots:
        check_fields(made, LABEL_FIELDS, {})
    if "profile_sizes" in made.roots:
        check_fields(made, SIZE_FIELDS, SIZE_ARRAYS)
    if "table_peak" in made.roots:
        exact = " bytes sampled least" if "table_peak.least" in made.fields else ""
        check_fields(made, {"table_peak": "epoch at_ms" + exact, "site": "peak_epoch"}, {"site.peak": "site_sums"})


def check_layout(made: Descriptor) -> None:
    """Raises Damaged unless the table has the structs that a reader needs, with sizes that a heap can have."""
    for name, size in made.types.items():
        if not 0 < size <= STRUCT_MOST:
            raise Damaged(f"its struct {name} has {size:,} bytes")
    for name, place in made.fields.items():
        whole = made.types.get(name.partition(".")[0])
        if whole is None or place.size < 1 or place.count < 1 or place.end > whole:
            raise Damaged(f"its field {name} does not fit into its struct")
    for name, (least, most) in {**CONSTANTS, **{name: bounds for name, bounds in OTHER_CONSTANTS.items()
                                                if name in made.constants}}.items():
        if not least <= wanted(made.constants, name) <= most:
            raise Damaged(f"its {name} is {made.constants[name]:,}")
    wanted(made.types, "options")
    check_fields(made, NUMBER_FIELDS, ARRAY_FIELDS)
    if "profile" in made.types and "site" in made.types:
        check_fields(made, PROFILE_FIELDS, PROFILE_ARRAYS)
    if "site.own_freed" in made.fields and made.fields["site.own_freed"].size != 8:
        raise Damaged("its site.own_freed is not made of numbers")
    for name in {*NUMBER_FIELDS, "class_counters", "options"}:
        made.picker(name)  # raises Damaged if fields overlap
    constant = made.constants
    if (constant["UNIT_SIZE"] & constant["UNIT_SIZE"] - 1 or
            constant["SUPERSLAB_UNITS"] != made.fields["superslab.slabs"].count or
            constant["UNIT_SIZE"] * constant["SUPERSLAB_UNITS"] != constant["SUPERSLAB_SIZE"]):
        raise Damaged("its SuperSlabs are not made of their units")
    runs = {"thread_cache.runs": "bin"} if "thread_cache.runs" in made.fields else {}  # an older HAKMEM has none
    check_fields(made, {}, runs)
    for name in ("heap_body.classes", "account.classes", "thread_cache.bins", *runs):
        if made.fields[name].count != constant["CLASS_COUNT"]:
            raise Damaged(f"its {name} has not one part for each class")


def check_fields(made: Descriptor, numbers: dict[str, str], arrays: dict[str, str]) -> None:
    """Raises Damaged unless the structs have these numbers and arrays. arrays: {field: struct of its elements, or
    None}."""
    for struct_name, names in numbers.items():
        wanted(made.types, struct_name)
        for name in names.split():
            place = wanted(made.fields, f"{struct_name}.{name}")
            if place.size not in NUMBERS or place.count != 1:
                raise Damaged(f"its {struct_name}.{name} is no number")
    for name, element in arrays.items():
        if element and wanted(made.types, element) != wanted(made.fields, name).size:
            raise Damaged(f"its {name} is not made of {element}")
        wanted(made.fields, name)


def wanted(table: dict[str, T], name: str) -> T:
    """Returns an entry of a table; raises Damaged if it is missing."""
    if name not in table:
        raise Damaged(f"it has no {name}")
    return table[name]
