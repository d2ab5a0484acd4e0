"""Tells which pages are resident, by /proc/PID/smaps and /proc/PID/pagemap."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from hakmem.compat import zip_strict
from hakmem.foreign import Mapping
from hakmem.live.memory import LiveError, NoProcess, ProcessMemory, Unreadable, parse_mapping

PAGE = mmap.PAGESIZE
# Bytes of the word that the map has for a page; bits of its last byte.
WORD = 8
PRESENT, FILE, EXCLUSIVE = 1 << 7, 1 << 5, 1 << 0
# Translate the last byte to 1 or 0. THERE: 1 for each present page, the page of zeros too. OWNED: 1 for a present page
# that is a file's or this process's alone.
THERE = bytes(bool(flags & PRESENT) for flags in range(256))
OWNED = bytes(bool(flags & PRESENT and flags & (FILE | EXCLUSIVE)) for flags in range(256))
RUN = re.compile(b"\1+")
HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
# Bytes of the map read at once.
CHUNK = 8 << 20
# The ioctl of newer kernels on the map, _IOWR('f', 16, struct pm_scan_arg), and categories of pages.
PAGEMAP_SCAN = 0xC0606610
IS_PRESENT, ZERO, HUGE = 1 << 3, 1 << 5, 1 << 6
REGIONS = 65536
# The vsyscall page lies above this address, in the kernel's half.
USER_END = 1 << 62
# Flags of mappings whose pages Rss does not count as the map shows them: hugetlbfs, memory of devices and of the
# kernel.
ODD = frozenset(("ht", "pf", "io", "mm"))


class ScanRequest(ctypes.Structure):
    """struct pm_scan_arg."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "size", "flags", "start", "end", "walk_end", "vector", "vector_length", "max_pages", "category_inverted",
        "category_mask", "category_anyof_mask", "return_mask")]


