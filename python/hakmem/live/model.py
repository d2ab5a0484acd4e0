"""What a snapshot holds. Figures are bytes unless a name says otherwise."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

# A unit's state, by number in Units.state.
UNIT_STATES = ("untouched", "dirty", "warm", "active", "between", "guard")
UNTOUCHED, DIRTY, WARM, ACTIVE, BETWEEN, GUARD = range(6)


@dataclass
class Totals:
    """Where the memory is: mapped = live + cached + free_in_slab + retained + metadata, as in src/observe/usage.h."""

    mapped: int = 0
    live: int = 0
    cached: int = 0
    free_in_slab: int = 0
    retained: int = 0
    metadata: int = 0
    heap_profile: int = 0  # of metadata: the heap profile's tables
    purged: int = 0
    guard_units: int = 0  # of purged: their bytes. Nobody can access them
    huge_live: int = 0
    huge_cached: int = 0
    huge_blocks: int = 0
    footprint_peak: int = 0
    superslabs: int = 0
    heaps: int = 0
    live_threads: int = 0

    @property
    def sum(self) -> int:
        """The sum of the five parts of `mapped`."""
        return self.live + self.cached + self.free_in_slab + self.retained + self.metadata


@dataclass
class SizeClass:
    """One size class in use."""

    class_id: int
    block_size: int
    slabs: int
    live_blocks: int
    cached_blocks: int
    free_blocks: int  # in slabs, not in caches
    span: bool
    counters: dict[str, int] = field(default_factory=dict)  # of all heaps: struct class_counters
    slab_bytes: int = 0

    @property
    def live_bytes(self) -> int:
        """Bytes of live blocks."""
        return self.live_blocks * self.block_size

    @property
    def cached_bytes(self) -> int:
        """Bytes of blocks in thread caches."""
        return self.cached_blocks * self.block_size

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks in slabs."""
        return self.free_blocks * self.block_size


@dataclass
class Scope:
    """A scope (include/hakmem/scope.h): a tenant with a heap of its own."""

    number: int
    name: str
    heap: int  # the heap's id
    live_bytes: int  # with the scopes below it
    cap_bytes: int  # 0: none
    peak_bytes: int
    refused: int  # allocations


@dataclass
class Thread:
    """One heap, and the thread it serves."""

    heap: int  # the heap's id
    kind: str  # thread, house, first_class, profile, shared, long_lived
    state: str  # live, orphan, unused
    tid: int | None  # of a live thread's heap
    name: str  # of the thread, or of the scope that has the heap
    slabs: int
    slab_bytes: int
    live_bytes: int  # of blocks of its slabs that are in no cache
    cached_bytes: int  # in its thread's cache, whoever's slabs they are of
    warm_slabs: int
    pending_slabs: int
    counters: dict[str, int] = field(default_factory=dict)
    address: int = 0


@dataclass
class BlockPool:
    """The blocks of one kind of memory: small, medium, spans or huge."""

    name: str
    slabs: int = 0  # slabs, spans, mappings
    slab_bytes: int = 0
    live_blocks: int = 0
    live_bytes: int = 0
    cached_blocks: int = 0
    cached_bytes: int = 0
    free_blocks: int = 0
    free_bytes: int = 0  # slabs' tails too; huge: freed ranges that are kept


@dataclass
class Pool:
    """The SuperSlabs of one tier."""

    tier: str
    superslabs: int
    active_units: int
    warm_units: int
    dirty_units: int
    untouched_units: int
    guard_units: int = 0


@dataclass
class Huge:
    """A block above 1 MiB, or a freed range kept for the next one."""

    address: int
    bytes: int
    live: bool
    heap: int | None  # the first-class heap's id


@dataclass
class Unit:
    """One unit of 64 KiB of a SuperSlab."""

    state: str
    class_id: int  # 0: none
    block_size: int
    blocks: int  # all blocks of the unit's slab
    used: int  # the slab's blocks that are live or cached
    cached: int  # the slab's blocks that are in some thread's cache
    owner: int | None  # the owning heap's id
    first: bool  # the slab begins here


@dataclass
class SuperSlab:
    """One SuperSlab and its units 1 to 31."""

    number: int
    address: int
    tier: str
    huge_pages: bool
    decommitted: bool
    units: list[Unit]


