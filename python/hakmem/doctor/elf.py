"""Reads from an ELF file how it is linked, which of malloc's names it defines, and where it keeps their addresses."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment

from hakmem.clean import clean
from hakmem.elf import NAMES_MOST, SYMBOLS_MOST, TAG_BYTES, TAGS_MOST, UNSOUND, bytes_at, bytes_of, sound_elf

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

# The names whose binding decides which allocator a program uses. C++'s other operators call these or come from the
# allocator itself.
MALLOC_NAMES = ("malloc", "free", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign", "_Znwm", "_ZdlPv",
                "_ZdlPvm")
# A name from each allocator's own interface. A file that defines it holds the allocator, whatever the file is called.
MARKERS = {"hakmem": "hak_malloc", "jemalloc": "mallctl", "tcmalloc": "MallocExtension_ReleaseFreeMemory",
           "mimalloc": "mi_malloc", "snmalloc": "sn_rust_alloc", "rpmalloc": "rpmalloc",
           "tbbmalloc": "scalable_malloc", "AddressSanitizer": "__asan_init",
           "ThreadSanitizer": "__tsan_init", "LeakSanitizer": "__lsan_init", "MemorySanitizer": "__msan_init"}

# Types of relocations that fill a slot with a symbol's address.
GLOB_DAT_AND_JUMP_SLOT = {"EM_X86_64": (1, 6, 7), "EM_AARCH64": (257, 1025, 1026)}
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")
# Limit of a name's bytes.
NAME_MOST = 4096


@dataclass
class ElfFile:
    """The facts about one file. Addresses are the file's own, without its load address."""

    bits: int
    interpreter: str | None = None
    soname: str | None = None
    needed: list[str] = field(default_factory=list)
    dynamic: bool = False
    static_tls: bool = False
    symbolic: bool = False
    tls_bytes: int = 0
    defined: dict[str, int] = field(default_factory=dict)  # name -> address, of MALLOC_NAMES and MARKERS
    slots: list[tuple[str, int]] = field(default_factory=list)    # (name, address of the slot), of MALLOC_NAMES
    allocators: set[str] = field(default_factory=set)  # keys of MARKERS, found in either symbol table
    position_independent: bool = False

    @cached_property
    def defines_malloc(self) -> bool:
        """Whether the file defines malloc."""
        return "malloc" in self.defined


def read_elf(stream: BinaryIO) -> ElfFile:
    """Returns the facts about an open file; raises ValueError if it is no ELF file or damaged."""
    try:
        return examine(sound_elf(stream))
    except (OSError, *UNSOUND) as error:
        raise ValueError(clean(f"no readable ELF file ({error or type(error).__name__})", 200)) from error


def examine(elf: ELFFile) -> ElfFile:
    """Returns the facts about a sound ELF file."""
    facts = ElfFile(elf.elfclass, position_independent=elf["e_type"] == "ET_DYN")
    if elf.elfclass != 64 or not elf.little_endian:
        return facts
    for segment in elf.iter_segments():
        kind = segment["p_type"]
        if kind == "PT_INTERP":
            facts.interpreter = clean_text(bytes_at(elf, segment["p_offset"], min(segment["p_filesz"], NAME_MOST)))
        elif kind == "PT_TLS":
            facts.tls_bytes = segment["p_memsz"]
        elif isinstance(segment, DynamicSegment):
            facts.dynamic = True
            if segment["p_filesz"] > TAGS_MOST * TAG_BYTES:
                raise ELFError("a dynamic segment larger than any")
            read_dynamic(elf, segment, facts)
    # A static program has no dynamic symbols, but a symbol table unless it is stripped.
    read_symtab(elf, facts)
    return facts


