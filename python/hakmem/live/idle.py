"""Tells which pages of a process nobody changed for some seconds, and how much of its memory nobody read either.

Pages are compared with their earlier contents. That takes only the rights of a debugger, changes nothing in the
process and works with every kernel, but it does not see reads. The kernel's mark of what was read or written
(Referenced) does; the kernel tells it by mapping, not by page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hakmem.live.memory import LiveError, ProcessMemory, Unreadable, begin_look
from hakmem.live.pages import PAGE, Sweep, read_areas
from hakmem.units import bytes_text

# Bytes read at once, and the most that are compared. A GiB takes about two seconds, once before and once after.
PIECE, COMPARED_MOST = 16 << 20, 8 << 30
REFERENCED_ONLY = "1"  # of /proc/PID/clear_refs: clears the marks of what was read or written, and nothing else


@dataclass
class Idle:
    """What was seen. unchanged: the resident pages whose contents were the same before and after."""

    seconds: float
    unchanged: Sweep
    compared: int  # bytes
    referenced: int | None  # of the mappings that hold the heap: bytes read or written; None: the kernel was not asked
    heap_rss: int  # of those mappings
    note: str  # which reads are not seen, and what is needed to see them


class Watch:
    """Looks at ranges of a process twice."""

    def __init__(self, memory: ProcessMemory, ranges: Iterable[tuple[int, int]], sweep: Sweep) -> None:
        """ranges: (start, end) of the heap; sweep: which pages are resident."""
        self.memory, self.ranges = memory, sorted(ranges)
        self.runs = [run for start, end in self.ranges for run in resident_runs(sweep, start, end)]
        self.compared = sum(end - start for start, end in self.runs)
        if self.compared > COMPARED_MOST:
            raise LiveError(f"process {memory.pid}: its heap has {bytes_text(self.compared)} in memory; up to "
                            f"{bytes_text(COMPARED_MOST)} are compared for --idle")
        self.before = dict(self.contents())
        self.begun = time.monotonic()
        self.problem = self.clear()

    def clear(self) -> str:
        """Has the kernel forget what was read or written. Returns why that is not possible, or ""."""
        try:
            with open(f"/proc/{self.memory.pid}/clear_refs", "w", encoding="ascii") as file:
                file.write(REFERENCED_ONLY)
        except OSError as error:
            return (f"Reads are not seen: /proc/{self.memory.pid}/clear_refs: {error.strerror}; it takes the process's "
                    "own user or "
                    "root.")
        return ""

    def end(self) -> Idle:
        """Returns the Idle of the time since the start."""
        referenced, heap_rss = (None, 0) if self.problem else self.referenced()
        seconds = time.monotonic() - self.begun
        same = sorted(page for page, value in self.contents() if self.before.get(page) == value)
        note = self.problem or (
            "Which pages were only read is not told by page without CONFIG_IDLE_PAGE_TRACKING and root: they "
            "count as idle.")
        return Idle(seconds, sweep_of_pages(same), self.compared, referenced, heap_rss, note)

    def contents(self) -> Iterator[tuple[int, int]]:
        """Yields (page's number, a hash of its contents) for each page that is still there."""
        for start, end in self.runs:
            for at in range(start, end, PIECE):
                yield from self.piece(at, min(at + PIECE, end))

    def piece(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the same for one piece. Halves the piece if a part of it is gone."""
        begin_look(self.memory)
        try:
            data = self.memory.read(start, end - start)
        except Unreadable:
            if end - start > PAGE:
                middle = start + (end - start) // PAGE // 2 * PAGE
                yield from self.piece(start, middle)
                yield from self.piece(middle, end)
            return
        for at in range(0, len(data), PAGE):
            yield (start + at) // PAGE, hash(data[at:at + PAGE])

    def referenced(self) -> tuple[int, int]:
        """Returns (bytes read or written, resident bytes) of the mappings in which the ranges lie."""
        areas = [area for area in read_areas(self.memory)
                 if any(area.mapping.start < last and first < area.mapping.end for first, last in self.ranges)]
        return sum(area.referenced for area in areas), sum(area.rss for area in areas)


def resident_runs(sweep: Sweep, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the resident parts of a range."""
    return [(max(first, start), min(last, end)) for first, last in sweep.between(start, end)]


def sweep_of_pages(pages: Iterable[int]) -> Sweep:
    """Returns a Sweep of sorted page numbers."""
    starts: list[int] = []
    ends: list[int] = []
    for page in pages:
        if ends and ends[-1] == page * PAGE:
            ends[-1] += PAGE
        else:
            starts.append(page * PAGE)
            ends.append((page + 1) * PAGE)
    return Sweep(starts, ends, None)
