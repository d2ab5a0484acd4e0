"""Explains, by allocation site and from outside, why more memory is resident than a program asked for.

The samples of the heap profile tell who has blocks, and how many blocks each sample stands for. Slabs and pages tell
what lies around them:
- rounding: bytes of a block beyond what its call wanted;
- held, headers: bytes that stay because of blocks in use (pins.py);
- untouched: whole pages inside a block that were never written: they count as live but not in Rss;
- idle: bytes on pages that nobody changed for some seconds (idle.py).

If every block is a sample, all figures are exact. Otherwise each sample stands for its weight. A sample lies in the
profile's own heap. It knows the slab from which its thread would have taken the block (`beside` in
src/profile/table.h)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from hakmem.live.descriptor import Descriptor, find
from hakmem.live.explain import Explanation, claims_of, explanation_of
from hakmem.live.idle import Idle, Watch
from hakmem.live.memory import LiveError, ProcessMemory, begin_look, name_of, sense
from hakmem.live.moment import Moment, take_moment
from hakmem.live.pages import PAGE, Pagemap
from hakmem.live.pins import SPARSE, Kept, Pick, Places, divide, pick_of
from hakmem.live.pins import Slab as Holder
from hakmem.live.sites import HeapSites, ProfileOff, Reader

if TYPE_CHECKING:
    from hakmem.live.model import Slab

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
    untouched: float = 0
    idle: float = 0
    kept: Kept = field(default_factory=Kept)
    variance: float = 0  # of the bytes of kept

    def add(self, other: Share) -> None:
        """Adds another Share to this one."""
        for name in ("blocks", "in_use", "rounding", "untouched", "idle", "variance"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kept.add(other.kept)


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
    kept: Kept  # by all blocks in use
    kept_by_caches: Kept  # in slabs and SuperSlabs whose blocks in use are all in thread caches
    classes: list[ClassRow]  # (block size, slabs, mostly empty ones, live blocks, held bytes)
    caches: list[CacheRow]  # (thread's name, its id or None, bytes in its cache)
    idle: Idle | None
    total: Share = field(default_factory=Share)
    variances: list[float] = field(default_factory=list)  # of what sites keep, in the order of a profile (heap/why.py)

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
        self.places = Places(self.shot.superslab_size)
        self.profile_heaps = {row.heap for row in self.shot.threads if row.kind == "profile"}
        self.swap = any(area.swap for area in moment.areas)

    def made(self) -> Why:
        """Returns the Why."""
        shot = self.shot
        with sense(self.memory):
            explained = explanation_of(self.memory, self.descriptor, self.moment, claims_of(shot, self.moment.huge),
                                       self)
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
        kept = Kept()
        for slab in self.places.slabs:
            kept.add(self.places.of_slab(slab))
        return Why(explained, shot.version, shot.totals.live, max(shot.totals.live - resident_live - swapped,
                                                                  0), swapped, heap, missing, exact, sites, kept,
                   self.places.by_caches(), self.by_class(), self.caches(), self.idle, total)

    # ---- Slabs ----

    def slab(self, row: int, slab: Slab, live: int, held: int, huge: int) -> None:
        """Takes what explain.superslab_pages tells of a slab."""
        size, blocks = self.shot.block_sizes[slab.class_id], self.shot.class_blocks[slab.class_id]
        sparse = live <= blocks * SPARSE and blocks > 1
        one = Holder(live, Kept(held, huge, slabs=sparse), row, slab.owner in self.profile_heaps, size)
        first = self.shot.units.address[row] // self.shot.unit_size + slab.first
        self.places.put(one, range(first, first + slab.length))

    def superslab(self, row: int, header: int, unused: int) -> None:
        """Takes what explain.superslab_pages tells of a SuperSlab."""
        self.places.superslabs[row].kept.add(Kept(unused, unused, header))

    def by_class(self) -> list[ClassRow]:
        """Returns (block size, slabs, mostly empty ones, live blocks, held bytes) by class, most held first."""
        rows: defaultdict[int, list[Holder]] = defaultdict(list)
        for one in self.places.slabs:
            rows[one.block_size].append(one)
        return sorted(((size, len(of_size), sum(one.sparse for one in of_size), sum(one.live for one in of_size),
                        round(sum((self.places.of_slab(one).held if one.live else one.kept.held for one in of_size),
                                  0.0))) for size, of_size in rows.items()), key=lambda row: -row[-1])

    def caches(self) -> list[CacheRow]:
        """Returns (thread's name, its id, bytes in its cache), most first."""
        names = {"house": "house heap", "first_class": "first-class heap", "profile": "heap profile",
                 "long_lived": "long-lived blocks of hak_alloc_at"}
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
        table = self.descriptor.root(self.memory, "profile_records", "record_table")
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
        begin_look(self.memory)
        known = {site.address for site in heap.sites}
        sites: dict[int, Share] = {}
        picks: defaultdict[int, list[Pick]] = defaultdict(list)
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
            own = self.places.slab_at.get(address // unit)
            if own and (exact or own.of_profile):
                share.kept.add(self.places.of_block(own))
            if not exact:
                picks[size].append(pick_of(self.places, site, size, stands, own, bool(foreign),
                                           window // unit + beside if beside else None))
        unseen = heap.unseen if heap.on and heap.unseen is not None else self.shot.totals.live
        for size, (kept, blocks) in self.places.by_size().items():
            for site, part in divide(picks[size], kept, blocks, unseen / size).items():
                sites[site].kept.add(part.kept)
                sites[site].variance += part.variance
        return sites

    def untouched(self, address: int, size: int) -> int:
        """Returns the bytes of a block's whole pages that are neither resident nor swapped out."""
        start, end = -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE
        missing = max(end - start, 0) - self.moment.sweep.bytes(start, max(end, start))
        if missing and self.swap:
            for at in range(start, end, PIECE_OF_MAP):
                flags = self.pagemap.flags(at, min(PIECE_OF_MAP, end - at))
                missing -= sum(bool(flag & SWAPPED) for flag in flags) * PAGE
        return max(missing, 0)
