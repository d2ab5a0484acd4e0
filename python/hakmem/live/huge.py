"""Reads huge blocks and the cache of freed ranges, as src/pool/huge.h keeps them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hakmem.live.descriptor import USER_END, Descriptor
from hakmem.live.model import Huge

if TYPE_CHECKING:
    from hakmem.live.memory import Memory

TRIES = 4
# Blocks that may be allocated while their records are read.
NEW_BLOCKS = 4096
# Above the number of the largest process.
BLOCKS_MOST = 1 << 20
# On every machine, mappings start at a multiple of this (B1).
PAGE = 4096


@dataclass
class HugeState:
    """The figures of huge.h, in bytes and numbers, and every block and range."""

    live_bytes: int
    live_blocks: int
    cached_bytes: int
    blocks: list[Huge]


def read_huge(memory: Memory, descriptor: Descriptor, heap_ids: dict[int, int]) -> HugeState:
    """Returns the HugeState. Reads a few times until the records agree with the figures."""
    inside = descriptor.root(memory, "huge_inside")
    for _ in range(TRIES):
        state = read_once(memory, descriptor, inside, heap_ids)
        if sum(block.bytes for block in state.blocks if block.live) == state.live_bytes:
            break
    return state


def read_once(memory: Memory, descriptor: Descriptor, inside: dict[str, int], heap_ids: dict[int, int]) -> HugeState:
    """Reads the HugeState once."""
    constant, types = descriptor.constants, descriptor.types
    buckets, ranges, *figures = memory.read_many([
        (inside["buckets"], 8 * constant["HUGE_BUCKETS"]),
        (inside["ranges"], types["huge_range"] * constant["HUGE_MAX_RANGES"]),
        (inside["range_count"], 4), (inside["range_bytes"], 8), (inside["live_bytes"], 8), (inside["live_blocks"], 8)])
    count, cached, live, number = (int.from_bytes(figure, "little") for figure in figures)
    found = live_blocks(memory, descriptor, array("Q", buckets), min(number, BLOCKS_MOST) + NEW_BLOCKS,
                        heap_ids)
    rows = list(descriptor.picker("huge_range", "start", "size").rows(ranges))[:count]
    found += [Huge(start, size, False, None) for start, size in rows if start + size <= USER_END]
    return HugeState(live, number, cached, sorted(found, key=lambda block: block.address))


def live_blocks(memory: Memory, descriptor: Descriptor, buckets: Iterable[int], most: int,
                heap_ids: dict[int, int]) -> list[Huge]:
    """Returns the blocks that the records in the buckets describe. Each read takes one step along all chains.

    A record that was dropped meanwhile leads into the list of unused records, so `most` bounds the steps."""
    unit, size = descriptor.constants["UNIT_SIZE"], descriptor.types["huge"]
    picker = descriptor.picker("huge", "next", "address", "size", "heap")
    found: dict[int, Huge] = {}
    heads = [head for head in buckets if head]
    seen: set[int] = set()
    while heads and len(seen) < most:
        heads = [head for head in heads if head not in seen and head % 8 == 0]
        seen.update(heads)
        records = list(picker.rows(b"".join(memory.read_many([(head, size) for head in heads]))))
        for _, address, length, heap in records:
            if length and address % PAGE == 0 and length % unit == 0 and address + length <= USER_END:
                found[address] = Huge(address, length, True, heap_ids.get(heap))
        heads = [following for following, *_ in records if following]
    return list(found.values())
