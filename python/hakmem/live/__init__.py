"""Reads the heap of a running process from outside: nothing runs in the process. Only control.py writes to it.

    memory = ProcessMemory(pid)
    shot = snapshot(memory)
    shot.totals.live, shot.classes, shot.threads, shot.superslabs

A LiveError says what cannot be read and what to do.
"""

from hakmem.foreign import Mapping
from hakmem.live.descriptor import Descriptor, find, find_all, read_descriptor
from hakmem.live.heap import snapshot
from hakmem.live.memory import LiveError, ProcessMemory
from hakmem.live.model import Snapshot

__all__ = ["Descriptor", "LiveError", "Mapping", "ProcessMemory", "Snapshot", "find", "find_all", "read_descriptor",
           "snapshot"]
