"""One moment of a process that goes on running: its heap, its resident pages and the kernel's Rss, as near as can be.

A look takes a millisecond or two: huge blocks, mappings, Rss, pages, Rss, huge blocks. Looks are taken until the pages
add up to Rss as it was just before and just after; if none does, the one that comes nearest is kept, and says by how
much it misses.
"""

import time
from dataclasses import dataclass

from hakmem.live import words
from hakmem.live.heap import snapshot
from hakmem.live.huge import read_huge
from hakmem.live.memory import Unreadable
from hakmem.live.model import Huge, Snapshot
from hakmem.live.pages import Area, Sweep, read_areas, read_rss

# A look is good when it misses Rss by no more than this part of it.
GOOD = 1 / 1000
# Looks at pages for one at the heap, which takes ten times as long; seconds for all.
LOOKS = 8
SECONDS = 3.0


@dataclass
class Moment:
    """A look that was kept."""

    shot: Snapshot
    areas: list[Area]  # by smaps; of the mappings that are odd, what is resident
    mappings: list  # of the look
    sweep: Sweep  # the resident pages, without odd mappings
    huge: list[Huge]  # huge blocks and kept ranges, those that were there after the pages first
    before: int  # Rss
    after: int
    looks: int = 0
    drift: int = 0  # bytes by which a part of the heap had changed afterwards, at most

    @property
    def odd(self):
        """Rss of the mappings that the sweep leaves out."""
        return sum(area.rss for area in self.areas if area.odd)

    @property
    def rss(self):
        """Of the two, the one that the pages come nearer to."""
        return min((self.after, self.before), key=lambda rss: abs(self.sweep.total + self.odd - rss))

    @property
    def miss(self):
        """The most that the pages differ from Rss just before or just after."""
        return max(abs(self.sweep.total + self.odd - rss) for rss in (self.before, self.after))


def take_moment(memory, descriptor, pagemap):
    """The Moment of a process."""
    begun, looks, best = time.monotonic(), 0, None
    while True:
        shot, areas = snapshot(memory, descriptor), read_areas(memory)
        for _ in range(LOOKS):
            looks += 1
            for made in look(memory, descriptor, pagemap, shot, areas):
                if best is None or made.miss < best.miss:
                    best = made
            if best.miss <= best.rss * GOOD:
                break
        if best.miss <= best.rss * GOOD or time.monotonic() - begun > SECONDS:
            best.looks, best.drift = looks, drift(best.shot.totals, snapshot(memory, descriptor).totals)
            return best


def drift(earlier, later):
    """The most bytes by which a part of the heap differs."""
    return max(abs(getattr(later, part) - getattr(earlier, part)) for part in words.PARTS)


def look(memory, descriptor, pagemap, shot, areas):
    """The Moments that a look may be: two where the kernel leaves it open which pages count."""
    heaps = {row.address: row.heap for row in shot.threads}
    earlier = huge_blocks(memory, descriptor, heaps)
    mappings = memory.mappings()
    before = read_rss(memory)
    sweeps = pagemap.sweeps(mappings)
    after = read_rss(memory)
    huge = huge_blocks(memory, descriptor, heaps) + earlier + shot.huge
    odd = [(area.mapping.start, area.mapping.end) for area in areas if area.odd]
    return [Moment(shot, areas, mappings, sweep.without(odd), huge, before, after) for sweep in sweeps]


def huge_blocks(memory, descriptor, heaps):
    """What huge blocks there are; none if a record went away while it was read."""
    try:
        return read_huge(memory, descriptor, heaps).blocks
    except Unreadable:
        return []
