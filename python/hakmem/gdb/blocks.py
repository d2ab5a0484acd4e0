"""What an address is in a heap, and the blocks of a class one by one. Works on any memory that hakmem.live reads."""

from dataclasses import dataclass

import numpy

from hakmem.live.model import ACTIVE, BETWEEN, DIRTY, UNTOUCHED, WARM

# States of a block.
LIVE, CACHED, FREE, REMOTE = "live", "cached", "free", "freed by another thread"
# What other places are.
FOREIGN, OWN, RESERVED, UNIT, REST, HUGE, RANGE = "foreign", "own", "reserved", "unit", "rest", "huge", "range"
UNIT_WORDS = {UNTOUCHED: "a free unit, without memory behind it", DIRTY: "a free unit that was in use before",
              WARM: "a unit of a slab that a heap keeps ready", BETWEEN: "a unit on its way between two states"}


@dataclass(frozen=True)
class Place:
    """What is at an address. kind: one of the words above; of LIVE, CACHED, FREE and REMOTE a block of a class."""

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


class Slab:
    """The header of a slab in use, read when asked for."""

    def __init__(self, memory, descriptor, shot, row, first):
        place, size = descriptor.fields["superslab.slabs"], descriptor.types["slab"]
        address = int(shot.units.address[row]) + place.offset + first * size
        columns = ("start", "blocks", "local", "remote")
        header = numpy.frombuffer(memory.read(address, size), descriptor.dtype("slab", *columns))[0]
        self.class_id = int(shot.units.class_id[row, first])
        self.owner = int(shot.units.owner[row, first])
        self.start, self.blocks = int(header["start"]), int(header["blocks"])
        self.size = shot.block_sizes[self.class_id]
        self.free = bits_of(header["local"], self.blocks)
        self.remote = bits_of(header["remote"], self.blocks)

    def addresses(self, mask):
        return self.start + numpy.flatnonzero(mask).astype("i8") * self.size


def bits_of(words, count):
    """The first `count` bits of words, as booleans."""
    return numpy.unpackbits(numpy.asarray(words, "<u8").view("u1"), bitorder="little")[:count].astype(bool)


def locate(memory, descriptor, shot, address):
    """The Place of an address."""
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
    rows = numpy.flatnonzero(shot.units.number == number)
    if not len(rows):
        return Place(RESERVED, "mapped and not used yet")
    row, unit = int(rows[0]), (address % shot.superslab_size) // shot.unit_size
    if shot.units.decommitted[row]:
        return Place(RESERVED, "a SuperSlab that was given back")
    if unit == 0:
        return Place(OWN, "the header of a SuperSlab")
    state = int(shot.units.state[row, unit])
    if state != ACTIVE:
        return Place(UNIT, UNIT_WORDS[state])
    slab = Slab(memory, descriptor, shot, row, int(shot.units.first[row, unit]))
    return locate_block(shot, slab, address)


def locate_block(shot, slab, address):
    index = (address - slab.start) // slab.size
    common = {"class_id": slab.class_id, "slab": slab.start, "blocks": slab.blocks, "owner": slab.owner,
              "size": slab.size}
    if index >= slab.blocks:
        return Place(REST, **common)
    start = slab.start + index * slab.size
    caches = shot.cached_by[shot.cached_blocks == start]
    kind = FREE if slab.free[index] else REMOTE if slab.remote[index] else CACHED if len(caches) else LIVE
    return Place(kind, start=start, index=index, interior=address - start,
                 cached_by=int(caches[0]) if len(caches) else 0, **common)


def class_of(shot, size):
    """The class that serves a request of so many bytes; 0 for huge ones."""
    return next((class_id for class_id, block in enumerate(shot.block_sizes) if class_id and block >= max(size, 1)), 0)


def live_blocks(memory, descriptor, shot, class_id):
    """(address, owner's heap id) of each live block of a class, by address."""
    units = shot.units
    begins = (units.first == numpy.arange(units.first.shape[1])) & (units.first > 0)
    for row, first in zip(*numpy.nonzero(begins & (units.class_id == class_id)), strict=True):
        slab = Slab(memory, descriptor, shot, int(row), int(first))
        addresses = slab.addresses(~slab.free & ~slab.remote)
        for address in addresses[~numpy.isin(addresses.astype("u8"), shot.cached_blocks)]:
            yield int(address), slab.owner
