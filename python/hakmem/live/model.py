"""What a snapshot holds. Bytes unless a name says otherwise."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy

# A unit's state, by number in Units.state.
UNIT_STATES = ("untouched", "dirty", "warm", "active", "between")
UNTOUCHED, DIRTY, WARM, ACTIVE, BETWEEN = range(5)


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
    huge_live: int = 0
    huge_cached: int = 0
    huge_blocks: int = 0
    footprint_peak: int = 0
    superslabs: int = 0
    heaps: int = 0
    live_threads: int = 0

    @property
    def sum(self):
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
    def live_bytes(self):
        return self.live_blocks * self.block_size

    @property
    def cached_bytes(self):
        return self.cached_blocks * self.block_size

    @property
    def free_bytes(self):
        return self.free_blocks * self.block_size


@dataclass
class Thread:
    """One heap, and the thread it serves."""

    heap: int  # the heap's id
    kind: str  # thread, house, first_class, profile
    state: str  # live, orphan, unused
    tid: int | None  # of a live thread's heap
    name: str  # of the thread
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
    """The blocks of one kind of memory: small, medium, spans, huge."""

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


@dataclass
class Huge:
    """A block above 1 MiB, or a freed range kept for the next."""

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
    blocks: int  # of the slab that it belongs to
    used: int  # of those: live or cached
    cached: int  # of those: in some thread's cache
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
class Units:
    """All SuperSlabs as arrays: a row a SuperSlab, a column a unit; column 0 is the header's and holds nothing."""

    number: numpy.ndarray
    address: numpy.ndarray
    tier: numpy.ndarray  # index in TIERS
    huge_pages: numpy.ndarray
    decommitted: numpy.ndarray
    state: numpy.ndarray  # index in UNIT_STATES
    first: numpy.ndarray  # the slab's first unit; 0 outside slabs in use
    class_id: numpy.ndarray  # from here on: of slabs in use, at their first unit
    used: numpy.ndarray
    cached: numpy.ndarray
    owner: numpy.ndarray  # the heap's id, 0: unknown


TIERS = ("FULL", "HOT", "DRAINING", "EMPTY")


@dataclass
class Snapshot:
    """The heap at one moment, as far as a moving target has one."""

    time: float
    pid: int | None
    command: str
    version: str
    totals: Totals
    classes: list[SizeClass]
    threads: list[Thread]
    pools: list[Pool]
    huge: list[Huge]
    counters: dict[str, int]
    options: dict[str, int | str | None]
    block_sizes: list[int]  # by class
    class_blocks: list[int]  # blocks of a slab, by class
    units: Units
    head: tuple[int, int]  # the window's head: address, bytes up to the first slot
    metadata_slots: list[int]  # their addresses
    superslab_size: int
    unit_size: int
    cached_blocks: numpy.ndarray  # the addresses of all blocks in thread caches
    cached_by: numpy.ndarray  # the id of the heap whose thread has each
    profile_maps: list[tuple[int, int]] = field(default_factory=list)  # of the heap profile's tables: address, bytes
    block_pools: list[BlockPool] = field(default_factory=list)
    head_maps: list[tuple[int, int]] = field(default_factory=list)  # what is mapped of the head: address, bytes
    slots_end: int = 0  # the number behind the last slot that is mapped
    foreign_slots: list[int] = field(default_factory=list)  # numbers of slots that somebody else's mapping lies in

    @cached_property
    def superslabs(self):
        """The SuperSlabs as objects; made when asked for, as they are many in a large heap."""
        units, made = self.units, []
        for row in range(len(units.number)):
            made.append(SuperSlab(int(units.number[row]), int(units.address[row]), TIERS[units.tier[row]],
                                  bool(units.huge_pages[row]), bool(units.decommitted[row]),
                                  [self.unit(row, column) for column in range(1, units.state.shape[1])]))
        return made

    def unit(self, row, column):
        """The Unit at a row and a column of the arrays."""
        units = self.units
        first = int(units.first[row, column])
        class_id = int(units.class_id[row, first]) if first else 0
        return Unit(UNIT_STATES[units.state[row, column]], class_id, self.block_sizes[class_id],
                    self.class_blocks[class_id] if first else 0, int(units.used[row, first]) if first else 0,
                    int(units.cached[row, first]) if first else 0,
                    (int(units.owner[row, first]) or None) if first else None, first == column)
