"""Reads the heaps of a process on glibc's malloc from outside: how much of them is free but still resident.

glibc keeps a block's size in front of it (malloc/malloc.c, "chunk"), so a heap can be walked from its start to its end.
Three bits of the size are flags. A flag of the next block tells whether this one is free. Blocks in thread caches and
fast bins count as used, because glibc does not mark them. A heap whose sizes do not lead exactly to its end is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from hakmem.foreign import Mapping
from hakmem.live.memory import LiveError, ProcessMemory, Unreadable
from hakmem.live.pages import PAGE, THERE, Pagemap, PagemapError

WORD, GRANULE, LEAST = 8, 16, 32
IN_USE, FLAGS = 1, 7
# Heaps of threads' arenas have this size and lie at multiples of it.
ARENA_HEAP = 64 << 20
HEAP_INFO = struct.Struct("<4Q")  # arena, the heap before, bytes in use, bytes made writable
# Where the first block of an arena's heap may begin. In the arena's first heap, it lies behind the arena's own data; in
# later heaps, near the start.
FIRST_BLOCK = range(0x20, 0x1000, GRANULE)
# Limits: a longer heap, or one of more blocks, would take too long to walk.
READ_MOST = 1 << 30
BLOCKS_MOST = 4_000_000
# How often a walk is tried: a running process changes its heap while it is read.
TRIES = 3


# [(start, end)] of free blocks, and the number of all blocks.
Walked = tuple[list[tuple[int, int]], int]


@dataclass
class Heap:
    """A range from which glibc cuts blocks, in bytes. free and free_resident: None if it was not walked."""

    kind: str  # main, arena
    start: int
    end: int
    resident: int = 0  # whole range
    blocks: int | None = None
    free: int | None = None  # in free blocks, the last one too
    free_resident: int | None = None  # of free: on whole pages that are resident


def walk(data: bytes, at: int, end: int) -> Walked | None:
    """Returns ([(start, end)] of the free blocks between two offsets of a heap's bytes, number of blocks); None if
    these are no blocks, or too many."""
    found: list[tuple[int, int]] = []
    last: tuple[int, int] | None = None
    count = 0
    while at < end:
        if count == BLOCKS_MOST:
            return None
        if at + GRANULE > end:
            return None
        word = struct.unpack_from("<Q", data, at + WORD)[0]
        size = word & ~FLAGS
        if size < LEAST or size % GRANULE or size > end - at:
            return None
        if last is not None and not word & IN_USE:
            found.append(last)
        last, at, count = (at, at + size), at + size, count + 1
    # The last block is the rest at the top, which is always free.
    return (found + [last], count) if last else None


def fill(memory: ProcessMemory, heap: Heap, starts: Iterable[int]) -> Heap:
    """Fills in what can be known of a heap, and returns it."""
    for _ in range(TRIES):
        fill_once(memory, heap, starts)
        if heap.free is not None:
            break
    return heap


def fill_once(memory: ProcessMemory, heap: Heap, starts: Iterable[int]) -> None:
    """Walks a heap from the first start that leads to its end."""
    try:
        with Pagemap(memory.pid) as pages:
            present = pages.counting(heap.start, heap.end - heap.start, THERE)
        heap.resident = sum(present) * PAGE
        data = memory.read(heap.start, heap.end - heap.start) if heap.end - heap.start <= READ_MOST else b""
    except (OSError, PagemapError, Unreadable):
        return
    for start in starts:
        walked = walk(data, start, len(data)) if data else None
        if walked:
            free, heap.blocks = walked
            heap.free = sum(end - at for at, end in free)
            # A free block's header and links are in use, so the page they lie on does not count.
            heap.free_resident = sum(sum(present[-(-(at + LEAST) // PAGE):end // PAGE]) for at, end in free) * PAGE
            return


def arena_heaps(memory: ProcessMemory, mappings: list[Mapping]) -> list[tuple[int, Heap]]:
    """Returns the heaps of threads' arenas: writable anonymous memory at 64 MiB with a fitting header."""
    found = []
    for mapping in mappings:
        if mapping.start % ARENA_HEAP or mapping.path or mapping.inode or not mapping.flags.startswith("rw"):
            continue
        try:
            arena, before, used, writable = HEAP_INFO.unpack(memory.read(mapping.start, HEAP_INFO.size))
        except LiveError:
            continue
        if mapping.start < arena and used and used <= writable <= ARENA_HEAP and used <= mapping.size \
                and (before == 0 or before % ARENA_HEAP == 0):
            found.append((arena, Heap("arena", mapping.start, mapping.start + used)))
    return found


def heaps_of(memory: ProcessMemory) -> list[Heap]:
    """Returns every Heap of the process that can be found."""
    mappings = memory.mappings()
    found = []
    for mapping in mappings:
        if mapping.path == "[heap]":
            # The first block lies at the start of the mapping, or close behind it: the program break need not begin
            # at a multiple of glibc's granule.
            found.append(fill(memory, Heap("main", mapping.start, mapping.end), range(0, PAGE, GRANULE)))
    return found + [fill(memory, heap, FIRST_BLOCK) for _, heap in arena_heaps(memory, mappings)]
