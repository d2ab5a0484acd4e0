"""Looks at a process: its heap, its resident memory, its page faults; and compares two looks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hakmem.live.descriptor import find
from hakmem.live.heap import snapshot
from hakmem.live.memory import LiveError, NoPermission, NoProcess, ProcessMemory, Unreadable, permission_error, sense
from hakmem.live.pages import Pagemap, PagemapError, read_rollup
from hakmem.live.resident import Resident, measure

if TYPE_CHECKING:
    from hakmem.live.descriptor import Descriptor
    from hakmem.live.model import Snapshot

# {counter whose rate is shown: its name on the screen}
RATES = {"refills": "refills", "flushes": "flushes", "slabs_carved": "slabs carved", "remote_blocks": "remote frees"}
# Places of fields of /proc/PID/stat, counted after the command's closing parenthesis.
MINOR_FAULTS, MAJOR_FAULTS = 7, 9
# A process shares pages if less than this part of its anonymous memory is its own.
NEARLY_ALL = 0.99


@dataclass
class Sample:
    """A look at a process."""

    at: float  # monotonic seconds
    took: float  # seconds
    shot: Snapshot
    rss: int  # bytes, as the kernel has it
    resident: Resident
    minor_faults: int
    major_faults: int
    program: int = 1  # of the process: exec makes another


class Sampler:
    """Looks at one process, whenever asked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.memory = ProcessMemory(pid)
        self.program = 0
        self.descriptor: Descriptor | None = None
        self.pages: Pagemap | None = None

    def close(self) -> None:
        """Forgets where the heap lies."""
        if self.pages is not None:
            self.pages.close()
        self.descriptor = self.pages = None

    def opened(self) -> tuple[Descriptor, Pagemap]:
        """Returns the Descriptor and the open map of the process's present pages, which it finds at first."""
        if self.descriptor is None or self.pages is None:
            descriptor = find(self.memory)
            self.pages = pages_of(self.pid)
            self.descriptor, self.program = descriptor, self.program + 1
        return self.descriptor, self.pages

    def take(self) -> Sample:
        """Returns a Sample. Raises NoProcess if the process has ended. Any other LiveError may be temporary."""
        begun = time.monotonic()
        try:
            descriptor, pages = self.opened()
            with sense(self.memory):
                shot = snapshot(self.memory, descriptor)
                rss, shared = memory_of(self.memory)
                fields = self.memory.proc_text("stat").rpartition(")")[2].split()
                resident = measure(pages, shot, rss, shared)
        except (NoProcess, NoPermission):
            raise
        except LiveError:
            # The process may have become another program (exec), whose heap lies elsewhere.
            self.close()
            raise
        return Sample(at=begun, took=time.monotonic() - begun, shot=shot, rss=rss, resident=resident,
                      program=self.program, minor_faults=int(fields[MINOR_FAULTS]),
                      major_faults=int(fields[MAJOR_FAULTS]))


def pages_of(pid: int) -> Pagemap:
    """Returns the map of the process's pages. A sample without it is none, so what forbids it is said as of memory."""
    try:
        return Pagemap(pid)
    except PagemapError as error:
        if isinstance(error.__cause__, PermissionError):
            raise permission_error(pid) from None
        raise NoProcess(f"process {pid} ended while it was read") from None


def memory_of(memory: ProcessMemory) -> tuple[int, bool]:
    """Returns (RSS in bytes as the kernel counts pages, whether anonymous pages are shared with a process)."""
    found = read_rollup(memory)
    if "Rss" not in found:
        raise Unreadable(f"/proc/{memory.pid}/smaps_rollup has no line Rss")
    # A shared page counts only in part in Pss_Anon. Without that line (older kernels), pages count as shared.
    return found["Rss"], found.get("Pss_Anon", 0) < found.get("Anonymous", 0) * NEARLY_ALL


class HasCounters(Protocol):
    """A snapshot, or the part of it that rates need."""

    counters: dict[str, int]


class Look(Protocol):
    """A Sample, or the part of it that rates need."""

    at: float
    program: int
    minor_faults: int
    major_faults: int
    rss: int

    @property
    def shot(self) -> HasCounters:
        """What the heap was like."""


@dataclass
class Rates:
    """What happened between two samples, per second."""

    seconds: float
    counters: dict[str, float | None]  # by the names in RATES; None: the library does not count it
    minor_faults: float
    major_faults: float
    rss: float  # bytes


def rates(before: Look | None, after: Look) -> Rates | None:
    """Returns the Rates between two samples; None without a first sample, or after an exec between them."""
    if before is None or before.program != after.program or after.at <= before.at:
        return None
    seconds = after.at - before.at
    old, new = before.shot.counters, after.shot.counters
    return Rates(
        seconds=seconds,
        counters={name: (new[name] - old[name]) / seconds if name in old and name in new else None for name in RATES},
        minor_faults=(after.minor_faults - before.minor_faults) / seconds,
        major_faults=(after.major_faults - before.major_faults) / seconds,
        rss=(after.rss - before.rss) / seconds)
