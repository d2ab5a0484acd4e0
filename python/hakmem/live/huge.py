"""Huge blocks and the cache of freed ranges, as src/pool/huge.h keeps them."""

from dataclasses import dataclass

import numpy

from hakmem.live.model import Huge

TRIES = 4
# Blocks that may come while their records are read.
NEW_BLOCKS = 4096
# Mappings start at a multiple of it, on every machine (B1).
PAGE = 4096


@dataclass
class HugeState:
    """What huge.h tells, in bytes and numbers, and the blocks and ranges one by one."""

    live_bytes: int
    live_blocks: int
    cached_bytes: int
    blocks: list[Huge]


def read_huge(memory, descriptor, heap_ids):
    """The HugeState. Read again while records and figures disagree, a few times: then the figures stand as they are."""
    inside = descriptor.unpack("huge_inside", memory.read(descriptor.roots["huge_inside"], descriptor.types["huge_inside"]))
    state = None
    for _ in range(TRIES):
        state = read_once(memory, descriptor, inside, heap_ids)
        if sum(block.bytes for block in state.blocks if block.live) == state.live_bytes:
            break
    return state


def read_once(memory, descriptor, inside, heap_ids):
    constant, types = descriptor.constants, descriptor.types
    buckets, ranges, count, cached, live, number = memory.read_many([
        (inside["buckets"], 8 * constant["HUGE_BUCKETS"]),
        (inside["ranges"], types["huge_range"] * constant["HUGE_MAX_RANGES"]),
        (inside["range_count"], 4), (inside["range_bytes"], 8), (inside["live_bytes"], 8), (inside["live_blocks"], 8)])
    live, number, cached, count = (int.from_bytes(part, "little") for part in (live, number, cached, count))
    found = live_blocks(memory, descriptor, numpy.frombuffer(buckets, "<u8"), number + NEW_BLOCKS, heap_ids)
    rows = numpy.frombuffer(ranges, descriptor.dtype("huge_range"))[:count]
    found += [Huge(int(row["start"]), int(row["size"]), False, None) for row in rows]
    return HugeState(live, number, cached, sorted(found, key=lambda block: block.address))


def live_blocks(memory, descriptor, buckets, most, heap_ids):
    """The records in the buckets: one step of all their chains with each read.

    A record that was dropped meanwhile leads into the list of unused ones: the bound ends that.
    """
    unit, kind, size = descriptor.constants["UNIT_SIZE"], descriptor.dtype("huge"), descriptor.types["huge"]
    found, heads, seen = {}, [int(head) for head in buckets if head], set()
    while heads and len(seen) < most:
        heads = [head for head in heads if head not in seen and head % 8 == 0]
        seen.update(heads)
        records = numpy.frombuffer(b"".join(memory.read_many([(head, size) for head in heads])), kind)
        for record in records:
            address, length = int(record["address"]), int(record["size"])
            if length and address % PAGE == 0 and length % unit == 0:
                found[address] = Huge(address, length, True, heap_ids.get(int(record["heap"])))
        heads = [int(head) for head in records["next"] if head]
    return list(found.values())