def read_dynamic(elf: ELFFile, segment: DynamicSegment, facts: ElfFile) -> None:
    """Fills in the facts of the dynamic segment."""
    for tag in segment.iter_tags():
        kind = tag.entry.d_tag
        if kind == "DT_NEEDED":
            facts.needed.append(clean(getattr(tag, "needed")))
        elif kind == "DT_SONAME":
            facts.soname = clean(getattr(tag, "soname"))
        elif kind == "DT_SYMBOLIC":
            facts.symbolic = True
        elif kind == "DT_FLAGS":
            facts.static_tls |= bool(tag.entry.d_val & 0x10)
            facts.symbolic |= bool(tag.entry.d_val & 0x2)
    wanted = read_symbols(elf, segment, facts)
    if wanted:
        read_slots(elf, segment, facts, wanted)


def read_symbols(elf: ELFFile, segment: DynamicSegment, facts: ElfFile) -> dict[int, str]:
    """Fills in the defined names. Returns {symbol number: name} of MALLOC_NAMES, defined or not."""
    table, _ = segment.get_table_offset("DT_SYMTAB")
    strings, _ = segment.get_table_offset("DT_STRTAB")
    if table is None or strings is None:
        return {}
    symtab = whole(bytes_at(elf, table, min(segment.num_symbols() * SYMBOL.size, SYMBOLS_MOST)), SYMBOL)
    size = next((tag.entry.d_val for tag in segment.iter_tags("DT_STRSZ")), 0)
    text = bytes_at(elf, strings, min(size, NAMES_MOST))
    wanted = {}
    markers = {name: allocator for allocator, name in MARKERS.items()}
    for number, (name_at, info, _, section, value, _) in enumerate(SYMBOL.iter_unpack(symtab)):
        if info & 0xf not in (0, 1, 2, 10):  # NOTYPE, OBJECT, FUNC, IFUNC
            continue
        name = text[name_at:text.find(b"\0", name_at, name_at + NAME_MOST)].decode("latin-1")
        if name in MALLOC_NAMES:
            wanted[number] = name
        if section != 0 and value and (name in MALLOC_NAMES or name in markers):
            facts.defined[name] = value
            if name in markers:
                facts.allocators.add(markers[name])
    return wanted


def whole(data: bytes, form: struct.Struct) -> bytes:
    """Returns the bytes of as many whole structs as there are."""
    return data[:len(data) // form.size * form.size]


def clean_text(data: bytes) -> str:
    """Returns the text before the first NUL, printable."""
    return clean(data.partition(b"\0")[0].decode("utf-8", "replace"))


def read_slots(elf: ELFFile, segment: DynamicSegment, facts: ElfFile, wanted: dict[int, str]) -> None:
    """Fills in the slots for the wanted symbols."""
    kinds = GLOB_DAT_AND_JUMP_SLOT.get(elf["e_machine"], ())
    for table, size in (("DT_RELA", "DT_RELASZ"), ("DT_JMPREL", "DT_PLTRELSZ")):
        offset, _ = segment.get_table_offset(table)
        length = next((tag.entry.d_val for tag in segment.iter_tags(size)), 0)
        if offset is None or not length:
            continue
        data = whole(bytes_at(elf, offset, min(length, SYMBOLS_MOST)), RELA)
        for address, info, _ in RELA.iter_unpack(data):
            if info >> 32 in wanted and info & 0xffffffff in kinds:
                facts.slots.append((wanted[info >> 32], address))


def read_symtab(elf: ELFFile, facts: ElfFile) -> None:
    """Fills in the allocators that the symbol table or HAKMEM's section shows."""
    section = elf.get_section_by_name(".symtab")
    if elf.get_section_by_name("hakmem_descriptor") is not None:
        facts.allocators.add("hakmem")
    if section is None or facts.dynamic and facts.interpreter is None:
        return
    strings = bytes_of(elf, elf.get_section(section["sh_link"]), NAMES_MOST)
    markers = {name: allocator for allocator, name in MARKERS.items()}
    for name_at, _, _, index, value, _ in SYMBOL.iter_unpack(whole(bytes_of(elf, section, SYMBOLS_MOST), SYMBOL)):
        if index == 0:
            continue
        name = strings[name_at:strings.find(b"\0", name_at, name_at + NAME_MOST)].decode("latin-1")
        if name in markers:
            facts.allocators.add(markers[name])
        elif name == "malloc" and not facts.dynamic:
            facts.defined["malloc"] = value
