"""The memory of what gdb debugs, as hakmem.live reads processes: a live program, a core dump, behind gdbserver too."""

import re

import gdb
from hakmem.live.descriptor import SECTION, NotHakmem, read_descriptor
from hakmem.live.memory import LiveError, Unreadable

SECTION_LINE = re.compile(rf"^\s*(0x[0-9a-f]+) - 0x[0-9a-f]+ is {SECTION}(?: in (.*))?$", re.MULTILINE)


class GdbMemory:
    """Reads through gdb, which takes from a core what is in it and from the program's files what is not."""

    def __init__(self):
        self.inferior = gdb.selected_inferior()
        if not self.inferior.is_valid() or not self.inferior.threads():
            raise LiveError("there is no program: run or attach to one, or load a core with `core-file`")
        self.pid = self.inferior.pid

    def read(self, address, size):
        if size == 0:
            return b""
        try:
            return self.inferior.read_memory(address, size).tobytes()
        except gdb.MemoryError as error:
            raise Unreadable(f"nothing to read at {address:#x} ({error})") from error

    def read_many(self, ranges):
        return [self.read(address, size) for address, size in ranges]

    def command(self):
        """The program's name."""
        path = self.inferior.progspace.filename
        return path.rpartition("/")[2] if path else ""

    def thread_name(self, tid):
        """A thread's name as gdb knows it; a core keeps none but the first's."""
        return next((thread.name or "" for thread in self.inferior.threads() if thread.ptid[1] == tid), "")


def find_descriptors(memory):
    """The Descriptors of all copies of HAKMEM, by the sections of the program's files: those are there without
    symbols, too."""
    found = []
    for match in SECTION_LINE.finditer(gdb.execute("info files", to_string=True)):
        found.append(read_descriptor(memory, int(match[1], 16)))
    if not found:
        raise NotHakmem("no file of this program has HAKMEM's descriptor. Does gdb know the program and its libraries "
                        "(`info sharedlibrary`; for a core: `file PROGRAM`, and `set sysroot` where it came from "
                        "elsewhere)?")
    return found


def find_descriptor(memory):
    """The Descriptor of the copy that has most memory, and how many copies there are."""
    found = find_descriptors(memory)
    return max(found, key=lambda one: int.from_bytes(memory.read(one.roots["hak_units"], 8), "little")), len(found)
