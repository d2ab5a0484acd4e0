"""Looks at a running process at one moment, as nearly as possible: its heap, its resident pages and the kernel's Rss.

A look takes a millisecond or two: huge blocks, mappings, Rss, pages, Rss, huge blocks. Looks are repeated until the
pages miss the Rss just before and just after by at most a thousandth. If none does in time, the nearest one is kept and
says how much it misses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hakmem.foreign import Mapping
from hakmem.live import words
from hakmem.live.heap import snapshot
from hakmem.live.huge import read_huge
from hakmem.live.memory import ProcessMemory, Unreadable
from hakmem.live.model import Huge, Snapshot, Totals
from hakmem.live.pages import Area, Pagemap, Sweep, read_areas, read_rss

if TYPE_CHECKING:
    from hakmem.live.descriptor import Descriptor

# A look is good if it misses Rss by at most this part.
GOOD = 1 / 1000
# Looks at pages for each look at the heap, which takes ten times as long; seconds for all looks.
LOOKS = 8
SECONDS = 3.0


@dataclass
class Moment:
    """The kept one of several looks at a process."""

    shot: Snapshot
    areas: list[Area]  # of smaps; for odd mappings only the resident part
    mappings: list[Mapping]  # of the look
    sweep: Sweep  # the resident pages, without odd mappings
    huge: list[Huge]  # huge blocks and kept ranges; first those that were still there after the pages were read
    before: int  # Rss
    after: int
    looks: int = 0
    drift: int = 0  # bytes by which a part of the heap had changed afterwards, at most

    @property
    def odd(self) -> int:
        """The Rss of the mappings that the sweep leaves out."""
        return sum(area.rss for area in self.areas if area.odd)

    @property
    def rss(self) -> int:
        """The Rss before or after, whichever is nearer to the pages."""
        return min((self.after, self.before), key=lambda rss: abs(self.sweep.total + self.odd - rss))

    @property
    def miss(self) -> int:
        """How much the pages differ from the Rss just before or just after, whichever is more."""
        return max(abs(self.sweep.total + self.odd - rss) for rss in (self.before, self.after))


def take_moment(memory: ProcessMemory, descriptor: Descriptor, pagemap: Pagemap) -> Moment:
    """Returns the Moment of a process."""
    begun, looks = time.monotonic(), 0
    found: list[Moment] = []
    while True:
        shot, areas = snapshot(memory, descriptor), read_areas(memory)
        for _ in range(LOOKS):
            looks += 1
            best = min(found + look(memory, descriptor, pagemap, shot, areas), key=lambda moment: moment.miss)
            found = [best]
            if best.miss <= best.rss * GOOD:
                break
        if best.miss <= best.rss * GOOD or time.monotonic() - begun > SECONDS:
            best.looks, best.drift = looks, drift(best.shot.totals, snapshot(memory, descriptor).totals)
            return best


def drift(earlier: Totals, later: Totals) -> int:
    """Returns by how many bytes the heap's parts differ at most."""
    most: int = max(abs(getattr(later, part) - getattr(earlier, part)) for part in words.PARTS)
    return most


def look(memory: ProcessMemory, descriptor: Descriptor, pagemap: Pagemap, shot: Snapshot,
         areas: list[Area]) -> list[Moment]:
    """Returns the possible Moments of a look: two if the kernel does not tell exactly which pages count."""
    heaps = {row.address: row.heap for row in shot.threads}
    earlier = huge_blocks(memory, descriptor, heaps)
    mappings = memory.mappings()
    before = read_rss(memory)
    sweeps = pagemap.sweeps(mappings)
    after = read_rss(memory)
    huge = huge_blocks(memory, descriptor, heaps) + earlier + shot.huge
    odd = [(area.mapping.start, area.mapping.end) for area in areas if area.odd]
    return [Moment(shot, areas, mappings, sweep.without(odd), huge, before, after) for sweep in sweeps]


def huge_blocks(memory: ProcessMemory, descriptor: Descriptor, heaps: dict[int, int]) -> list[Huge]:
    """Returns the huge blocks; [] if a record went away during the read."""
    try:
        return read_huge(memory, descriptor, heaps).blocks
    except Unreadable:
        return []
