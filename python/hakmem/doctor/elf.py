"""What an ELF file says of itself: how it is linked, which of malloc's names it defines, and where it keeps their
addresses."""

import struct
from dataclasses import dataclass, field
from functools import cached_property

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile

# The names whose binding decides whose memory a program uses. C++'s operators end in these or come from the allocator
# itself.
MALLOC_NAMES = ("malloc", "free", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign", "_Znwm", "_ZdlPv",
                "_ZdlPvm")
# A name of each allocator's own interface. Where it is defined the allocator is, whatever its file is called.
MARKERS = {"hakmem": "hak_malloc", "jemalloc": "mallctl", "tcmalloc": "MallocExtension_ReleaseFreeMemory",
           "mimalloc": "mi_malloc", "snmalloc": "sn_rust_alloc", "rpmalloc": "rpmalloc",
           "tbbmalloc": "scalable_malloc", "AddressSanitizer": "__asan_init",
           "ThreadSanitizer": "__tsan_init", "LeakSanitizer": "__lsan_init", "MemorySanitizer": "__msan_init"}

# x86-64 and aarch64: relocations that fill a slot with a symbol's address.
GLOB_DAT_AND_JUMP_SLOT = {"EM_X86_64": (1, 6, 7), "EM_AARCH64": (257, 1025, 1026)}
# What a damaged file has the reader raise; OSError by an offset that no file has.
UNSOUND = (ELFError, ConstructError, struct.error, AssertionError, AttributeError, KeyError, OSError, OverflowError, MemoryError,
           TypeError, UnicodeDecodeError, ValueError)
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")


@dataclass
class ElfFile:
    """The facts of one file; addresses are the file's own, without the place where it is loaded."""

    bits: int
    interpreter: str | None = None
    soname: str | None = None
    needed: list = field(default_factory=list)
    dynamic: bool = False
    static_tls: bool = False
    symbolic: bool = False
    tls_bytes: int = 0
    defined: dict = field(default_factory=dict)  # name -> address, of MALLOC_NAMES and MARKERS
    slots: list = field(default_factory=list)    # (name, address of the slot), of MALLOC_NAMES
    allocators: set = field(default_factory=set)  # keys of MARKERS, found in either symbol table
    position_independent: bool = False
    phdr_offset: int = 0

    @cached_property
    def defines_malloc(self):
        return "malloc" in self.defined


def read_elf(stream):
    """The facts of an open file; ValueError where it is no ELF file or a damaged one."""
    try:
        return examine(ELFFile(stream))
    except UNSOUND as error:
        raise ValueError(f"no readable ELF file ({error or type(error).__name__})") from error


def examine(elf):
    facts = ElfFile(elf.elfclass, position_independent=elf["e_type"] == "ET_DYN", phdr_offset=elf["e_phoff"])
    if elf.elfclass != 64 or not elf.little_endian:
        return facts
    for segment in elf.iter_segments():
        kind = segment["p_type"]
        if kind == "PT_INTERP":
            facts.interpreter = segment.get_interp_name()
        elif kind == "PT_TLS":
            facts.tls_bytes = segment["p_memsz"]
        elif kind == "PT_DYNAMIC":
            facts.dynamic = True
            read_dynamic(elf, segment, facts)
    # A static program has no dynamic symbols; unless it is stripped, its others tell.
    read_symtab(elf, facts)
    return facts


def read_dynamic(elf, segment, facts):
    for tag in segment.iter_tags():
        kind = tag.entry.d_tag
        if kind == "DT_NEEDED":
            facts.needed.append(tag.needed)
        elif kind == "DT_SONAME":
            facts.soname = tag.soname
        elif kind == "DT_SYMBOLIC":
            facts.symbolic = True
        elif kind == "DT_FLAGS":
            facts.static_tls |= bool(tag.entry.d_val & 0x10)
            facts.symbolic |= bool(tag.entry.d_val & 0x2)
    wanted = read_symbols(elf, segment, facts)
    if wanted:
        read_slots(elf, segment, facts, wanted)


def read_symbols(elf, segment, facts):
    """Fills in the names that are defined; {symbol number: name} of MALLOC_NAMES, defined or not."""
    table, _ = segment.get_table_offset("DT_SYMTAB")
    strings, _ = segment.get_table_offset("DT_STRTAB")
    if table is None or strings is None:
        return {}
    symtab = read_at(elf, table, segment.num_symbols() * SYMBOL.size)
    size = next((tag.entry.d_val for tag in segment.iter_tags("DT_STRSZ")), 0)
    text = read_at(elf, strings, size)
    wanted = {}
    markers = {name: allocator for allocator, name in MARKERS.items()}
    for number, (name_at, info, _, section, value, _) in enumerate(SYMBOL.iter_unpack(symtab)):
        if info & 0xf not in (0, 1, 2, 10):  # NOTYPE, OBJECT, FUNC, IFUNC
            continue
        name = text[name_at:text.find(b"\0", name_at)].decode("latin-1")
        if name in MALLOC_NAMES:
            wanted[number] = name
        if section != 0 and value and (name in MALLOC_NAMES or name in markers):
            facts.defined[name] = value
            if name in markers:
                facts.allocators.add(markers[name])
    return wanted


def read_at(elf, offset, size):
    """Bytes of the file."""
    elf.stream.seek(offset)
    return elf.stream.read(size)


def read_slots(elf, segment, facts, wanted):
    kinds = GLOB_DAT_AND_JUMP_SLOT.get(elf["e_machine"], ())
    for table, size in (("DT_RELA", "DT_RELASZ"), ("DT_JMPREL", "DT_PLTRELSZ")):
        offset, _ = segment.get_table_offset(table)
        length = next((tag.entry.d_val for tag in segment.iter_tags(size)), 0)
        if offset is None or not length:
            continue
        data = read_at(elf, offset, length - length % RELA.size)
        for address, info, _ in RELA.iter_unpack(data):
            if info >> 32 in wanted and info & 0xffffffff in kinds:
                facts.slots.append((wanted[info >> 32], address))


def read_symtab(elf, facts):
    section = elf.get_section_by_name(".symtab")
    if elf.get_section_by_name("hakmem_descriptor") is not None:
        facts.allocators.add("hakmem")
    if section is None or facts.dynamic and facts.interpreter is None:
        return
    strings = elf.get_section(section["sh_link"]).data()
    markers = {name: allocator for allocator, name in MARKERS.items()}
    for name_at, _, _, index, value, _ in SYMBOL.iter_unpack(section.data()):
        if index == 0:
            continue
        name = strings[name_at:strings.find(b"\0", name_at)].decode("latin-1")
        if name in markers:
            facts.allocators.add(markers[name])
        elif name == "malloc" and not facts.dynamic:
            facts.defined["malloc"] = value
