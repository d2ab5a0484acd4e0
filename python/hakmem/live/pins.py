"""Divides the free bytes that blocks in use keep resident among the sites of those blocks.

Places knows from bitmaps and pages, exactly, what each slab and each SuperSlab keeps. Samples know the sites. If all of
these blocks were gone, the bytes would leave. So the live blocks of a slab share its bytes evenly, and the live blocks
of a SuperSlab share its header and what is unused on its huge page.

A sample of the weight w lies in a slab of the profile's own, and stands for w - 1 blocks that do not. Each of these
keeps what the sampled block would keep if it lay where its thread would have taken it. So the sum over a site's samples
of w - 1 times that has no bias, apart from what the block's absence changed. The sums of a size class are then scaled to
what its slabs keep, which is known. docs/heap.md tells the assumptions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from hakmem.live.pages import PAGE

# A slab or SuperSlab is mostly empty if at most this part of it is in use.
SPARSE = 1 / 8
# The upper end of an interval, in standard deviations, and how many more samples are counted: as in heap/interval.py.
HALF, MORE = 1.96, 2


@dataclass
class Kept:
    """Bytes, and numbers of slabs and SuperSlabs, that stay because of some blocks."""

    held: float = 0  # free bytes on pages with blocks, in slabs more than half in use, and on huge pages
    huge: float = 0  # of held: unused parts of huge pages, which malloc_trim gives back
    headers: float = 0  # of SuperSlabs
    slabs: float = 0  # that are mostly empty
    superslabs: float = 0  # the same of SuperSlabs

    @property
    def bytes(self) -> float:
        """All bytes."""
        return self.held + self.headers

    def add(self, other: Kept, times: float = 1) -> None:
        """Adds the other, so many times."""
        self.held += times * other.held
        self.huge += times * other.huge
        self.headers += times * other.headers
        self.slabs += times * other.slabs
        self.superslabs += times * other.superslabs


@dataclass
class Slab:
    """A slab that has memory."""

    live: int  # blocks
    kept: Kept  # by its blocks alone
    row: int  # of its SuperSlab
    of_profile: bool
    block_size: int
    each: dict[int, Kept] = field(default_factory=dict)  # what one of its blocks keeps (Places.of_block)

    @property
    def sparse(self) -> bool:
        """Whether it is mostly empty."""
        return self.kept.slabs > 0


@dataclass
class SuperSlab:
    """A SuperSlab that has memory."""

    kept: Kept = field(default_factory=Kept)
    live: int = 0  # blocks
    bytes: int = 0  # of live blocks


class Places:
    """The slabs and SuperSlabs of a heap. put() adds all SuperSlabs and slabs; then each can be asked for."""

    def __init__(self, superslab_size: int) -> None:
        self.size = superslab_size
        self.slabs: list[Slab] = []
        self.superslabs: defaultdict[int, SuperSlab] = defaultdict(SuperSlab)
        self.slab_at: dict[int, Slab] = {}  # by the number of a unit
        self.alone: dict[int, Kept] = {}  # by size of block: what the only block of a slab keeps, in the mean

    def put(self, slab: Slab, units: Iterable[int]) -> None:
        """Adds a slab, which has these units."""
        self.slabs.append(slab)
        self.slab_at.update(dict.fromkeys(units, slab))
        superslab = self.superslabs[slab.row]
        superslab.live += slab.live
        superslab.bytes += slab.live * slab.block_size
        superslab.kept.superslabs = float(0 < superslab.bytes <= self.size * SPARSE)

    def of_block(self, slab: Slab, more: int = 0) -> Kept:
        """Returns what a block of the slab keeps. more: how many more blocks there would be."""
        found = slab.each.get(more)
        if found is None:
            found, superslab = Kept(), self.superslabs[slab.row]
            if slab.live + more:
                found.add(slab.kept, 1 / (slab.live + more))
                found.add(superslab.kept, 1 / (superslab.live + more))
            slab.each[more] = found
        return found

    def of_slab(self, slab: Slab) -> Kept:
        """Returns what all live blocks of a slab keep."""
        found = Kept()
        found.add(self.of_block(slab), slab.live)
        return found

    def would_keep(self, unit: int, size: int) -> Kept:
        """Returns what a sampled block of the size would keep in the slab at the unit. If that slab is gone, or has no
        block in use, the block would be its only one. Then returns the mean of what single blocks of slabs keep; if
        there is none, of the blocks of the emptiest slabs; if no slab has blocks, the rest of a page."""
        found = self.slab_at.get(unit)
        if found is not None and found.live and found.block_size == size and not found.of_profile:
            return self.of_block(found, 1)
        if size not in self.alone:
            slabs = [one for one in self.slabs if one.block_size == size and one.live and not one.of_profile]
            least = min((one.live for one in slabs), default=0)
            known = [self.of_block(one) for one in slabs if one.live == least]
            mean = Kept() if known else Kept(held=-size % PAGE)
            for one in known:
                mean.add(one, 1 / len(known))
            self.alone[size] = mean
        return self.alone[size]

    def by_size(self) -> dict[int, tuple[Kept, int]]:
        """Returns {size of block: (what is kept by blocks that are no samples, their number)}."""
        found: dict[int, tuple[Kept, int]] = {}
        for slab in self.slabs:
            if slab.live and not slab.of_profile:
                kept, blocks = found.get(slab.block_size, (Kept(), 0))
                kept.add(self.of_slab(slab))
                found[slab.block_size] = kept, blocks + slab.live
        return found

    def by_caches(self) -> Kept:
        """Returns what only blocks in thread caches keep."""
        found = Kept()
        for slab in self.slabs:
            if not slab.live:
                found.add(slab.kept)
        for superslab in self.superslabs.values():
            if not superslab.live:
                found.add(superslab.kept)
        return found


@dataclass
class Pick:
    """A sample in use, and the blocks of its site that it stands for."""

    site: int
    blocks: float  # those that are no samples, and itself if it lies where it would without the profile
    weight: float
    each: Kept | None  # what each of them keeps; None: nobody knows where they lie


def pick_of(places: Places, site: int, size: int, weight: float, own: Slab | None, foreign: bool,
            beside: int | None) -> Pick:
    """Returns the Pick of a sample. own: the slab that it lies in. foreign: that is no slab of the profile's. beside:
    the unit where it would lie otherwise, or None."""
    if foreign:
        return Pick(site, weight, weight, places.of_block(own) if own else None)
    return Pick(site, weight - 1, weight, None if beside is None else places.would_keep(beside, size))


@dataclass
class Part:
    """A site's part, and the variance of its bytes."""

    kept: Kept = field(default_factory=Kept)
    variance: float = 0


