"""Tells what the resident memory of a process is, from the kernel's map of its pages and a snapshot of its heap.

A page does not show what lies in it. So a slab's resident bytes are attributed to its live blocks first, then to the
cached ones, and the rest to the free ones. The parts add up to the RSS; `other` is what does not belong to HAKMEM."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from hakmem.live.pages import OWNED, PAGE, THERE, Pagemap

if TYPE_CHECKING:
    from hakmem.live.model import Snapshot

# {part: (its name, its color)} of Resident, for the bar of `hakmem top`, its key and the page of `hakmem serve`.
PARTS = {
    "live": ("live", "#2f9e44"), "cached": ("cached", "#1c7ed6"), "free_in_slab": ("free in slab", "#f59f00"),
    "retained": ("retained", "#e8590c"), "metadata": ("metadata", "#9c36b5"), "other": ("other", "#868e96"),
}


@dataclass
class Resident:
    """Resident bytes by what they hold."""

    live: int = 0
    cached: int = 0
    free_in_slab: int = 0
    retained: int = 0
    metadata: int = 0
    other: int = 0
    superslabs: list[int] = field(default_factory=list)  # of each row of Snapshot.units

    def parts(self) -> dict[str, int]:
        """Returns {part: bytes}, which add up to the RSS."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "superslabs"}


def measure(pages: Pagemap, shot: Snapshot, rss: int, shared: bool) -> Resident:
    """Returns the Resident of a process. pages: its open pagemap. shared: whether it shares pages with a fork.

    The page of zeros, behind memory that was only read, counts in no RSS. In the map it looks like a page that a
    fork shares. So pages of this kind are left out unless there may be shared ones."""
    made = counted(pages, shot, THERE if shared else OWNED)
    # The process changes between the look at its pages and the look at its RSS.
    made.live -= min(max(sum(made.parts().values()) - rss, 0), made.live)
    made.other = max(rss - sum(made.parts().values()), 0)
    return made


def counted(pages: Pagemap, shot: Snapshot, kind: bytes) -> Resident:
    """Returns HAKMEM's parts. kind: which pages count, THERE or OWNED."""
    made = Resident(superslabs=[0] * len(shot.units.number))
    window(pages, shot, made, kind)
    for block in shot.huge:
        size = resident_bytes(pages, block.address, block.bytes, kind)
        if block.live:
            made.live += size
        else:
            made.retained += size
    for address, size in shot.profile_maps:
        made.metadata += resident_bytes(pages, address, size, kind)
    return made


def resident_bytes(pages: Pagemap, address: int, size: int, kind: bytes) -> int:
    """Returns the resident bytes of a range."""
    return pages.counting(address, size, kind).count(1) * PAGE


def window(pages: Pagemap, shot: Snapshot, made: Resident, kind: bytes) -> None:
    """Adds the resident parts of the window's head and slots."""
    units, size, block = shot.units, shot.superslab_size, shot.block_sizes
    for address, length in shot.head_maps:
        made.metadata += resident_bytes(pages, address, length, kind)
    base, begin, per_slot = shot.head[0], shot.head[1] // size, size // PAGE
    there = pages.counting(base + begin * size, (shot.slots_end - begin) * size, kind)
    # From here on, slots are numbered from the first one.
    rest = set(range(shot.slots_end - begin)) - {number - begin for number in shot.foreign_slots}
    rest -= {number - begin for number in units.number}
    for address in shot.metadata_slots:
        number = (address - base) // size - begin
        rest.discard(number)
        made.metadata += there.count(1, number * per_slot, (number + 1) * per_slot) * PAGE
    for number in rest:
        made.retained += there.count(1, number * per_slot, (number + 1) * per_slot) * PAGE
    per_unit = shot.unit_size // PAGE
    for row in units.present:
        start = (units.number[row] - begin) * per_slot
        whole = there.count(1, start, start + per_slot) * PAGE
        header = there.count(1, start, start + per_unit) * PAGE
        made.superslabs[row] = whole
        made.metadata += header
        left = whole - header
        for slab in units.by_row[row]:
            at = start + slab.first * per_unit
            found = there.count(1, at, at + slab.length * per_unit) * PAGE
            live = min((slab.used - slab.cached) * block[slab.class_id], found)
            cached = min(slab.cached * block[slab.class_id], found - live)
            made.live += live
            made.cached += cached
            made.free_in_slab += found - live - cached
            left -= found
        made.retained += left
