"""The heap of a running process, seen from outside: nothing runs in it, nothing is written to it.

    memory = ProcessMemory(pid)
    shot = snapshot(memory)
    shot.totals.live, shot.classes, shot.threads, shot.superslabs

What cannot be read raises LiveError, whose text says what to do.
"""

from hakmem.live.descriptor import Descriptor, find, find_all, read_descriptor
from hakmem.live.heap import Snapshot, snapshot
from hakmem.live.memory import LiveError, Mapping, ProcessMemory

__all__ = ["Descriptor", "LiveError", "Mapping", "ProcessMemory", "Snapshot", "find", "find_all", "read_descriptor",
           "snapshot"]