def divide(picks: Sequence[Pick], kept: Kept, blocks: int, older: float) -> dict[int, Part]:
    """Returns {site: its Part} of what blocks of one size keep, of which there are so many. picks: all their samples.
    older: how many blocks may be from before the profile, at most.

    If samples stand for fewer blocks than there are, by more than chance explains, some are older than the profile.
    Their part stays out."""
    mean = Kept()
    if blocks:
        mean.add(kept, 1 / blocks)
    sums: defaultdict[int, Part] = defaultdict(Part)
    total, stands, variance = Kept(), 0.0, 0.0
    for pick in picks:
        each = pick.each or mean
        part = sums[pick.site]
        part.kept.add(each, pick.blocks)
        part.variance += pick.weight * (pick.weight - 1) * each.bytes**2
        total.add(each, pick.blocks)
        stands += pick.blocks
        variance += pick.weight * (pick.weight - 1)
    more = MORE * variance / len(picks) if picks else 0
    known = min(1.0, max(stands + HALF * math.sqrt(variance + more), blocks - older) / blocks) if blocks else 0
    for part in sums.values():
        share = part.kept.bytes / total.bytes if total.bytes else 0
        spread = known * kept.bytes / total.bytes if total.bytes else 0
        part.variance *= spread**2
        for one in fields(Kept):
            whole = getattr(total, one.name)
            of_kind = getattr(part.kept, one.name) / whole if whole else share
            setattr(part.kept, one.name, known * getattr(kept, one.name) * of_kind)
    return dict(sums)