@dataclass
class Slab:
    """One slab in use."""

    row: int  # of its SuperSlab in Units
    first: int  # its first unit
    length: int  # units
    class_id: int
    used: int  # blocks, live or cached
    owner: int  # the heap's id, 0: unknown
    cached: int = 0  # of used: in some thread's cache


@dataclass
class Units:
    """All SuperSlabs and their slabs. Each list has one item for each SuperSlab."""

    number: list[int]
    address: list[int]
    tier: list[int]  # index in TIERS
    huge_pages: list[bool]
    decommitted: list[bool]
    state: list[bytes]  # of each unit: index in UNIT_STATES; unit 0 is the header's and holds nothing
    slabs: list[Slab]  # by SuperSlab and unit

    @cached_property
    def by_row(self) -> list[list[Slab]]:
        """The slabs of each SuperSlab."""
        found: list[list[Slab]] = [[] for _ in self.number]
        for slab in self.slabs:
            found[slab.row].append(slab)
        return found

    @cached_property
    def present(self) -> list[int]:
        """The rows of SuperSlabs that are not decommitted."""
        return [row for row, gone in enumerate(self.decommitted) if not gone]

    def slab_at(self, row: int, unit: int) -> Slab | None:
        """Returns the Slab to which a unit belongs, or None."""
        return next((slab for slab in self.by_row[row] if slab.first <= unit < slab.first + slab.length), None)

    def spread(self, kind: str, value: Callable[[Slab], int]) -> array[int]:
        """Returns a number for each unit of all SuperSlabs: value(slab) at a slab's first unit, else 0."""
        columns = len(self.state[0]) if self.state else 0
        made = array(kind, bytes(array(kind).itemsize * columns * len(self.number)))
        for slab in self.slabs:
            made[slab.row * columns + slab.first] = value(slab)
        return made


TIERS = ("FULL", "HOT", "DRAINING", "EMPTY")


@dataclass
class Figures:
    """What metrics need of a look at a process."""

    time: float
    pid: int | None
    command: str
    version: str
    counters: dict[str, int]
    totals: Totals
    classes: list[SizeClass]
    threads: list[Thread]
    pools: list[Pool]
    block_pools: list[BlockPool]
    scopes: list[Scope]


@dataclass
class Snapshot(Figures):
    """The heap at one moment, as far as a running process has one."""

    huge: list[Huge]
    options: dict[str, int | str | None]
    block_sizes: list[int]  # by class
    class_blocks: list[int]  # blocks of a slab, by class
    units: Units
    head: tuple[int, int]  # the window's head: address, bytes up to the first slot
    metadata_slots: list[int]  # their addresses
    superslab_size: int
    unit_size: int
    cached_blocks: dict[int, int]  # address of each block in a thread cache -> id of the heap whose thread has it
    profile_maps: list[tuple[int, int]] = field(default_factory=list)  # of the heap profile's tables: address, bytes
    guard_maps: list[tuple[int, int]] = field(default_factory=list)  # of guarded blocks: address, bytes
    head_maps: list[tuple[int, int]] = field(default_factory=list)  # what is mapped of the head: address, bytes
    slots_end: int = 0  # the number behind the last slot that is mapped
    foreign_slots: list[int] = field(default_factory=list)  # numbers of slots that somebody else's mapping lies in
    hardened: bool = False  # by libhakmem-secure, or by a setting that earlier versions had

    def withheld(self, class_id: int) -> int:
        """Returns the blocks of each slab of the class that are never handed out, as bits: a hardened process withholds
        the first one of small blocks (pool/slab.h:slab_blocks_withheld)."""
        return int(self.hardened and self.block_sizes[class_id] < 1024)

    @cached_property
    def superslabs(self) -> list[SuperSlab]:
        """The SuperSlabs as objects. They are made on demand, because a large heap has many."""
        units, made = self.units, []
        for row, number in enumerate(units.number):
            found = [
                Unit(UNIT_STATES[state], 0, self.block_sizes[0], 0, 0, 0, None, False) for state in units.state[row]
            ]
            for slab in units.by_row[row]:
                for unit in range(slab.first, slab.first + slab.length):
                    found[unit] = Unit(UNIT_STATES[ACTIVE], slab.class_id, self.block_sizes[slab.class_id],
                                       self.class_blocks[slab.class_id], slab.used, slab.cached, slab.owner or None,
                                       unit == slab.first)
            made.append(SuperSlab(number, units.address[row], TIERS[units.tier[row]], units.huge_pages[row],
                                  units.decommitted[row], found[1:]))
        return made