class Region(ctypes.Structure):
    """struct page_region."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


class PagemapError(LiveError):
    """The kernel does not tell which pages are resident."""


@dataclass
class Area:
    """A mapping and how much of it is resident, by smaps."""

    mapping: Mapping
    rss: int = 0
    swap: int = 0
    huge: int = 0  # of rss: in anonymous huge pages
    dirty: int = 0  # of rss: written by this process, and shared with no other
    referenced: int = 0  # of rss: read or written since the kernel's marks were cleared
    odd: bool = False  # what the map of pages tells of it is not what Rss counts


def read_areas(memory: ProcessMemory) -> list[Area]:
    """Returns all mappings with their figures in smaps."""
    areas, names = [], {"Rss": "rss", "Swap": "swap", "AnonHugePages": "huge", "Private_Dirty": "dirty",
                        "Referenced": "referenced"}
    for line in memory.proc_text("smaps").split("\n"):
        if HEADER.match(line):
            areas.append(Area(parse_mapping(line)))
            continue
        name, _, value = line.partition(":")
        if name in names:
            setattr(areas[-1], names[name], int(value.split()[0]) * 1024)
        elif name == "VmFlags":
            areas[-1].odd = not ODD.isdisjoint(value.split())
    return areas


def read_rss(memory: ProcessMemory) -> int:
    """Returns the Rss of all mappings together, at one moment as nearly as the kernel can."""
    if not Path(f"/proc/{memory.pid}/smaps_rollup").exists():  # before Linux 4.14
        return sum(area.rss for area in read_areas(memory))
    figures = read_rollup(memory)
    if "Rss" not in figures:
        raise NoProcess(f"process {memory.pid} ended while it was read")
    return figures["Rss"]


def read_rollup(memory: ProcessMemory) -> dict[str, int]:
    """Returns {name: bytes} of the sums over all mappings, as smaps_rollup has them."""
    lines = (line.partition(":") for line in memory.proc_text("smaps_rollup").splitlines())
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.endswith(" kB")}


@dataclass
class Sweep:
    """The pages that Rss counts at one look: disjoint ranges by address, and which of them lie on huge pages."""

    start: list[int]
    end: list[int]
    huge: list[bool] | None  # of each range; None: the kernel does not tell
    sums: list[int] = field(init=False)  # bytes of all ranges before each, and of all

    def __post_init__(self) -> None:
        self.sums = [0, *accumulate(end - start for start, end in zip_strict(self.start, self.end))]

    @property
    def total(self) -> int:
        """The bytes of all ranges."""
        return self.sums[-1]

    def below(self, address: int) -> int:
        """Returns the resident bytes below an address."""
        number = bisect_right(self.start, address) - 1
        if number < 0:
            return 0
        return self.sums[number] + min(address, self.end[number]) - self.start[number]

    def bytes(self, start: int, end: int) -> int:
        """Returns the resident bytes from start to end."""
        return self.below(end) - self.below(start)

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns the ranges that overlap the space between two addresses."""
        return [(self.start[number], self.end[number])
                for number in range(bisect_right(self.end, start), bisect_left(self.start, end))]

    def pages(self, start: int, size: int) -> int:
        """Returns the resident pages of a range. Bit N is page N."""
        return self.marked(start, size, None)

    def is_huge(self, start: int, size: int) -> bool:
        """Returns whether a SuperSlab lies on a huge page, or is wholly resident if the kernel does not tell."""
        return self.marked(start, size, self.huge) == (1 << size // PAGE) - 1

    def marked(self, start: int, size: int, chosen: list[bool] | None) -> int:
        """Returns the pages of a range that lie in one of the chosen ranges; in any range if `chosen` is None."""
        found = 0
        for number in range(bisect_right(self.end, start), bisect_left(self.start, start + size)):
            if chosen is None or chosen[number]:
                low, high = max(self.start[number], start), min(self.end[number], start + size)
                found |= ((1 << (high - low) // PAGE) - 1) << (low - start) // PAGE
        return found

    def without(self, ranges: Iterable[tuple[int, int]]) -> Sweep:
        """Returns a Sweep without some ranges of addresses."""
        kept = list(zip_strict(self.start, self.end, self.huge or [False] * len(self.start)))
        for low, high in ranges:
            parts = [(start, min(end, low), huge) for start, end, huge in kept]
            parts += [(max(start, high), end, huge) for start, end, huge in kept]
            kept = sorted(part for part in parts if part[0] < part[1])
        start, end, huge = map(list, zip(*kept)) if kept else ([], [], [])
        return Sweep(start, end, None if self.huge is None else huge)


class Pagemap:
    """The resident pages of a process."""

    def __init__(self, pid: int) -> None:
        try:
            self.file = open(f"/proc/{pid}/pagemap", "rb", buffering=0)
        except OSError as error:
            raise PagemapError(f"/proc/{pid}/pagemap: {error.strerror}") from error

    def __enter__(self) -> Pagemap:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    @cached_property
    def regions(self) -> ctypes.Array[Region]:
        """The buffer of scan(), which is large."""
        return (Region * REGIONS)()

    def close(self) -> None:
        """Closes the map."""
        self.file.close()

    def sweeps(self, mappings: list[Mapping]) -> list[Sweep]:
        """Returns what may be the pages that Rss counts now, without the page of zeros.

        One Sweep; with older kernels two, because they show the page of zeros like a page that is shared after a
        fork."""
        # The highest mapping left is the first thread's stack.
        mappings = [mapping for mapping in mappings if mapping.end <= USER_END]
        found = self.scan(max(mapping.end for mapping in mappings))
        if found is not None:
            fields = len(Region._fields_)
            return [Sweep(found[0::fields].tolist(), found[1::fields].tolist(),
                          [bool(categories & HUGE) for categories in found[2::fields]])]
        # Reserved address space has no pages and would take long to read.
        parts = [(mapping.start, self.flags(mapping.start, mapping.size)) for mapping in mappings
                 if not mapping.flags.startswith("---")]
        return [sweep_of([(start, flags.translate(kind)) for start, flags in parts]) for kind in (THERE, OWNED)]

    def flags(self, start: int, size: int, needed: bool = False) -> bytes:
        """Returns the last byte of the map's word for each page of a range; zeros behind the map's end. With `needed`,
        raises Unreadable if the map has nothing of the range."""
        count = -(-size // PAGE)
        parts: list[bytes] = []
        self.file.seek(start // PAGE * WORD)
        while count:
            part = self.file.read(min(count * WORD, CHUNK))
            if not part and needed and not parts:
                raise Unreadable("the map of its pages is empty: it has become another program")
            if not part:
                parts.append(bytes(count))
                break
            parts.append(part[WORD - 1::WORD])
            count -= len(part) // WORD
        return b"".join(parts)

    def counting(self, start: int, size: int, kind: bytes) -> bytes:
        """Returns a byte for each page of a range: 1 if it counts, by THERE or OWNED, else 0. Raises Unreadable if the
        map is empty."""
        return self.flags(start, size, needed=True).translate(kind)

    def scan(self, end: int) -> array[int] | None:
        """Returns the Regions of present pages up to `end`, without the page of zeros; None without PAGEMAP_SCAN."""
        parts, at = [], 0
        while at < end:
            request = ScanRequest(size=ctypes.sizeof(ScanRequest), start=at, end=end,
                                  vector=ctypes.addressof(self.regions), vector_length=REGIONS, category_inverted=ZERO,
                                  category_mask=IS_PRESENT | ZERO, return_mask=IS_PRESENT | HUGE)
            try:
                count = fcntl.ioctl(self.file, PAGEMAP_SCAN, request)
            except OSError as error:
                if error.errno in (errno.ENOTTY, errno.EINVAL):
                    return None
                raise LiveError(f"PAGEMAP_SCAN: {error.strerror}") from error
            parts.append(bytes(memoryview(self.regions).cast("B")[:count * ctypes.sizeof(Region)]))
            # The kernel's walk_end is wrong if there are more regions than its own buffer holds: it is where the buffer
            # was last full. A vector with room left shows that the walk reached the end.
            if count < REGIONS:
                break
            at = self.regions[count - 1].end
        return array("Q", b"".join(parts))


def sweep_of(parts: Iterable[tuple[int, bytes]]) -> Sweep:
    """Returns the Sweep of sorted (address, a byte for each page from there on: 1 if it is resident)."""
    start, end = [], []
    for address, pages in parts:
        for run in RUN.finditer(pages):
            start.append(address + run.start() * PAGE)
            end.append(address + run.end() * PAGE)
    return Sweep(start, end, None)
