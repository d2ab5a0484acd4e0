"""Explains, by allocation site and from outside, why more memory is resident than a program asked for.

The samples of the heap profile tell who has blocks, and how many blocks each sample stands for. Slabs and pages tell
what lies around them:
- rounding: bytes of a block beyond what its call wanted;
- held: free bytes on those pages of a slab on which blocks in use lie. They stay because of the slab's live blocks,
which share them evenly;
- untouched: whole pages inside a block that were never written: they count as live but not in Rss;
- idle: bytes on pages that nobody changed for some seconds (idle.py).

If every block is a sample, all figures are exact. Otherwise each sample stands for its weight. A sample lies in the
profile's own heap. It counts as holding what the slab holds from which its thread would have taken the block
(`beside` in src/profile/table.h)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Optional

from hakmem.compat import zip_strict
from hakmem.live.descriptor import Descriptor, find
from hakmem.live.explain import Explanation, claims_of, explanation_of
from hakmem.live.idle import Idle, Watch
from hakmem.live.memory import LiveError, ProcessMemory, name_of, sense
from hakmem.live.moment import Moment, take_moment
from hakmem.live.pages import PAGE, Pagemap
from hakmem.live.sites import HeapSites, ProfileOff, Reader

if TYPE_CHECKING:
    from hakmem.live.model import Slab

# A slab or SuperSlab is mostly empty if at most this part of it is in use.
SPARSE = 1 / 8
# Records read at once, and the limit for a process.
RECORDS_AT_ONCE, RECORDS_MOST = 1 << 16, 1 << 28
RECORD = ("address", "site", "size", "weight", "foreign", "slack", "beside")
PIECE_OF_MAP = 64 << 20
# A row of Why.classes, and of Why.caches.
ClassRow = tuple[int, int, int, int, int]
CacheRow = tuple[str, Optional[int], int]
SWAPPED = 1 << 6  # in the last byte of the map's word for a page


@dataclass
class Share:
    """The figures of a site's blocks in use, in bytes except for blocks, slabs and superslabs."""

    blocks: float = 0
    in_use: float = 0  # as allocated, rounding included
    rounding: float = 0
    held: float = 0
    slabs: float = 0  # that are mostly empty, and would be wholly so without the site's blocks; shared evenly by blocks
    superslabs: float = 0  # the same of SuperSlabs
    untouched: float = 0
    idle: float = 0

    def add(self, other: Share) -> None:
        """Adds another Share to this one."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass
class Holder:
    """A slab that has memory."""

    live: int  # blocks
    free: float  # bytes that stay because of its blocks
    sparse: bool
    superslab: int
    of_profile: bool
    block_size: int


@dataclass
class Why:
    """The explanation of one moment."""

    explanation: Explanation
    version: str
    live: int  # bytes of blocks, resident or not
    untouched: int  # of them: never written
    swapped: int
    heap: HeapSites | None  # None: no profile is taken, and `missing` says so
    missing: str
    exact: bool  # every block is a sample
    sites: dict[int, Share]  # by a site's address
    held_by_samples: int  # by the profile's own slabs, if not every block is a sample
    held_by_caches: int  # in slabs whose blocks in use are all in thread caches
    classes: list[ClassRow]  # (block size, slabs, mostly empty ones, live blocks, held bytes)
    caches: list[CacheRow]  # (thread's name, its id or None, bytes in its cache)
    idle: Idle | None
    total: Share = field(default_factory=Share)

    @property
    def rounding(self) -> int:
        """Bytes that all blocks have beyond what their calls wanted."""
        return round(self.total.rounding)

    @property
    def unknown_live(self) -> int:
        """Bytes of live blocks that no sample stands for: older than the profile, or by chance."""
        return max(self.live - round(self.total.in_use), 0)


def why_of(memory: ProcessMemory, idle_seconds: float | None = None,
           wait: Callable[[float], object] = time.sleep) -> Why:
    """Returns the Why of a process; raises PagemapError if the kernel does not tell which pages are resident.
    wait(): sleeps for the given seconds."""
    descriptor = find(memory)
    with Pagemap(memory.pid) as pagemap:
        idle = None
        if idle_seconds:
            first = take_moment(memory, descriptor, pagemap)
            watch = Watch(memory, [(start, end) for start, end in heap_ranges(first)], first.sweep)
            wait(idle_seconds)
            idle = watch.end()
        moment = take_moment(memory, descriptor, pagemap)
        return Maker(memory, descriptor, moment, pagemap, idle).made()


def heap_ranges(moment: Moment) -> list[tuple[int, int]]:
    """Returns (start, end) of each SuperSlab and each huge block."""
    shot = moment.shot
    found = [(shot.units.address[row], shot.units.address[row] + shot.superslab_size) for row in shot.units.present]
    return sorted(found + [(block.address, block.address + block.bytes) for block in shot.huge if block.live])


class Maker:
    """Makes a Why."""

    def __init__(self, memory: ProcessMemory, descriptor: Descriptor, moment: Moment, pagemap: Pagemap,
                 idle: Idle | None) -> None:
        self.memory, self.descriptor, self.moment, self.pagemap, self.idle = memory, descriptor, moment, pagemap, idle
        self.shot = moment.shot
        self.holders: list[Holder] = []
        self.holder_at: dict[int, Holder] = {}
        self.unused: defaultdict[int, float] = defaultdict(float)
        self.in_superslab: defaultdict[int, float] = defaultdict(float)
        self.profile_heaps = {row.heap for row in self.shot.threads if row.kind == "profile"}
        self.alone: dict[int, Holder] = {}  # by size of block, the Holder of a slab with one
        self.swap = any(area.swap for area in moment.areas)

    def made(self) -> Why:
        """Returns the Why."""
        shot = self.shot
        with sense(self.memory):
            explained = explanation_of(self.memory, self.descriptor, self.moment, claims_of(shot, self.moment.huge),
                                       self.note)
            self.share_superslabs()
            heap, missing = None, ""
            try:
                heap = Reader(self.memory, self.descriptor).read()
            except ProfileOff as error:
                missing = str(error)
            exact = heap is not None and heap.mean == 1
            sites = self.by_site(heap, exact) if heap else {}
        total = Share()
        for share in sites.values():
            total.add(share)
        resident_live = explained.heap["live"]
        swapped = min(explained.swap, max(shot.totals.live - resident_live, 0))
        own = sum(one.free for one in self.holders if one.of_profile) if not exact else 0
        caches = sum(one.free for one in self.holders if one.live == 0 and not (one.of_profile and not exact))
        held = sum(one.free for one in self.holders)
        # There are few samples, so their estimate may exceed what there is.
        most = held - own - caches
        if total.held > most:
            part = most / total.held
            for share in (*sites.values(), total):
                share.held *= part
        return Why(explained, shot.version, shot.totals.live, max(shot.totals.live - resident_live - swapped,
                                                                  0), swapped, heap, missing, exact, sites, round(own),
                   round(caches), self.by_class(), self.caches(), self.idle, total)

    # ---- Slabs ----

    def note(self, row: int, slab: Slab | None, live: int, free: float) -> None:
        """Takes what explain.superslab_pages tells of a slab."""
        if slab is None:
            self.unused[row] += free
            return
        size, blocks = self.shot.block_sizes[slab.class_id], self.shot.class_blocks[slab.class_id]
        one = Holder(live, free, live <= blocks * SPARSE and blocks > 1, row, slab.owner in self.profile_heaps, size)
        base = self.shot.units.address[row] // self.shot.unit_size + slab.first
        for unit in range(base, base + slab.length):
            self.holder_at[unit] = one
        self.holders.append(one)
        self.in_superslab[row] += live

    def share_superslabs(self) -> None:
        """Shares what is unused on a huge page among its SuperSlab's slabs, by their live blocks."""
        for one in self.holders:
            blocks = self.in_superslab[one.superslab]
            if blocks and self.unused[one.superslab]:
                one.free += self.unused[one.superslab] * one.live / blocks
        live_bytes: defaultdict[int, int] = defaultdict(int)
        for one in self.holders:
            live_bytes[one.superslab] += one.live * one.block_size
        self.sparse_superslabs = {
            row for row, size in live_bytes.items() if 0 < size <= self.shot.superslab_size * SPARSE
        }

    def by_class(self) -> list[ClassRow]:
        """Returns (block size, slabs, mostly empty ones, live blocks, held bytes) by class, most held first."""
        rows: defaultdict[int, list[Holder]] = defaultdict(list)
        for one in self.holders:
            rows[one.block_size].append(one)
        return sorted(((size, len(of_size), sum(one.sparse for one in of_size), sum(one.live for one in of_size),
                        round(sum((one.free for one in of_size), 0.0))) for size, of_size in rows.items()),
                      key=lambda row: -row[-1])

    def caches(self) -> list[CacheRow]:
        """Returns (thread's name, its id, bytes in its cache), most first."""
        names = {"house": "house heap", "first_class": "first-class heap", "profile": "heap profile"}
        return sorted(((row.name or names.get(row.kind, row.state), row.tid, row.cached_bytes)
                       for row in self.shot.threads if row.cached_bytes), key=lambda row: -row[-1])

    # ---- Samples ----

    def records(self) -> Iterator[tuple[int, ...]]:
        """Yields the records in use, each as a tuple of RECORD's fields."""
        if "profile_records" not in self.descriptor.roots or not all(
                f"record.{name}" in self.descriptor.fields for name in RECORD):
            raise LiveError(f"{name_of(self.memory)}: its HAKMEM {self.descriptor.version} does not say of samples "
                            "what this needs; "
                            "use the tools of that HAKMEM")
        table = self.descriptor.unpack("record_table", self.memory.read(
            self.descriptor.roots["profile_records"], self.descriptor.types["record_table"]))
        size, picker = self.descriptor.types["record"], self.descriptor.picker("record", *RECORD)
        if table["capacity"] > RECORDS_MOST:
            raise LiveError(f"{name_of(self.memory)}: its table of {table['capacity']:,} samples makes no sense")
        for first in range(0, table["capacity"], RECORDS_AT_ONCE):
            count = min(RECORDS_AT_ONCE, table["capacity"] - first)
            for row in picker.rows(self.memory.read(table["places"] + first * size, count * size)):
                if row[0]:
                    yield row

    def by_site(self, heap: HeapSites, exact: bool) -> dict[int, Share]:
        """Returns {a site's address: its Share}."""
        if hasattr(self.memory, "begin_look"):
            self.memory.begin_look()
        known = {site.address for site in heap.sites}
        sites: dict[int, Share] = {}
        unit, window = self.shot.unit_size, self.shot.head[0]
        for address, site, size, weight, foreign, slack, beside in self.records():
            if site not in known or size > self.shot.totals.live:
                continue  # its site is newer than the list that was read, or it is no record
            share = sites.get(site)
            if share is None:
                share = sites[site] = Share()
            stands = weight / heap.one
            share.blocks += stands
            share.in_use += stands * size
            share.rounding += stands * slack
            if size >= 2 * PAGE:
                share.untouched += stands * self.untouched(address, size)
            if self.idle:
                share.idle += stands * (self.idle.unchanged.below(address + size) - self.idle.unchanged.below(address))
            if exact or foreign:
                self.hold(share, stands, self.holder_at.get(address // unit), 0)
            elif beside:
                self.hold(share, stands, self.holder_like(window // unit + beside, size), 1)
        return sites

    def hold(self, share: Share, stands: float, holder: Holder | None, more: int) -> None:
        """Adds to a share what its blocks hold of a slab and its SuperSlab. more: how many more blocks the slab
        would have without sampling."""
        if holder is None or not holder.live + more:
            return
        part = stands / (holder.live + more)
        share.held += part * holder.free
        share.slabs += part * holder.sparse
        if holder.superslab in self.sparse_superslabs:
            share.superslabs += stands / (self.in_superslab[holder.superslab] + more)

    def holder_like(self, unit: int, size: int) -> Holder:
        """Returns the slab in which a sampled block would lie. If that slab is gone, the block would be its only
        one: then returns the mean of the class's slabs with one block, or the rest of a page."""
        found = self.holder_at.get(unit)
        if found is not None and found.block_size == size and not found.of_profile:
            return found
        if size not in self.alone:
            free = [one.free for one in self.holders if one.block_size == size and one.live == 1 and not one.of_profile]
            # A slab with room for only one block holds no others.
            single = next(
                (blocks for each, blocks in zip_strict(self.shot.block_sizes, self.shot.class_blocks) if each == size),
                1)
            mean = sum(free) / len(free) if free else -size % PAGE
            self.alone[size] = Holder(0, mean, single > 1, -1, False, size)
        return self.alone[size]

    def untouched(self, address: int, size: int) -> int:
        """Returns the bytes of a block's whole pages that are neither resident nor swapped out."""
        start, end = -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE
        missing = max(end - start, 0) - self.moment.sweep.bytes(start, max(end, start))
        if missing and self.swap:
            for at in range(start, end, PIECE_OF_MAP):
                flags = self.pagemap.flags(at, min(PIECE_OF_MAP, end - at))
                missing -= sum(bool(flag & SWAPPED) for flag in flags) * PAGE
        return max(missing, 0)
