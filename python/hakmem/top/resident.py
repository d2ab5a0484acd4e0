"""What the resident memory of a process is, by the kernel's map of its pages and a snapshot of its heap.

A page has no mark of what lies in it, so a slab's resident bytes are given to its live blocks first, then to the
cached ones, and what is left to the free ones. The parts sum to the RSS; what is neither of HAKMEM's is `other`.
"""

import os
from dataclasses import dataclass, fields

import numpy

from hakmem.live.memory import Unreadable

PAGE = os.sysconf("SC_PAGE_SIZE")
ENTRY = 8  # bytes of the page map for a page
PRESENT, FILE, EXCLUSIVE = numpy.uint64(1 << 63), numpy.uint64(1 << 61), numpy.uint64(1 << 56)


@dataclass
class Resident:
    """Resident bytes by what they hold."""

    live: int = 0
    cached: int = 0
    free_in_slab: int = 0
    retained: int = 0
    metadata: int = 0
    other: int = 0
    superslabs: numpy.ndarray | None = None  # of each row of Snapshot.units

    def parts(self):
        """{part: bytes}, which sum to the RSS."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "superslabs"}


def measure(pages, shot, rss, shared):
    """The Resident of a process; `pages` is its open pagemap, `shared` whether it shares pages with a fork.

    The page of zeros behind memory that was only read counts in no RSS. In the map it looks like a page that a fork
    shares, so both are left out, unless there may be shared ones.
    """
    made = counted(pages, shot, present if shared else owned)
    # The process moves between the looks at its pages and at its RSS.
    made.live -= min(max(sum(made.parts().values()) - rss, 0), made.live)
    made.other = max(rss - sum(made.parts().values()), 0)
    return made


def counted(pages, shot, count):
    """HAKMEM's parts, pages counted by present or owned."""
    made = Resident(superslabs=numpy.zeros(len(shot.units.number), "i8"))
    window(pages, shot, made, count)
    for block in shot.huge:
        size = int(count(pages, block.address, block.bytes).sum()) * PAGE
        if block.live:
            made.live += size
        else:
            made.retained += size
    for address, size in shot.profile_maps:
        made.metadata += int(count(pages, address, size).sum()) * PAGE
    return made


def entries(pages, address, size):
    """The map's words for the pages from an address on; zeros beyond its end."""
    wanted = -(-size // PAGE)
    data = os.pread(pages, wanted * ENTRY, address // PAGE * ENTRY)
    if wanted and not data:
        raise Unreadable("the map of its pages is empty: it has become another program")
    found = numpy.frombuffer(data[:len(data) // ENTRY * ENTRY], "<u8")
    return numpy.concatenate([found, numpy.zeros(wanted - len(found), "<u8")])


def present(pages, address, size):
    """Whether each page is there, the page of zeros too."""
    return entries(pages, address, size) & PRESENT != 0


def owned(pages, address, size):
    """Whether each page is there and the process's alone, or of a file."""
    found = entries(pages, address, size)
    return (found & PRESENT != 0) & (found & (FILE | EXCLUSIVE) != 0)


def window(pages, shot, made, count):
    """Adds what is resident of the window's head and of its slots."""
    units, size = shot.units, shot.superslab_size
    for address, length in shot.head_maps:
        made.metadata += int(count(pages, address, length).sum()) * PAGE
    base, begin = shot.head[0], shot.head[1] // size
    slots, columns = shot.slots_end - begin, size // shot.unit_size
    resident = count(pages, base + begin * size, slots * size).reshape(slots, columns, -1).sum(axis=2).astype("i8") * PAGE
    # Numbers from here on count from the first slot.
    rest = numpy.ones(slots, bool)
    rest[[number - begin for number in shot.foreign_slots]] = False
    metadata = [(address - base) // size - begin for address in shot.metadata_slots]
    rest[metadata] = False
    made.metadata += int(resident[metadata].sum())
    rest[units.number - begin] = False
    rows = numpy.flatnonzero(~units.decommitted)
    number = units.number[rows] - begin
    made.retained += int(resident[rest].sum())
    if not len(rows):
        return
    here = resident[number]
    made.superslabs[rows] = here.sum(axis=1)
    first = units.first[rows].astype("i8")
    inside = first > 0
    made.metadata += int(here[:, 0].sum())
    made.retained += int(here[:, 1:][~inside[:, 1:]].sum())
    slabs = numpy.zeros_like(here)
    numpy.add.at(slabs, (numpy.nonzero(inside)[0], first[inside]), here[inside])
    block = numpy.array(shot.block_sizes, "i8")[units.class_id[rows]]
    live = numpy.minimum((units.used[rows] - units.cached[rows]) * block, slabs)
    cached = numpy.minimum(units.cached[rows] * block, slabs - live)
    made.live += int(live.sum())
    made.cached += int(cached.sum())
    made.free_in_slab += int((slabs - live - cached).sum())
