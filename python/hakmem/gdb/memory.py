"""Reads the memory of what gdb debugs, for hakmem.live: a live program, a core dump, or a program behind gdbserver."""

from __future__ import annotations

import re
from collections.abc import Iterable

import gdb

from hakmem.clean import clean
from hakmem.live.descriptor import SECTION, Descriptor, NotHakmem, read_descriptor
from hakmem.live.memory import LiveError, Memory, Unreadable

SECTION_LINE = re.compile(rf"^\s*(0x[0-9a-f]+) - 0x[0-9a-f]+ is {SECTION}(?: in (.*))?$", re.MULTILINE)


class GdbMemory:
    """Reads through gdb. For a core, gdb reads what the core lacks from the program's files."""

    def __init__(self) -> None:
        self.inferior = gdb.selected_inferior()
        if not self.inferior.is_valid() or not self.inferior.threads():
            raise LiveError("there is no program: run or attach to one, or load a core with `core-file`")
        self.pid = self.inferior.pid

    def read(self, address: int, size: int) -> bytes:
        """Returns the bytes at an address."""
        if size == 0:
            return b""
        try:
            return self.inferior.read_memory(address, size).tobytes()
        except gdb.MemoryError as error:
            raise Unreadable(f"nothing to read at {address:#x} ({error})") from error

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes at several (address, size)."""
        return [self.read(address, size) for address, size in ranges]

    def command(self) -> str:
        """Returns the program's name."""
        path = self.inferior.progspace.filename
        return clean(path.rpartition("/")[2]) if path else ""

    def thread_name(self, tid: int) -> str:
        """Returns a thread's name as gdb knows it. A core keeps only the first thread's."""
        return next((clean(thread.name or "") for thread in self.inferior.threads() if thread.ptid[1] == tid), "")


def find_descriptors(memory: Memory) -> list[Descriptor]:
    """Returns the Descriptors of all copies of HAKMEM, found by the sections of the program's files, which exist
    even without symbols."""
    found = []
    for match in SECTION_LINE.finditer(gdb.execute("info files", to_string=True)):
        found.append(read_descriptor(memory, int(match[1], 16)))
    if not found:
        raise NotHakmem("no file of this program has HAKMEM's descriptor. Does gdb know the program and its libraries "
                        "(`info sharedlibrary`; for a core: `file PROGRAM`, and `set sysroot` where it came from "
                        "elsewhere)?")
    return found


def find_descriptor(memory: Memory) -> tuple[Descriptor, int]:
    """Returns the Descriptor of the copy with most memory, and the number of copies."""
    found = find_descriptors(memory)
    return max(found, key=lambda one: int.from_bytes(memory.read(one.roots["hak_units"], 8), "little")), len(found)
