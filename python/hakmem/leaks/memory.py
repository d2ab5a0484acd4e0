"""Finds out which blocks a process has in use at its end, where its roots are, and which blocks point to which.

The library records all blocks (HAKMEM_RECORD_ALL). Roots are the registers of the threads, their stacks from the
stack pointer on, and all other writable memory that is not HAKMEM's, but for the stacks of ended threads. A word that
lies anywhere in a block counts as a pointer to the block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hakmem.live.descriptor import find
from hakmem.live.heap import Reader as HeapReader
from hakmem.live.huge import read_huge
from hakmem.live.memory import LiveError, ProcessMemory, Unreadable, name_of, sense
from hakmem.live.pages import PAGE, Pagemap, PagemapError, sweep_of
from hakmem.live.sites import Reader as SitesReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hakmem.live.sites import Site as SitesSite
    from hakmem.supervise import Ending

    Words = NDArray[np.uint64]
    Indexes = NDArray[np.int64]
    Signed = NDArray[np.int64]
    Mask = NDArray[np.bool_]

WORD = np.dtype("<u8")
# Memory is read in pieces of this size. Unreadable pages in a piece (a truncated file, a device) are left out.
PIECE = 16 << 20
# Of mappings from this size on, only touched pages are read: a sanitizer's shadow has terabytes. The two highest bits
# of a page's flags tell whether it is in memory or swapped out.
SPARSE_LEAST, TOUCHED = 16 << 20, bytes(flags >> 6 != 0 for flags in range(256))
FLAGS_AT_ONCE = 8 << 30  # bytes of address space
# Bytes below the stack pointer that a function may use (the red zone of x86-64).
RED_ZONE = 128
# Shared memory, which a program may keep pointers in. Reading another device may change it.
SHARED_MEMORY = ("/dev/zero", "/dev/shm/")
# At the end of a stack that it made, glibc keeps the thread's descriptor (struct pthread), in less than this. On x86-64
# its first and third word are its own address, which the thread has in fs_base.
DESCRIPTOR_MOST, DESCRIPTOR_ALIGN = 8192, 64


class NotRecorded(LiveError):
    """The library in the process has not recorded all blocks."""


@dataclass
class Blocks:
    """Blocks in use, by address. asked: the bytes that the program asked for. site: the index in `sites` of each block's
    stack."""

    starts: Words
    ends: Words
    asked: Signed
    site: Indexes
    sites: list[SitesSite]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Signed:
        """The bytes of each block."""
        return (self.ends - self.starts).astype(np.int64)

    def find(self, words: Words) -> tuple[Indexes, Indexes]:
        """Returns (indexes of the words that lie in a block, the block of each)."""
        if not len(self.starts):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        near = np.flatnonzero((words >= self.starts[0]) & (words < self.ends[-1]))
        there = np.searchsorted(self.starts, words[near], "right") - 1
        inside = words[near] < self.ends[there]
        return near[inside], there[inside]


@dataclass
class Graph:
    """Which blocks point to which: b to targets[first[b]:first[b + 1]]. roots: those that roots point to."""

    first: Indexes
    targets: Indexes
    roots: Indexes

    def reach(self, start: Indexes, known: Mask | None = None) -> Mask:
        """Returns a mask of the blocks reachable from those at `start`, together with the known ones."""
        seen = np.zeros(len(self.first) - 1, bool) if known is None else known.copy()
        front = np.unique(start[~seen[start]])
        seen[front] = True
        while len(front):
            if len(front) < NARROW:
                front = self.walk(front, seen)
                continue
            front = self.next_of(front)
            front = np.unique(front[~seen[front]])
            seen[front] = True
        return seen

    def heads(self, among: Mask) -> Mask:
        """Returns, for a mask of blocks, a mask of heads from which all the others can be reached: blocks that no
        other one points to, and one block of each ring that no head leads to."""
        holders = np.repeat(np.arange(len(among)), np.diff(self.first))
        pointed = np.zeros(len(among), bool)
        pointed[self.targets[among[holders] & among[self.targets]]] = True
        heads = among & ~pointed
        seen = self.reach(np.flatnonzero(heads), ~among)
        for block in np.flatnonzero(~seen).tolist():
            if not seen[block]:
                heads[block] = seen[block] = True
                front = np.array([block], np.int64)
                while len(front):
                    front = self.walk(front, seen)
        return heads

    def next_of(self, front: Indexes) -> Indexes:
        """Returns the blocks that the blocks of a front point to."""
        counts = self.first[front + 1] - self.first[front]
        total = int(counts.sum())
        places = np.repeat(self.first[front] - (np.cumsum(counts) - counts), counts) + np.arange(total)
        return self.targets[places]

    def walk(self, front: Indexes, seen: Mask) -> Indexes:
        """Continues reach block by block while few blocks wait. Along a linked list, array operations would take one
        step for each block. Returns the front that is left."""
        waiting, first, targets = front.tolist(), self.first, self.targets
        while waiting and len(waiting) < 8 * NARROW:
            block = waiting.pop()
            for target in targets[first[block]:first[block + 1]].tolist():
                if not seen[target]:
                    seen[target] = True
                    waiting.append(target)
        return np.array(waiting, np.int64)


NARROW = 64


class Process:
    """A process that is held at its end (supervise.Ending)."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.memory = ProcessMemory(ending.thread)
        self.descriptor = find(self.memory)
        self.mappings = self.memory.mappings()

    # ---- Blocks ----

    def blocks(self) -> Blocks:
        """Returns the Blocks; raises NotRecorded if the library has not recorded them."""
        descriptor, memory = self.descriptor, self.memory
        if "profile_records" not in descriptor.roots:
            raise NotRecorded(f"{name_of(memory)}: its HAKMEM {descriptor.version} keeps no records of all blocks")
        with sense(memory):
            reader = SitesReader(memory, descriptor)
            heap = reader.read()
            if heap.mean != 1:
                raise NotRecorded(f"{name_of(memory)} does not record every block: HAKMEM_RECORD_ALL did not reach it")
            table = descriptor.root(memory, "profile_records", "record_table")
            return self.sorted_blocks(heap.sites, *self.records(table["places"], table["capacity"]))

    def records(self, places: int, capacity: int) -> tuple[Words, Words, Words, Words]:
        """Returns (addresses, sizes, sites' addresses, bytes beyond those asked for) of the records in use."""
        size = self.descriptor.types["record"]
        names = ("address", "size", "site")
        fields = [self.descriptor.fields[f"record.{name}"] for name in names]
        slack = self.descriptor.fields.get("record.slack")
        more = ["slack"] if slack and slack.size == 4 else []
        kind = np.dtype({"names": [*names, *more], "formats": ["<u8"] * 3 + ["<u4"] * len(more),
                         "offsets": [field.offset for field in fields] + [slack.offset for _ in more if slack],
                         "itemsize": size})
        room = sum(mapping.end - places for mapping in self.mappings if mapping.start <= places < mapping.end)
        if capacity * size > room and capacity or any(field.size != 8 for field in fields):
            raise LiveError(f"{name_of(self.memory)}: its table of {capacity:,} records makes no sense")
        found, step = [np.empty(0, kind)], PIECE // size
        for first in range(0, capacity, step):
            part = np.frombuffer(self.memory.read(places + first * size, min(step, capacity - first) * size), kind)
            found.append(part[part["address"] != 0])
        whole = np.concatenate(found)
        return whole["address"], whole["size"], whole["site"], (
            whole["slack"].astype(WORD) if more else np.zeros(len(whole), WORD))

    def sorted_blocks(self, sites: list[SitesSite], addresses: Words, sizes: Words, of_sites: Words,
                      slack: Words) -> Blocks:
        """Returns the Blocks of these records, sorted by address."""
        order = np.argsort(addresses)
        starts, sizes, of_sites = addresses[order], sizes[order], of_sites[order]
        where = np.array([site.address for site in sites], WORD)
        by_address = np.argsort(where)
        place = np.minimum(np.searchsorted(where[by_address], of_sites), max(len(where) - 1, 0))
        site = by_address[place] if len(where) else place
        ends = starts + sizes
        if len(starts) and (np.any(where[site] != of_sites) or np.any(ends < starts) or np.any(ends[:-1] > starts[1:])):
            raise LiveError(f"{name_of(self.memory)}: its records of blocks make no sense")
        asked = (sizes - np.minimum(slack[order], sizes)).astype(np.int64)
        return Blocks(starts, ends, asked, site.astype(np.int64), sites)

    # ---- Reading ----

    def words(self, start: int, end: int) -> Iterator[tuple[int, Words]]:
        """Yields (address, words) of everything readable between two addresses."""
        start, end = -(-start // 8) * 8, end // 8 * 8
        for at in range(start, end, PIECE):
            yield from self.piece(at, min(at + PIECE, end))

    def piece(self, start: int, end: int) -> Iterator[tuple[int, Words]]:
        """Yields the same for one piece. Halves the piece if a part of it is unreadable."""
        try:
            yield start, np.frombuffer(self.memory.read(start, end - start), WORD)
        except Unreadable:
            if end - start <= PAGE:
                return
            middle = (start + (end - start) // 2) // PAGE * PAGE
            middle = middle if start < middle < end else min(start + PAGE, end)
            yield from self.piece(start, middle)
            yield from self.piece(middle, end)

    def touched(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns the parts of a range whose pages were touched."""
        if end - start < SPARSE_LEAST:
            return [(start, end)]
        first = start // PAGE * PAGE
        try:
            with Pagemap(self.ending.thread) as pages:
                there = sweep_of((at, pages.flags(at, min(FLAGS_AT_ONCE, end - at)).translate(TOUCHED))
                                 for at in range(first, end, FLAGS_AT_ONCE))
        except (OSError, PagemapError):
            return [(start, end)]
        return [(max(low, start), min(high, end)) for low, high in zip(there.start, there.end)]

    # ---- Roots ----

    def own_ranges(self) -> list[tuple[int, int]]:
        """Returns HAKMEM's memory, which holds no roots: its part of the window, tables, huge blocks."""
        reader = HeapReader(self.memory, self.descriptor)
        with sense(self.memory):
            reader.read_roots()
            reader.read_slots()
            reader.read_profile()
            size, foreign = reader.superslab_size, set(reader.foreign)
            ranges = [(reader.window, reader.window + reader.begin * size)]
            ranges += [(reader.window + number * size, reader.window + (number + 1) * size)
                       for number in range(reader.begin, reader.end) if number not in foreign]
            ranges += [(start, start + length) for start, length in (*reader.head_maps, *reader.profile)]
            huge = read_huge(self.memory, self.descriptor, {}).blocks
            return ranges + [(block.address, block.address + block.bytes) for block in huge]

    def root_ranges(self) -> list[tuple[int, int]]:
        """Returns the ranges to scan for pointers: writable mappings, stacks from their stack pointers on."""
        stacks = sorted(stack for _, stack in self.ending.registers.values())
        ranges, before = [], None
        for mapping in self.mappings:
            if "w" in mapping.flags and "r" in mapping.flags and (
                    not mapping.path.startswith(("/dev/", "[vv")) or mapping.path.startswith(SHARED_MEMORY)):
                start = mapping.start
                guarded = before is not None and before.end == start and before.flags[:3] == "---"
                inside = [stack for stack in stacks if mapping.start <= stack < mapping.end]
                # Below the stack pointer lie remains of calls that have returned. In a mapping without a guard before
                # it other things may lie there.
                if inside and (mapping.path == "[stack]" or guarded):
                    start = max(start, inside[0] - RED_ZONE)
                elif guarded and not inside and not mapping.path:
                    start = max(start, self.ended_thread(start, mapping.end))
                ranges.append((start, mapping.end))
            before = mapping
        return without(ranges, self.own_ranges())

    def ended_thread(self, start: int, end: int) -> int:
        """Returns the address of an ended thread's descriptor, if the range is its stack, which glibc keeps for the next
        thread; else 0."""
        live = {word for words, _ in self.ending.registers.values() for word in words}
        for at, words in self.words(max(start, end - DESCRIPTOR_MOST), end):
            places = np.flatnonzero(words == np.arange(at, at + 8 * len(words), 8).astype(WORD)).tolist()
            for place in places:
                address = at + 8 * place
                if address % DESCRIPTOR_ALIGN == 0 and place + 2 < len(words) and int(words[place + 2]) == address:
                    return 0 if address in live else address
        return 0

    def graph(self, blocks: Blocks) -> Graph:
        """Returns the Graph of the blocks."""
        roots = [
            blocks.find(np.array([word for words, _ in self.ending.registers.values() for word in words], WORD))[1]
        ]
        for start, end in self.root_ranges():
            for first, last in self.touched(start, end):
                for _, words in self.words(first, last):
                    roots.append(np.unique(blocks.find(words)[1]))
        counts = np.zeros(len(blocks), np.int64)
        targets = [np.empty(0, np.int64)]
        for start, end in runs_of(blocks):
            for at, words in self.words(start, end):
                places, found = blocks.find(words)
                holders = np.searchsorted(blocks.starts, places.astype(WORD) * WORD.type(8) + WORD.type(at),
                                          "right") - 1
                # Between blocks lie free memory and HAKMEM's own.
                good = (holders >= 0) & (places.astype(WORD) * WORD.type(8) + WORD.type(at) < blocks.ends[holders])
                good &= holders != found
                counts += np.bincount(holders[good], minlength=len(counts))
                targets.append(found[good].astype(np.int64))
        return Graph(np.concatenate([[0], np.cumsum(counts)]), np.concatenate(targets),
                     np.unique(np.concatenate(roots)))


def runs_of(blocks: Blocks) -> list[tuple[int, int]]:
    """Returns the blocks' memory as few ranges. Blocks less than a page apart share a range."""
    if not len(blocks):
        return []
    breaks = np.flatnonzero(blocks.starts[1:] - blocks.ends[:-1] >= PAGE)
    firsts = np.concatenate([[0], breaks + 1])
    lasts = np.concatenate([breaks, [len(blocks) - 1]])
    return list(zip(blocks.starts[firsts].tolist(), blocks.ends[lasts].tolist()))


def without(ranges: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the ranges without the taken ones."""
    taken = sorted(taken)
    left = []
    at = 0
    for start, end in sorted(ranges):
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        place = at
        while place < len(taken) and taken[place][0] < end:
            if taken[place][0] > start:
                left.append((start, taken[place][0]))
            start = max(start, taken[place][1])
            place += 1
        if start < end:
            left.append((start, end))
    return left
