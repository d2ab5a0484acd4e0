"""Tells what an address is in a heap, and lists the blocks of a class. Works on any memory that hakmem.live reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hakmem.live.model import ACTIVE, BETWEEN, DIRTY, GUARD, UNTOUCHED, WARM, Slab, Snapshot

if TYPE_CHECKING:
    from hakmem.live.descriptor import Descriptor
    from hakmem.live.memory import Memory

# States of a block.
LIVE, CACHED, FREE, REMOTE = "live", "cached", "free", "freed by another thread"
WITHHELD = "withheld"
# Kinds of other places.
FOREIGN, OWN, RESERVED, UNIT, REST, HUGE, RANGE = "foreign", "own", "reserved", "unit", "rest", "huge", "range"
UNIT_WORDS = {UNTOUCHED: "a free unit, without memory behind it", DIRTY: "a free unit that was in use before",
              WARM: "a unit of a slab that a heap keeps ready", BETWEEN: "a unit on its way between two states",
              GUARD: "a guard unit between slabs, which nobody can access"}


@dataclass(frozen=True)
class Place:
    """What is at an address. kind: one of the words above. LIVE to WITHHELD are blocks of a class."""

    kind: str
    text: str = ""             # of OWN, RESERVED, UNIT: what it is
    start: int = 0             # of the block or range
    size: int = 0              # bytes of it
    class_id: int = 0
    slab: int = 0              # where the slab starts
    index: int = 0             # of the block in its slab
    blocks: int = 0            # of the slab
    owner: int = 0             # id of the heap that owns the slab, or of a huge block's first-class heap; 0: none
    cached_by: int = 0         # id of the heap in whose thread's cache it is
    interior: int = 0          # bytes from the block's start to the address


class SlabHeader:
    """The header of a slab in use, read on demand. free, remote: numbers of blocks, as bits."""

    def __init__(self, memory: Memory, descriptor: Descriptor, shot: Snapshot, slab: Slab) -> None:
        place, size = descriptor.fields["superslab.slabs"], descriptor.types["slab"]
        address = shot.units.address[slab.row] + place.offset + slab.first * size
        picker = descriptor.picker("slab", "start", "blocks", "local", "remote")
        (self.start, self.blocks, local, remote), = picker.rows(memory.read(address, size))
        self.class_id, self.owner, self.size = slab.class_id, slab.owner, shot.block_sizes[slab.class_id]
        self.free, self.remote = int.from_bytes(local, "little"), int.from_bytes(remote, "little")


def locate(memory: Memory, descriptor: Descriptor, shot: Snapshot, address: int) -> Place:
    """Returns the Place of an address."""
    for block in shot.huge:
        if block.address <= address < block.address + block.bytes:
            return Place(HUGE if block.live else RANGE, start=block.address, size=block.bytes, owner=block.heap or 0,
                         interior=address - block.address)
    window, head = shot.head
    number = (address - window) // shot.superslab_size
    units = int.from_bytes(memory.read(descriptor.roots["hak_units"], 8), "little")
    committed = units // descriptor.constants["SUPERSLAB_UNITS"]
    if not committed or not 0 <= number < committed:
        return Place(FOREIGN)
    if address < window + head:
        if any(start <= address < start + size for start, size in shot.head_maps):
            return Place(OWN, "the page map and the slots' records, at the window's start")
        return Place(FOREIGN)
    if number >= shot.slots_end or number in shot.foreign_slots:
        return Place(FOREIGN)
    if window + number * shot.superslab_size in shot.metadata_slots:
        return Place(OWN, "heaps, thread caches and records of huge blocks")
    if number not in shot.units.number:
        return Place(RESERVED, "mapped and not used yet")
    row, unit = shot.units.number.index(number), (address % shot.superslab_size) // shot.unit_size
    if shot.units.decommitted[row]:
        return Place(RESERVED, "a SuperSlab that was given back")
    if unit == 0:
        return Place(OWN, "the header of a SuperSlab")
    slab = shot.units.slab_at(row, unit)
    if slab is None:
        return Place(UNIT, UNIT_WORDS[shot.units.state[row][unit]])
    return locate_block(shot, SlabHeader(memory, descriptor, shot, slab), address)


def locate_block(shot: Snapshot, slab: SlabHeader, address: int) -> Place:
    """Returns the Place of an address in a slab."""
    index = (address - slab.start) // slab.size
    common = {"class_id": slab.class_id, "slab": slab.start, "blocks": slab.blocks, "owner": slab.owner,
              "size": slab.size}
    if index >= slab.blocks:
        return Place(REST, **common)
    start = slab.start + index * slab.size
    cached_by = shot.cached_blocks.get(start, 0)
    withheld = shot.withheld(slab.class_id) >> index & 1
    kind = (WITHHELD if withheld else FREE if slab.free >> index & 1 else REMOTE if slab.remote >> index & 1
            else CACHED if cached_by else LIVE)
    return Place(kind, start=start, index=index, interior=address - start, cached_by=cached_by, **common)


def without_records(shot: Snapshot) -> int:
    """Returns the number of SuperSlabs that have units in use and no slab, as with a header that reads as zeros."""
    return sum(1 for states in shot.units.state
               if BETWEEN in states[1:] and ACTIVE not in states and WARM not in states)


def class_of(shot: Snapshot, size: int) -> int:
    """Returns the class that serves a request of `size` bytes; 0 for huge ones."""
    return next((class_id for class_id, block in enumerate(shot.block_sizes) if class_id and block >= max(size, 1)), 0)


def live_blocks(memory: Memory, descriptor: Descriptor, shot: Snapshot, class_id: int) -> Iterator[tuple[int, int]]:
    """Yields (address, owner's heap id) of each live block of a class, by address."""
    for slab in shot.units.slabs:
        if slab.class_id == class_id:
            header = SlabHeader(memory, descriptor, shot, slab)
            taken = header.free | header.remote | shot.withheld(class_id)
            for index in range(header.blocks):
                address = header.start + index * header.size
                if not taken >> index & 1 and address not in shot.cached_blocks:
                    yield address, slab.owner
