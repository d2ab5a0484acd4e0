"""Counts what the processor and the kernel do during a run, with perf_event_open."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# perf_event_open's number, by machine.
CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
HARDWARE, SOFTWARE, CACHE = 0, 1, 3
READ_MISS = 1 << 16  # of a cache: operation read, result miss
# {name: (type, config)} (linux/perf_event.h)
EVENTS = {
    "cycles": (HARDWARE, 0), "instructions": (HARDWARE, 1), "cache references": (HARDWARE, 2),
    "cache misses": (HARDWARE, 3), "branches": (HARDWARE, 4), "branch misses": (HARDWARE, 5),
    "data TLB misses": (CACHE, 3 | READ_MISS), "instruction TLB misses": (CACHE, 4 | READ_MISS),
    "context switches": (SOFTWARE, 3), "migrations": (SOFTWARE, 4),
}
ATTRIBUTE_BYTES = 64  # PERF_ATTR_SIZE_VER0
# Disabled until exec, in children too, user code alone: what any user may count.
FLAGS = 1 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12
# read_format: also the time for which the event was wanted, and the time for which a counter was free for it.
TIMES = 3


def open_event(kind: int, config: int) -> int:
    """Returns the descriptor of an event of programs that this thread will start; raises OSError."""
    attribute = struct.pack("<IIQQQQQ", kind, ATTRIBUTE_BYTES, config, 0, 0, TIMES,
                            FLAGS if kind != SOFTWARE else FLAGS & ~(1 << 5 | 1 << 6))
    attribute = attribute.ljust(ATTRIBUTE_BYTES, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    number = CALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    found = libc.syscall(ctypes.c_long(number), attribute, 0, -1, -1, ctypes.c_ulong(8))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def why_not(error: OSError) -> str:
    """Returns a sentence on why an event cannot be counted."""
    if error.errno in (errno.EACCES, errno.EPERM):
        try:
            level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
        except OSError:
            level = "unknown"
        return f"the system forbids it (perf_event_paranoid is {level}, or a container's filter)"
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine has none, as most virtual machines"
    return str(error.strerror)


@contextmanager
def counting() -> Iterator[tuple[dict[str, float], dict[str, str]]]:
    """Yields ({event: count}, {event: why it is not counted}). The counts are there at the end of the block, and cover
    the programs that this thread starts in it."""
    counts: dict[str, float] = {}
    refused: dict[str, str] = {}
    opened = {}
    for name, (kind, config) in EVENTS.items():
        try:
            opened[name] = open_event(kind, config)
        except OSError as error:
            refused[name] = why_not(error)
    try:
        yield counts, refused
        for name, descriptor in opened.items():
            count, wanted, running = struct.unpack("<3Q", os.read(descriptor, 24))
            if running:
                counts[name] = count * wanted / running
            elif wanted:
                refused[name] = "no counter was free"
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
